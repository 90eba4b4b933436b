"""Refs that no git writes: names outside of refs/, and values that are no object ids, are data that nobody follows."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.history.trees import commit_lower
from tests.repositories.agents import Agents, commit, git, start

NAMES = (
    "config", "HEAD", "hooks/post-checkout", "../a", "refs/../config", "refs/heads/../../../../outside", "/tmp/outside",
    "refs/heads/.", "refs//x", "refs/heads/x.lock", "refs",
)  # fmt: skip


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Agents]:
    made = Agents(tmp_path)
    start(made.lower, {"a": "a\n", "b": "b\n"})
    yield made
    made.close()


def state(place: Path) -> dict[str, bytes]:
    """The files, but for those that any commit changes."""
    return {
        str(path.relative_to(place)): path.read_bytes()
        for path in place.rglob("*")
        if path.is_file() and "objects" not in path.parts and "logs" not in path.parts and path.name not in ("index", "main")
    }


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("into", ["branch", "lower"])
def test_a_packed_ref_outside_of_refs_is_left_alone(agents: Agents, name: str, into: str, tmp_path: Path) -> None:
    agents.branch("one", "all")
    agents.commit("all", {"b": "B\n"}, "all's")
    if into == "lower":
        commit(agents.lower, {"b": "B\n"}, "person's")
    place = agents.work("one")
    tip = commit(place, {"a": "A\n"}, "one's")
    (place / ".git" / "packed-refs").write_text(f"# pack-refs with: peeled fully-peeled sorted \n{tip} {name}\n")
    agents.keep("one")
    shown = agents.lower if into == "lower" else agents.work("all")
    before = state(shown)
    if into == "lower":
        assert commit_lower(agents.opened, rule="merge", ref="one").conflicts == []
    else:
        assert agents.merge("one", into="all").conflicts == []
    after = state(agents.lower if into == "lower" else agents.work("all"))
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    assert changed <= {"a", ".git/packed-refs", ".git/COMMIT_EDITMSG"}, changed
    assert not (tmp_path / "outside").exists()
    assert not Path("/tmp/outside").exists()
    git(agents.lower, "fsck", "--strict", "--no-dangling")


def test_a_value_is_no_option_of_git(agents: Agents, tmp_path: Path) -> None:
    ref = agents.lower / ".git" / "refs" / "heads" / "main"
    tip = ref.read_text()
    (tmp_path / "out").mkdir()
    ref.write_text(f"--output={tmp_path}/out/x")
    agents.branch("one", "all")
    place = agents.work("one")
    (place / ".git" / "refs" / "heads" / "main").write_text(tip)
    (place / ".git" / "refs" / "heads" / "other").write_text(tip)
    agents.keep("one")
    place = agents.work("all")
    (place / ".git" / "refs" / "heads" / "another").write_text(tip)
    agents.keep("all")
    assert [conflict.kind for conflict in agents.merge("one", into="all").conflicts] == ["repository"]
    assert list((tmp_path / "out").iterdir()) == []


def test_only_the_first_word_of_a_ref_counts(agents: Agents) -> None:
    agents.branch("one", "all")
    agents.commit("all", {"b": "B\n"}, "all's")
    place = agents.work("one")
    old = git(place, "rev-parse", "HEAD")
    tip = commit(place, {"a": "A\n"}, "one's")
    (place / ".git" / "refs" / "heads" / "main").write_text(f"{tip}\n{old}\n{old}\n")
    assert git(place, "rev-parse", "HEAD") == tip
    agents.keep("one")
    assert agents.merge("one", into="all").conflicts == []
    place = agents.work("all")
    git(place, "fsck", "--strict", "--no-dangling")
    assert (place / "a").read_text() == "A\n"
    assert git(place, "status", "--porcelain") == ""
    git(place, "merge-base", "--is-ancestor", tip, "HEAD")


@pytest.mark.parametrize("rule", ["refuse", "merge", "force"])
def test_a_branch_without_the_repository_takes_no_persons_commit(agents: Agents, rule: str) -> None:
    agents.branch("one")
    shutil.rmtree(agents.work("one") / ".git")
    agents.keep("one")
    mine = commit(agents.lower, {"b": "person's\n"}, "person's")
    assert "repository" in [conflict.kind for conflict in commit_lower(agents.opened, rule=rule, ref="one").conflicts]
    git(agents.lower, "fsck", "--strict", "--no-dangling")
    assert git(agents.lower, "rev-parse", "main") == mine


def test_a_branch_may_remove_a_repository_that_nobody_used_meanwhile(agents: Agents) -> None:
    agents.branch("one")
    shutil.rmtree(agents.work("one") / ".git")
    agents.keep("one")
    assert commit_lower(agents.opened, rule="refuse", ref="one").conflicts == []
    assert not (agents.lower / ".git").exists()


def test_head_that_leads_out_of_the_repository(agents: Agents, tmp_path: Path) -> None:
    agents.branch("one", "all")
    agents.commit("one", {"a": "A\n"}, "one's")
    place = agents.work("all")
    (place / ".git" / "HEAD").write_text("ref: refs/heads/../../../outside\n")
    agents.keep("all")
    assert [conflict.path for conflict in agents.merge("one", into="all").conflicts] == [b".git/HEAD"]
    assert not (agents.work("all") / "outside").exists()
