"""Branches that a linked worktree of ours has checked out: no ref moves under its index and files."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.history.trees import commit_lower
from tests.repositories.agents import Agents, commit, git, two_agents
from tests.repositories.joined import bring, keep, of_ours, refs


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Agents]:
    with two_agents(tmp_path, "feature") as made:
        yield made


def work_on_feature(agents: Agents, *commands: str) -> str:
    """What the agent in the branch two does; the commit of its feature."""
    place = agents.work("two")
    git(place, "switch", "-q", "feature")
    for command in commands:
        if command == "commit":
            commit(place, {"b": "B\n"}, "two's")
        else:
            git(place, *command.split())
    tip = git(place, "rev-parse", "--verify", "-q", "feature", check=False)
    git(place, "switch", "-q", "main")
    agents.keep("two")
    return tip


def review(agents: Agents, into: str, *options: str) -> Path:
    """A linked worktree, beside the workspace, of ours alone."""
    place = agents.base / "review"
    git(of_ours(agents, into), "worktree", "add", "-q", str(place), *(options or ("feature",)))
    keep(agents, into)
    return place


def add_inside(lower: Path) -> None:
    """A linked worktree in the workspace, with relative paths."""
    git(lower, "worktree", "add", "-q", "linked", "feature")
    (lower / "linked" / ".git").write_text("gitdir: ../.git/worktrees/linked\n")
    (lower / ".git" / "worktrees" / "linked" / "gitdir").write_text("../../../linked/.git\n")
    (lower / ".git" / "info" / "exclude").write_text("linked/\n")


@pytest.mark.parametrize("into", ["one", "lower"])
@pytest.mark.parametrize("rule", ["refuse", "merge", "force"])
def test_a_branch_that_they_moved_on(agents: Agents, into: str, rule: str) -> None:
    was = git(agents.lower, "rev-parse", "feature")
    his = work_on_feature(agents, "commit")
    there = review(agents, into)
    if into == "lower":
        found = commit_lower(agents.opened, rule=rule, ref="two")  # type: ignore[arg-type]
        assert (found.conflicts, found.said) == ([], ["feature of two is kept as agentfsd/two/feature"])
        place = agents.lower
    else:
        place = bring(agents, into)
    found = refs(place, "refs/heads")
    assert (found["refs/heads/feature"], found["refs/heads/agentfsd/two/feature"]) == (was, his)
    assert git(there, "status", "--porcelain", "--branch") == "## feature"
    assert git(there, "rev-parse", "HEAD") == was


@pytest.mark.parametrize("into", ["one", "lower"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_branch_that_they_deleted(agents: Agents, into: str, packed: bool) -> None:
    was = git(agents.lower, "rev-parse", "feature")
    if packed:
        git(agents.lower, "pack-refs", "--all")
    work_on_feature(agents, "switch -q main", "branch -q -D feature", "switch -qc other")
    there = review(agents, into)
    place = bring(agents, into)
    assert refs(place, "refs/heads/feature") == {"refs/heads/feature": was}
    assert git(there, "status", "--porcelain", "--branch") == "## feature"


@pytest.mark.parametrize("into", ["one", "lower"])
def test_a_branch_that_they_took_back(agents: Agents, into: str) -> None:
    git(agents.lower, "switch", "-q", "feature")
    was = commit(agents.lower, {"a": "A\n"}, "a person's")
    git(agents.lower, "switch", "-q", "main")
    work_on_feature(agents, "reset -q --hard HEAD~1")
    there = review(agents, into)
    place = bring(agents, into)
    assert refs(place, "refs/heads")["refs/heads/feature"] == was
    assert git(there, "status", "--porcelain", "--branch") == "## feature"


@pytest.mark.parametrize("into", ["one", "lower"])
def test_a_branch_without_commits(agents: Agents, into: str) -> None:
    work_on_feature(agents)
    his = work_on_feature(agents, "switch -qc new", "commit", "branch -f feature")
    there = review(agents, into, "--detach")
    git(there, "switch", "-q", "--orphan", "new")
    keep(agents, into)
    there_before = sorted(path.name for path in there.iterdir())
    assert agents.merge("two", into="one").conflicts == [] if into == "one" else commit_lower(agents.opened, ref="two").steps
    place = of_ours(agents, into)
    found = refs(place, "refs/heads")
    assert "refs/heads/new" not in found
    assert found["refs/heads/agentfsd/two/new"] == found["refs/heads/feature"] == his
    assert sorted(path.name for path in there.iterdir()) == there_before


def test_a_branch_that_they_have_after_ours_moved(agents: Agents) -> None:
    """Their commit is made on top of the one that ours has got meanwhile."""
    place = agents.work("two")
    git(place, "switch", "-q", "feature")
    commit(place, {"b": "two\n"}, "two's")
    agents.keep("two")
    there = review(agents, "lower")
    mine = commit(there, {"a": "A\n"}, "a person's")
    place = agents.work("two")
    git(place, "reset", "-q", "--hard", mine)
    his = commit(place, {"b": "B\n"}, "two's again")
    git(place, "switch", "-q", "main")
    agents.keep("two")
    found = refs(bring(agents, "lower"), "refs/heads")
    assert (found["refs/heads/feature"], found["refs/heads/agentfsd/two/feature"]) == (mine, his)
    assert git(there, "status", "--porcelain", "--branch") == "## feature"


@pytest.mark.parametrize("into", ["one", "lower"])
def test_a_worktree_in_which_they_have_worked_comes_with_its_branch(agents: Agents, into: str) -> None:
    add_inside(agents.lower)
    his = commit(agents.work("two") / "linked", {"b": "B\n"}, "two's")
    agents.keep("two")
    place = of_ours(agents, into)
    commit(place, {"a": "A\n"}, "ours")
    keep(agents, into)
    place = bring(agents, into)
    assert refs(place, "refs/heads/feature") == {"refs/heads/feature": his}
    assert git(place / "linked", "status", "--porcelain") == ""


@pytest.mark.parametrize("into", ["one", "lower"])
def test_a_worktree_that_they_removed_goes_with_its_branch(agents: Agents, into: str) -> None:
    add_inside(agents.lower)
    place = agents.work("two")
    git(place / "linked", "switch", "-q", "--detach")
    shutil.rmtree(place / "linked")
    git(place, "worktree", "prune", "--expire=now")
    git(place, "branch", "-q", "-D", "feature")
    agents.keep("two")
    place = of_ours(agents, into)
    commit(place, {"a": "A\n"}, "ours")
    keep(agents, into)
    place = bring(agents, into)
    assert refs(place, "refs/heads/feature") == {}
    assert not (place / "linked").exists()
    assert git(place, "worktree", "list").count("\n") == 0
