"""Branches with a frozen base in the hands of people who mix them with others, and when something goes wrong."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.test_frozen import LINES, build, change_lower
from tests.mounted import AGENTFSD, Mounted, agentfsd


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


def test_fsck_names_what_a_base_has_lost_and_who_needs_it(project: Mounted) -> None:
    project.cli("branch create", "fix", "--frozen")
    project.cli("branch create", "two", "--from", "fix")
    project.sh("fix", "echo 1 > one")
    assert project.fsck() == []
    (base,) = (project.state / "bases").iterdir()
    (base / "tree/dir/inner").unlink()
    (base / "tree/other").write_text("1\n")
    found = sorted(project.fsck())
    assert [line.split(": ")[0] for line in found] == ["branch fix, branch two"] * 2
    assert "'dir/inner' is missing" in found[0]
    assert "'other' is missing or cut off" in found[1]
    assert "Input/output error" in project.run("fix", "cat", "dir/inner", check=False).stderr
    project.kill()
    base.rename(project.state / "away")
    project.mount()
    (lost,) = project.fsck()
    assert lost.startswith("branch fix, branch two: there is no frozen base named")
    assert "shows again when it is back there" in project.cli("commit", "fix", check=False).stderr
    (project.state / "away").rename(base)
    assert project.sh("fix", "cat one text") == f"1\n{LINES}"


def test_a_name_that_is_taken_is_refused_before_anything_is_frozen(project: Mounted) -> None:
    project.cli("branch create", "fix", "--frozen")
    bases = sorted((project.state / "bases").iterdir())
    refused = project.cli("branch create", "fix", "--frozen", check=False)
    assert "there is a branch named 'fix' already" in refused.stderr
    assert sorted((project.state / "bases").iterdir()) == bases


def test_a_mount_whose_base_is_lost_says_so(make_mount: Callable[..., Mounted], tmp_path: Path) -> None:
    project = make_mount(build(tmp_path / "lower"), "--base", "frozen")
    project.sh("main", "echo 1 > one")
    agentfsd("umount", str(project.path))
    (base,) = (project.state / "bases").iterdir()
    base.rename(project.state / "away")
    command = ("mount", str(project.lower), str(project.path), "--state", str(project.state))
    refused = agentfsd(*command, check=False)
    assert refused.returncode == 1
    assert f"there is no frozen base named '{base.name}'" in refused.stderr
    assert f"it lay in {base}" in refused.stderr
    (project.state / "away").rename(base)
    project.mount()
    assert project.sh("main", "cat one text") == f"1\n{LINES}"


def test_commits_that_only_another_base_has_ask_for_a_rebase(project: Mounted) -> None:
    def git(*arguments: str) -> None:
        subprocess.run(["git", "-C", str(project.lower), "-c", "user.name=n", "-c", "user.email=n@e", *arguments], check=True)

    git("init", "-q", "-b", "trunk")
    git("add", "-A")
    git("commit", "-qm", "first")
    project.cli("branch create", "fix", "--frozen")
    (project.lower / "text").write_text(LINES + "person\n")
    git("commit", "-qam", "person")
    project.cli("branch create", "newer", "--frozen")
    commit = "git -c user.name=n -c user.email=n@e commit -qam mine"
    for source in ("newer", "main"):
        project.sh(source, f"echo {source} >> other; {commit}")
        refused = project.cli("merge", source, "fix", check=False)
        assert "`agentfsd rebase fix` first" in refused.stdout, refused.stdout
    project.cli("rebase", "fix")
    project.cli("merge", "newer", "fix")
    assert project.sh("fix", "git log --format=%s; git status --porcelain; git fsck --strict") == "mine\nperson\nfirst\n"
