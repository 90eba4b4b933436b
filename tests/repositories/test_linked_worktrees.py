"""Linked worktrees in the workspace: index and files follow the branch that each has checked out."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentfsd.history.merge_records import Rules
from tests.history.trees import commit_lower
from tests.repositories.agents import Agents, commit, git, start

TEXT = "".join(f"line {number}\n" for number in range(9))


def add_worktree(top: Path, database: str, name: str, *options: str) -> None:
    """With relative paths, so that it works in copies of the workspace."""
    git(top / database, "worktree", "add", "-q", str(top / name), *options)
    (top / name / ".git").write_text(f"gitdir: ../{database}/worktrees/{name}\n")
    (top / database / "worktrees" / name / "gitdir").write_text(f"../../../{name}/.git\n")


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Agents]:
    """A repository with a worktree ``wt`` for the branch ``wt``."""
    made = Agents(tmp_path)
    start(made.lower, {"a": "a\n", "b": "b\n", "text": TEXT})
    add_worktree(made.lower, ".git", "wt", "-b", "wt")
    (made.lower / ".git" / "info" / "exclude").write_text("wt/\n")
    made.branch("one", "two")
    yield made
    made.close()


@pytest.fixture
def around_bare(tmp_path: Path) -> Iterator[Agents]:
    """A bare repository whose branches are checked out in worktrees beside it."""
    start(tmp_path / "origin", {"a": "a\n", "text": TEXT})
    made = Agents(tmp_path)
    git(tmp_path, "clone", "-q", "--bare", "origin", "lower/.bare")
    (made.lower / ".git").write_text("gitdir: ./.bare\n")
    add_worktree(made.lower, ".bare", "main")
    made.branch("one", "two")
    yield made
    made.close()


def work(agents: Agents, name: str, files: dict[str, str | None], place: str = "wt") -> str:
    there = agents.work(name) / place
    tip = commit(there, files, f"{name}'s")
    agents.keep(name)
    return tip


def refresh(place: Path) -> None:
    """Makes git write the index, as `git status` does."""
    (place / "text").touch()
    git(place, "update-index", "--refresh")


def status(place: Path) -> str:
    git(place, "fsck", "--strict", "--no-dangling")
    return git(place, "status", "--porcelain")


def test_an_index_that_was_only_refreshed_follows(agents: Agents) -> None:
    tip = work(agents, "two", {"a": "two\n", "new": "new\n", "b": None})
    refresh(agents.work("one") / "wt")
    agents.keep("one")
    assert agents.merge("two", into="one").conflicts == []
    place = agents.work("one") / "wt"
    assert (status(place), git(place, "rev-parse", "HEAD")) == ("", tip)
    assert git(place, "log", "-1", "-g", "--format=%H") == tip
    assert sorted(path.name for path in place.iterdir()) == [".git", "a", "new", "text"]


def test_commits_of_both_are_merged(agents: Agents) -> None:
    tips = [work(agents, name, {f"of-{name}": "new\n", "text": TEXT.replace(line, f"{name}\n")})
            for name, line in (("one", "line 1\n"), ("two", "line 7\n"))]  # fmt: skip
    assert agents.merge("two", into="one").conflicts == []
    place = agents.work("one") / "wt"
    assert status(place) == ""
    assert git(place, "rev-list", "--parents", "-n1", "wt").split()[1:] == tips
    assert {"one", "two"} <= set((place / "text").read_text().splitlines())


@pytest.mark.parametrize("rule", ["refuse", "merge"])
def test_a_commit_into_the_real_directory(agents: Agents, rule: str) -> None:
    tip = work(agents, "one", {"a": "one\n", "new": "new\n"})
    tips = {tip, commit(agents.lower / "wt", {"b": "person\n"}, "person's") if rule == "merge" else tip}
    refresh(agents.lower / "wt")
    assert commit_lower(agents.opened, ref="one", rule=rule).conflicts == []  # type: ignore[arg-type]
    assert (status(agents.lower), status(agents.lower / "wt")) == ("", "")
    assert tips <= set(git(agents.lower, "rev-list", "refs/heads/wt").split())


def test_absolute_paths_as_git_writes_them(tmp_path: Path) -> None:
    agents = Agents(tmp_path)
    start(agents.lower, {"a": "a\n", "text": TEXT})
    git(agents.lower, "worktree", "add", "-q", "wt")
    agents.branch("one")
    top = agents.work("one")
    there = [f"--git-dir={top}/.git/worktrees/wt", f"--work-tree={top}/wt"]
    (top / "wt" / "new").write_text("new\n")
    git(top / "wt", *there, "add", "new")
    git(top / "wt", *there, "commit", "-qm", "one's")
    agents.keep("one")
    refresh(agents.lower / "wt")
    assert commit_lower(agents.opened, ref="one").conflicts == []
    assert status(agents.lower / "wt") == ""
    assert git(agents.lower, "log", "-1", "--format=%s", "refs/heads/wt") == "one's"
    agents.close()


def test_what_is_not_committed_stays(agents: Agents) -> None:
    work(agents, "two", {"a": "two\n"})
    place = agents.work("one") / "wt"
    (place / "staged").write_text("staged\n")
    git(place, "add", "staged")
    (place / "b").write_text("changed\n")
    agents.keep("one")
    assert agents.merge("two", into="one").conflicts == []
    place = agents.work("one") / "wt"
    assert status(place) == " M b\nA  staged"
    assert (place / "a").read_text() == "two\n"


def test_commits_that_clash_are_kept_beside_and_change_no_file(agents: Agents) -> None:
    tips = [work(agents, name, {"a": f"{name}\n", f"of-{name}": "new\n"}) for name in ("one", "two")]
    assert agents.merge("two", into="one").conflicts == []
    place = agents.work("one") / "wt"
    assert (status(place), (place / "a").read_text()) == ("", "one\n")
    assert git(place, "rev-parse", "wt", "agentfsd/two/wt").split() == tips
    assert not (place / "of-two").exists()


def test_another_branch_checked_out_by_theirs(agents: Agents) -> None:
    there = agents.work("two") / "wt"
    git(there, "switch", "-qc", "topic")
    tip = commit(there, {"a": "two\n"}, "two's")
    agents.keep("two")
    refresh(agents.work("one") / "wt")
    agents.keep("one")
    assert agents.merge("two", into="one").conflicts == []
    place = agents.work("one") / "wt"
    assert (status(place), git(place, "rev-parse", "topic", "HEAD").split()) == ("", [tip, tip])
    assert git(place, "symbolic-ref", "HEAD") == "refs/heads/topic"


def test_other_branches_checked_out_by_both_are_refused(agents: Agents) -> None:
    for name in ("one", "two"):
        there = agents.work(name) / "wt"
        git(there, "switch", "-qc", f"topic-{name}")
        commit(there, {f"of-{name}": "new\n"}, f"{name}'s")
        agents.keep(name)
    found = agents.merge("two", into="one").conflicts
    assert [one.path for one in found] == [b".git/worktrees/wt/HEAD"]
    assert "switch one of them" in found[0].message
    assert agents.merge("two", into="one", rules=Rules(favor="theirs")).conflicts == []
    place = agents.work("one") / "wt"
    assert (status(place), git(place, "symbolic-ref", "HEAD")) == ("", "refs/heads/topic-two")


@pytest.mark.parametrize("side", ["one", "two"])
def test_a_merge_under_way_is_refused(agents: Agents, side: str) -> None:
    for name in ("one", "two"):
        agents.commit(name, {f"of-{name}": "new\n"}, f"{name}'s")
    work(agents, "two", {"a": "two\n"})
    place = agents.work(side) / "wt"
    git(place, "branch", "other")
    commit(place, {"b": f"{side}\n"}, "mine")
    git(place, "switch", "-q", "other")
    commit(place, {"b": "other\n"}, "other")
    git(place, "merge", "-q", "wt", check=False)
    agents.keep(side)
    found = agents.merge("two", into="one").conflicts
    assert [(one.path, one.kind) for one in found] == [(b".git/worktrees/wt/MERGE_HEAD", "repository")]
    assert f"a merge is under way in the linked worktree wt of {side}" in found[0].message


def test_a_later_round_takes_over_what_arrived(agents: Agents) -> None:
    work(agents, "one", {"a": "one\n"})
    work(agents, "two", {"b": "two\n"})
    for name in ("one", "two"):
        assert commit_lower(agents.opened, ref=name, rule="merge").conflicts == []
    assert agents.merge("main", into="one").conflicts == []
    place = agents.work("one") / "wt"
    assert (status(place), (place / "b").read_text()) == ("", "two\n")
    assert git(place, "rev-parse", "wt") == git(agents.lower, "rev-parse", "wt")


def test_the_branch_of_a_bare_repository_that_a_worktree_has(around_bare: Agents) -> None:
    agents = around_bare
    tips = [work(agents, name, {f"of-{name}": "new\n"}, "main") for name in ("one", "two")]
    assert agents.merge("two", into="one").conflicts == []
    place = agents.work("one") / "main"
    assert status(place) == ""
    assert git(place, "rev-list", "--parents", "-n1", "HEAD").split()[1:] == tips
    assert commit_lower(agents.opened, ref="one").conflicts == []
    assert status(agents.lower / "main") == ""
    assert (agents.lower / "main" / "of-two").exists()


@pytest.mark.parametrize("markers", [False, True])
def test_conflicts_in_the_worktree_of_a_bare_repository(around_bare: Agents, markers: bool) -> None:
    agents = around_bare
    for name in ("one", "two"):
        work(agents, name, {"a": f"{name}\n"}, "main")
    found = agents.merge("two", into="one", rules=Rules(markers=markers)).conflicts
    assert [(one.path, one.kind) for one in found] == [(b"main/a", "content")]
    assert agents.merge("two", into="one", rules=Rules(favor="theirs")).conflicts == []
    place = agents.work("one") / "main"
    assert (status(place), (place / "a").read_text()) == ("", "two\n")


def test_a_worktree_outside_of_the_workspace_keeps_its_branch(around_bare: Agents) -> None:
    agents = around_bare
    place = agents.work("one")
    (place / ".bare" / "worktrees" / "main" / "gitdir").write_text("/elsewhere/review/.git\n")
    agents.keep("one")
    tip = git(place / "main", "rev-parse", "HEAD")
    his = work(agents, "two", {"of-two": "new\n"}, "main")
    assert agents.merge("two", into="one").conflicts == []
    place = agents.work("one") / ".bare"
    assert git(place, "rev-parse", "main", "agentfsd/two/main").split() == [tip, his]


def test_a_worktree_that_theirs_removed_goes_with_its_branch(agents: Agents) -> None:
    place = agents.work("two")
    shutil.rmtree(place / "wt")
    git(place, "worktree", "prune", "--expire=now")
    git(place, "branch", "-qD", "wt")
    agents.keep("two")
    agents.commit("one", {"a": "one\n"}, "one's")
    assert agents.merge("two", into="one").conflicts == []
    place = agents.work("one")
    assert git(place, "for-each-ref", "--format=%(refname)") == "refs/heads/main"
    assert not (place / "wt").exists()
    assert len(git(place, "worktree", "list").splitlines()) == 1
