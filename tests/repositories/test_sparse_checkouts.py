"""Sparse checkouts: files that a checkout leaves out are not taken for removed ones after a merge or commit."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.history.trees import commit_lower
from tests.repositories.agents import Agents, commit, git, start
from tests.repositories.test_linked_worktrees import add_worktree

FILES: dict[str, str | None] = {"in/a": "a\n", "in/b": "b\n", "out/c": "c\n", "out/d": "d\n"}


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Agents]:
    """A clone; its origin has got commits since."""
    start(tmp_path / "origin", {name: text or "" for name, text in FILES.items()})
    git(tmp_path, "clone", "-q", "origin", "lower")
    made = Agents(tmp_path)
    commit(tmp_path / "origin", {"in/a": "new\n", "out/c": "changed\n", "out/new": "new\n"}, "upstream's")
    yield made
    made.close()


def pull(agents: Agents, name: str, place: str = ".") -> None:
    there = agents.work(name) / place
    git(there, "pull", "-q", "--no-rebase", str(agents.base / "origin"), "main")
    assert git(there, "status", "--porcelain") == ""
    agents.keep(name)


def check(place: Path) -> None:
    """Nothing looks removed, and the next commit of everything removes nothing."""
    assert git(place, "status", "--porcelain") == ""
    (place / "in" / "b").write_text("later\n")
    git(place, "commit", "-qam", "later")
    assert git(place, "show", "--format=", "--name-status", "HEAD") == "M\tin/b"
    assert {"out/c", "out/new"} <= set(git(place, "ls-tree", "-r", "--name-only", "HEAD").splitlines())
    assert not (place / "out").exists()


@pytest.mark.parametrize("option", ["--no-sparse-index", "--sparse-index"])
def test_new_files_that_a_checkout_leaves_out(agents: Agents, option: str) -> None:
    git(agents.lower, "sparse-checkout", "set", option, "in")
    agents.branch("one", "two")
    pull(agents, "two")
    agents.commit("one", {"in/of-one": "new\n"}, "one's")
    assert agents.merge("two", into="one").conflicts == []
    check(agents.work("one"))


def test_a_commit_into_a_real_directory_that_is_sparse(agents: Agents) -> None:
    git(agents.lower, "sparse-checkout", "set", "in")
    agents.branch("one")
    pull(agents, "one")
    commit(agents.lower, {"in/person": "new\n"}, "person's")
    assert commit_lower(agents.opened, ref="one", rule="merge").conflicts == []
    check(agents.lower)


@pytest.mark.parametrize("pulls", [False, True])
@pytest.mark.parametrize("commits", [False, True])
def test_a_checkout_that_the_source_has_made_sparse(agents: Agents, commits: bool, pulls: bool) -> None:
    agents.branch("one", "two")
    place = agents.work("two")
    git(place, "sparse-checkout", "set", "in")
    agents.keep("two")
    if pulls:
        pull(agents, "two")
    if commits:
        agents.commit("one", {"in/of-one": "new\n"}, "one's")
    place = agents.work("one")
    (place / "in" / "b").touch()
    git(place, "update-index", "--refresh")
    agents.keep("one")
    assert agents.merge("two", into="one").conflicts == []
    place = agents.work("one")
    assert git(place, "status", "--porcelain") == ""
    if pulls:
        check(place)


def test_a_linked_worktree_that_is_sparse(agents: Agents) -> None:
    add_worktree(agents.lower, ".git", "wt")
    (agents.lower / ".git" / "info" / "exclude").write_text("wt/\n")
    git(agents.lower / "wt", "sparse-checkout", "set", "in")
    agents.branch("one", "two")
    pull(agents, "two", "wt")
    place = agents.work("one")
    commit(place / "wt", {"in/of-one": "new\n"}, "one's")
    agents.keep("one")
    assert agents.merge("two", into="one").conflicts == []
    check(agents.work("one") / "wt")
    assert git(agents.work("one"), "status", "--porcelain") == ""
