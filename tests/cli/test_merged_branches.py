"""A branch that another one holds, or the real directory, says so wherever branches are listed."""

import pytest

from agentfs_client import ControlClient
from tests.mounted import Mounted


@pytest.fixture
def one(mounted: Mounted) -> Mounted:
    mounted.cli("branch create", "one")
    (mounted.subtree("one") / "new").write_text("x")
    return mounted


def said(mounted: Mounted, branch: str) -> list[str]:
    """What each list says of a branch."""
    lines = [
        next(line for line in mounted.cli(command).stdout.splitlines() if line.split()[:1] == [branch])
        for command in ("branch list", "status")
    ]
    compared = mounted.cli("compare", branch).stdout.splitlines()[-1]
    logged = next(line for line in mounted.cli("log", branch).stdout.splitlines() if f"branch {branch}: " in line)
    return [*lines, compared, logged]


def test_a_merged_branch_says_so_and_what_came_since(one: Mounted) -> None:
    assert not any("merged" in line for line in said(one, "one"))
    one.cli("merge", "one", "--into", "main")
    assert all("merged into main" in line and "since" not in line.partition("merged into main")[2] for line in said(one, "one"))
    (one.subtree("one") / "later").write_text("y")
    assert all("merged into main, 1 change since" in line for line in said(one, "one"))
    one.cli("merge", "one", "--into", "main")
    assert all("merged into main" in line and "1 change since" not in line for line in said(one, "one"))
    one.cli("undo")
    assert all("merged into main, 1 change since" in line for line in said(one, "one"))


def test_a_branch_made_from_another_has_not_merged_it(one: Mounted) -> None:
    one.cli("branch create", "child", "--from", "one")
    (one.subtree("child") / "more").write_text("y")
    assert not any("merged" in line for branch in ("one", "child") for line in said(one, branch))
    one.cli("merge", "child", "--into", "one")
    assert all("merged into one" in line for line in said(one, "child"))


def test_a_branch_that_took_over_another_is_not_said_to_be_in_it(one: Mounted) -> None:
    """A fast-forward gives both the same layers."""
    one.cli("branch create", "other")
    one.cli("merge", "one", "--into", "other")
    one.cli("merge", "one", "--into", "main")
    assert not any("merged" in line for line in said(one, "main"))
    assert all("merged into main" in line for line in said(one, "one"))
    assert not any("merged into one" in line for line in said(one, "other"))


def test_a_merge_survives_the_commit_of_its_target(one: Mounted) -> None:
    one.cli("merge", "one", "--into", "main")
    one.cli("commit", "main")
    assert all("merged into main" in line for line in said(one, "one"))


def test_a_committed_branch_says_so(one: Mounted) -> None:
    one.cli("commit", "one")
    assert all("committed" in line for line in said(one, "one"))
    with ControlClient.connect(one.record().socket) as client:
        assert client.show_branch("one").merged_into == ""
    (one.subtree("one") / "later").write_text("y")
    assert all("committed, more since" in line for line in said(one, "one"))
