"""Committing branches in which agents use git into the real directory: its repository is one that git finds in order."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.history.trees import commit_lower
from tests.repositories.agents import Agents, commit, git, start

MANY = "".join(f"line {number}\n" for number in range(20))


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Agents]:
    made = Agents(tmp_path)
    start(made.lower, {"a": "a\n", "b": "b\n", "text": MANY})
    yield made
    made.close()


def kinds(agents: Agents, name: str, rule: str = "refuse", **more: bool) -> list[str]:
    """Commits a branch; the kinds of what stands in the way."""
    found = commit_lower(agents.opened, rule=rule, ref=name, **more)  # type: ignore[arg-type]
    git(agents.lower, "fsck", "--strict", "--no-dangling")
    return [conflict.kind for conflict in found.conflicts]


def test_an_agents_commit_arrives(agents: Agents) -> None:
    agents.branch("one")
    tip = agents.commit("one", {"a": "A\n", "docs/one.md": "one\n"}, "one's")
    assert kinds(agents, "one") == []
    assert git(agents.lower, "rev-parse", "main") == tip
    assert git(agents.lower, "status", "--porcelain") == ""


def test_the_second_agent_is_refused_then_merged(agents: Agents) -> None:
    agents.branch("one", "two")
    first = agents.commit("one", {"a": "A\n", "docs/one.md": "one\n"}, "one's")
    second = agents.commit("two", {"b": "B\n", "docs/two.md": "two\n"}, "two's")
    assert kinds(agents, "one") == []
    assert "history" in kinds(agents, "two")
    assert git(agents.lower, "rev-parse", "main") == first
    assert kinds(agents, "two", "merge") == []
    assert git(agents.lower, "rev-list", "--parents", "-n1", "main").split()[1:] == [first, second]
    assert git(agents.lower, "status", "--porcelain") == ""
    assert sorted(path.name for path in (agents.lower / "docs").iterdir()) == ["one.md", "two.md"]


def test_work_that_the_real_repository_has_as_a_branch_beside_is_still_merged(agents: Agents) -> None:
    agents.branch("one")
    place = agents.work("one")
    git(place, "switch", "-qc", "feature")
    his = commit(place, {"new": "new\n"}, "one's")
    agents.keep("one")
    git(agents.lower, "fetch", "-q", str(place), "feature:feature")
    assert kinds(agents, "one", "merge") == []
    assert git(agents.lower, "rev-parse", "main") == his
    assert git(agents.lower, "status", "--porcelain") == ""


def test_what_a_person_committed_meanwhile_stays(agents: Agents) -> None:
    agents.branch("one")
    his = agents.commit("one", {"text": MANY.replace("line 3\n", "three\n")}, "one's")
    mine = commit(agents.lower, {"text": MANY.replace("line 15\n", "fifteen\n"), "b": "person\n"}, "person's")
    (agents.lower / "untracked").write_text("person's\n")
    assert "history" in kinds(agents, "one")
    assert kinds(agents, "one", "merge") == []
    assert git(agents.lower, "rev-list", "--parents", "-n1", "main").split()[1:] == [mine, his]
    assert (agents.lower / "text").read_text() == MANY.replace("line 3\n", "three\n").replace("line 15\n", "fifteen\n")
    assert (agents.lower / "b").read_text() == "person\n"
    assert git(agents.lower, "status", "--porcelain") == "?? untracked"


def test_force_loses_no_commit(agents: Agents) -> None:
    agents.branch("one")
    his = agents.commit("one", {"a": "agent\n"}, "one's")
    mine = commit(agents.lower, {"a": "person\n"}, "person's")
    assert kinds(agents, "one", "force") == []
    assert {mine, his} <= set(git(agents.lower, "rev-list", "main").split())
    assert (agents.lower / "a").read_text() == "agent\n"


def test_as_branches_brings_refs_alone(agents: Agents) -> None:
    agents.branch("one")
    his = agents.commit("one", {"a": "agent\n", "new": "new\n"}, "one's")
    mine = commit(agents.lower, {"a": "person\n"}, "person's")
    assert kinds(agents, "one", as_branches=True) == []
    assert git(agents.lower, "rev-parse", "main", "agentfsd/one/main").split() == [mine, his]
    assert git(agents.lower, "status", "--porcelain") == ""
    assert not (agents.lower / "new").exists()


def test_a_commit_of_all_that_was_merged(agents: Agents) -> None:
    names = [f"agent-{number}" for number in range(4)]
    agents.branch(*names)
    tips = [agents.commit(name, {f"docs/{name}": name, "a": "a\n"}, name) for name in names]
    assert agents.merge(*names, into="main").conflicts == []
    assert kinds(agents, "main") == []
    assert set(tips) <= set(git(agents.lower, "rev-list", "main").split())
    assert git(agents.lower, "status", "--porcelain") == ""
    assert len(list((agents.lower / "docs").iterdir())) == 4


def test_what_git_no_longer_tracks_stays_a_file(agents: Agents) -> None:
    agents.branch("one")
    place = agents.work("one")
    git(place, "rm", "-q", "--cached", "a")
    git(place, "commit", "-qm", "untracks a")
    agents.keep("one")
    commit(agents.lower, {"b": "person\n"}, "person's")
    assert kinds(agents, "one", "merge") == []
    assert (agents.lower / "a").read_text() == "a\n"
    assert git(agents.lower, "status", "--porcelain") == "?? a"


def test_a_garbage_collection_in_a_branch_takes_nothing_from_the_real_repository(agents: Agents) -> None:
    blob = git(agents.lower, "hash-object", "-w", "--stdin", data=b"somebody is about to commit this")
    agents.branch("one")
    place = agents.work("one")
    tip = commit(place, {"a": "A\n"}, "one's")
    git(place, "gc", "-q", "--prune=now")
    agents.keep("one")
    assert kinds(agents, "one") == []
    assert git(agents.lower, "cat-file", "blob", blob) == "somebody is about to commit this"
    assert git(agents.lower, "rev-parse", "main") == tip


def test_a_lock_in_the_real_repository_is_honoured(agents: Agents) -> None:
    agents.branch("one")
    agents.commit("one", {"a": "A\n"}, "one's")
    (agents.lower / ".git" / "refs" / "heads" / "main.lock").touch()
    assert kinds(agents, "one", "merge") == ["locked"]
