"""Branches with a frozen base in the hands of people who mix them with others, and when something goes wrong."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.test_frozen import LINES, build, change_lower
from tests.mounted import AGENTFSD, Mounted


@pytest.fixture
def project(make_mount: Callable[..., Mounted], tmp_path: Path) -> Mounted:
    return make_mount(build(tmp_path / "lower"))


def test_paths_come_back_from_a_snapshot_on_another_base(project: Mounted) -> None:
    """What the branch never changed, but the rebase brought, is taken back, too."""
    project.cli("branch create", "fix", "--frozen")
    project.cli("snapshot create", "-b", "fix", "before")
    change_lower(project.lower)
    (project.lower / "moved" / "more").write_text("more\n")
    project.cli("rebase", "fix")
    for branch in ("fix", "main"):
        project.cli("restore", "-b", branch, "before", "other", "dir", "moved")
        assert project.sh(branch, "cat other dir/inner; ls") == f"{LINES}{LINES}added\ndir\nother\ntext\n"
        project.cli("undo")
        assert project.sh(branch, "cat other; ls") == "fresh\nadded\nmoved\nother\ntext\n"
    project.cli("restore", "-b", "fix", "before", "other")
    project.cli("commit", "fix")
    assert (project.lower / "other").read_text() == LINES


def test_a_rule_keeps_what_another_base_has(project: Mounted) -> None:
    project.cli("branch create", "fix", "--frozen")
    project.cli("snapshot create", "-b", "fix", "before")
    (project.lower / "other").write_text("changed\n")
    project.cli("rebase", "fix")
    project.cli("rules add", "-b", "fix", "ro other")
    refused = project.run("fix", *AGENTFSD, "restore", "before", check=False)
    assert "a rule keeps you from changing 'other'" in refused.stderr
    assert project.sh("fix", "cat other") == "changed\n"


def test_a_deep_tree_that_the_base_does_not_have_is_committed(project: Mounted) -> None:
    project.cli("branch create", "fix", "--frozen")
    deep = "/".join(["d"] * 360)
    project.sh("fix", f"mkdir -p {deep}; echo 1 > {deep}/file")
    project.cli("commit", "fix")
    assert (project.lower / deep / "file").read_text() == "1\n"
    project.sh("fix", f"echo 2 > {deep}/file")
    project.cli("commit", "fix")
    assert (project.lower / deep / "file").read_text() == "2\n"
    assert project.json("diff", "fix")["changes"] == []
