"""A file that a branch has a copy of, byte for byte the lower's, is no change of the branch, whoever asks."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mounted import Mounted

BIG = 3 << 20  # of larger files than 1 MiB the lower's content is not kept


@pytest.fixture
def project(make_mount: Callable[..., Mounted], tmp_path: Path) -> Mounted:
    """Branches `one` and `two`, made from main, of which `one` has copies of everything."""
    lower = tmp_path / "lower"
    (lower / "dir").mkdir(parents=True)
    for name in ("read", "dir/read", "changed"):
        (lower / name).write_text("".join(f"{number}\n" for number in range(20)))
    (lower / "big").write_bytes(os.urandom(BIG))
    mount = make_mount(lower)
    for branch in ("one", "two"):
        mount.cli("branch create", branch)
    for name in ("read", "dir/read", "changed", "big"):
        copy_up(mount.subtree("one") / name)
    return mount


def copy_up(path: Path) -> None:
    """Writes what is there already, and puts the times back."""
    before = path.stat()
    with path.open("r+b") as file:
        data = file.read(10)
        file.seek(0)
        file.write(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def statuses(mount: Mounted, *arguments: str) -> list[tuple[str, str]]:
    return [(change["status"], change["path"]) for change in mount.json("diff", *arguments)["changes"]]


def test_it_is_in_no_diff_and_no_patch_and_not_counted(project: Mounted) -> None:
    project.cli("snapshot create", "-b", "one", "first")
    with (project.subtree("one") / "changed").open("a") as file:
        file.write("more\n")
    assert statuses(project, "one") == [("M", "changed")]
    assert statuses(project, "main", "one") == [("M", "changed")]
    assert statuses(project, "first", "one") == [("M", "changed")]
    assert project.cli("diff", "one", "--patch").stdout.count("diff --git") == 1
    assert project.cli("diff", "one", "--stat").stdout.count("|") == 1

    project.cli("snapshot create", "-b", "one", "second")
    counts = [(found["file_count"], found["bytes_changed"]) for found in project.json("log", "one")]
    assert counts == [(1, (project.subtree("one") / "changed").stat().st_size), (0, 0)]
    branches = {found["name"]: found["changed"] for found in project.json("status")["branches"]}
    assert (branches["one"], branches["two"]) == (1, 0)


def test_it_is_in_no_commit(project: Mounted) -> None:
    before = (project.lower / "read").stat()
    assert project.json("commit", "one", "--dry-run")["changed"] == []
    (project.subtree("one") / "dir" / "new").write_text("new")
    assert [found["path"] for found in project.json("commit", "one")["changed"] if "new" not in found["path"]] in ([], ["dir"])
    after = (project.lower / "read").stat()
    assert (after.st_ino, after.st_ctime_ns) == (before.st_ino, before.st_ctime_ns)


def test_times_alone_are_committed_as_times(project: Mounted) -> None:
    before = (project.lower / "read").stat()
    os.utime(project.subtree("one") / "read", (1, 1))
    assert project.json("commit", "one")["changed"] == []  # as `diff` counts
    after = (project.lower / "read").stat()
    assert (after.st_ino, after.st_mtime) == (before.st_ino, 1)


def test_what_the_lower_made_of_it_is_not_taken_back(project: Mounted) -> None:
    for name in ("read", "dir/read", "changed", "big"):
        with (project.lower / name).open("a") as file:
            file.write("lower\n")
    with (project.subtree("one") / "changed").open("a") as file:
        file.write("branch\n")
    said = json.loads(project.cli("commit", "one", "--dry-run", "--json", check=False).stdout)
    assert [found["path"] for found in said["conflicts"]] == ["big", "changed"]
    (project.subtree("one") / "big").unlink()
    (project.subtree("one") / "changed").unlink()
    project.cli("commit", "one", "--force")
    for name in ("read", "dir/read"):
        assert (project.lower / name).read_bytes().endswith(b"lower\n")
    assert not (project.lower / "changed").exists()


def test_it_merges_with_whatever_the_other_branch_made_of_it(project: Mounted) -> None:
    with (project.lower / "dir" / "read").open("a") as file:
        file.write("lower\n")
    with (project.subtree("two") / "read").open("a") as file:
        file.write("two\n")
    with (project.subtree("two") / "dir" / "read").open("a") as file:
        file.write("two\n")
    said = project.json("merge", "one", "--into", "two")
    assert (said["conflicts"], said["changed"]) == ([], [])
    assert (project.subtree("two") / "dir" / "read").read_text().endswith("lower\ntwo\n")
    said = project.json("merge", "two", "--into", "one")
    assert said["conflicts"] == []
    for name in ("read", "dir/read"):
        assert (project.subtree("one") / name).read_text() == (project.subtree("two") / name).read_text()


def test_a_merge_that_could_take_all_of_it_does_not_bring_the_old_content_back(project: Mounted) -> None:
    (project.lower / "read").write_text("lower\n")
    (project.subtree("one") / "new").write_text("new\n")
    assert [found["path"] for found in project.json("merge", "one", "--into", "main")["changed"]] == ["new"]
    assert (project.path / "read").read_text() == "lower\n"
    assert (project.path / "new").read_text() == "new\n"


def test_it_is_no_change_in_git(project: Mounted, tmp_path: Path) -> None:
    project.cli("snapshot create", "-b", "two", "before")
    project.cli("snapshot create", "-b", "one", "after")
    for name in ("before", "after"):
        project.cli("export", "--git", str(tmp_path / "repo.git"), name)
    git = ["git", "--git-dir", str(tmp_path / "repo.git")]
    trees = {
        subprocess.run([*git, "rev-parse", f"refs/tags/{name}^{{tree}}"], capture_output=True, text=True, check=True).stdout
        for name in ("before", "after")
    }
    assert len(trees) == 1
