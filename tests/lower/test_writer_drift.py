"""A commit into the lower while somebody else changes the lower: neither it nor an abort or resume overwrites theirs."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agentfs_host import syscalls
from agentfsd.domain_errors import Refusal
from agentfsd.lower.commit_plan import ABSENT, Adjust, Drifted, Put, Remove, Step
from tests.compare import differences
from tests.lower.commit_trees import exact
from tests.lower.workspaces import DIRECTORY, FILE, Workspace, attributes, die, put


def drift(workspace: Workspace, *steps: Step, during: Callable[[], object]) -> list[bytes]:
    """What is said to have drifted when *during* happens between staging and applying; all else must be undone."""
    commit = workspace.stage(*steps)
    during()
    after = exact(workspace.root)
    del after["."]
    with pytest.raises(Drifted) as caught:
        commit.apply()
    workspace.check_no_trace()
    now = exact(workspace.root)
    del now["."]
    assert differences(now, {name: what for name, what in after.items() if not name.startswith(".agentfs")}) == []
    return caught.value.paths


def test_a_target_that_changed_since_staging_is_drift(workspace: Workspace) -> None:
    file, root = workspace.root / "file", workspace.root
    others = [put("dir/new", expected=ABSENT), put("dir/sub/leaf"), Adjust(b"dir", attributes(DIRECTORY))]

    def check(step: Step, during: Callable[[], object]) -> None:
        assert drift(workspace, *others, step, during=during) == [step.path]

    check(put("file", expected=workspace.identity("file")), lambda: file.write_text("theirs"))
    check(put("file", expected=workspace.identity("file")), lambda: file.chmod(0o600))
    check(Adjust(b"file", attributes(), workspace.identity("file")), lambda: file.write_text("theirs again"))
    check(Remove(b"file", workspace.identity("file")), lambda: file.chmod(0o644))
    check(put("new", expected=ABSENT), lambda: (root / "new").write_text("theirs"))
    check(Put(b"file", attributes(DIRECTORY), expected=workspace.identity("file")), lambda: os.replace(root / "new", file))
    check(Remove(b"file", workspace.identity("file")), file.unlink)
    assert drift(workspace, put("dir/sub/leaf"), during=lambda: shutil.rmtree(root / "dir")) == [b"dir/sub/leaf"]


def test_a_target_that_is_not_as_expected_is_drift_before_anything_is_made(workspace: Workspace) -> None:
    before = exact(workspace.root)
    other = workspace.identity("file")._replace(mtime_ns=1)
    steps = [put("file", expected=other), put("dir/sub", expected=ABSENT), Remove(b"none", other), put("no/f"), put("fine")]
    with pytest.raises(Drifted) as caught:
        workspace.stage(*steps, Adjust(b"gone", attributes()), Adjust(b"dir", attributes()))
    assert sorted(caught.value.paths) == [b"dir", b"dir/sub", b"file", b"gone", b"no/f", b"none"]
    assert exact(workspace.root) == before
    workspace.check_no_trace()


@pytest.mark.parametrize("replaced", [True, False])
def test_who_changes_a_file_in_the_last_moment_gets_it_back(
    workspace: Workspace, replaced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, real = workspace.root / "file", syscalls.rename

    def rename(source_fd: int, source: bytes, target_fd: int, target: bytes, flags: int) -> None:
        if b"file" in (source, target) and file.exists() and file.read_text() == "old":
            file.write_text("theirs")
        real(source_fd, source, target_fd, target, flags)

    step = put("file", expected=workspace.identity("file")) if replaced else Remove(b"file", workspace.identity("file"))
    commit = workspace.stage(step)
    with monkeypatch.context() as patched:
        patched.setattr(syscalls, "rename", rename)
        with pytest.raises(Drifted):
            commit.apply()
    assert file.read_text() == "theirs"
    workspace.check_no_trace()


@pytest.mark.parametrize("exchange", [True, False])
def test_without_expectation_whatever_is_there_is_replaced(
    workspace: Workspace, exchange: bool, request: pytest.FixtureRequest
) -> None:
    if not exchange:
        request.getfixturevalue("no_exchange")
    commit = workspace.stage(put("new"), put("file"), Remove(b"dir"), put("gone"))
    (workspace.root / "new").write_text("theirs")
    (workspace.root / "file").unlink()
    shutil.rmtree(workspace.root / "dir")
    commit.apply()
    assert workspace.names() == ["file", "gone", "new"]
    assert (workspace.root / "new").read_text() == (workspace.root / "file").read_text() == "new"


def test_an_abort_overwrites_nobody(workspace: Workspace) -> None:
    """Two originals have no place to go back to: they wait in staging until there is one."""
    commit = workspace.stage(put("file"), Remove(b"dir/sub/leaf"), put("dir/new"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(syscalls, "sync_filesystem", die)
        with pytest.raises(KeyboardInterrupt):
            commit.apply()
    (workspace.root / "theirs").write_text("theirs")
    os.replace(workspace.root / "theirs", workspace.root / "file")
    (workspace.root / "dir" / "sub" / "leaf").write_text("theirs")
    for _ in range(2):
        with pytest.raises(Refusal) as caught:
            workspace.abort()
        assert caught.value.code == "in-the-way"
        assert caught.value.message.startswith("2 files")
        assert (workspace.root / "file").read_text() == (workspace.root / "dir" / "sub" / "leaf").read_text() == "theirs"
        assert not (workspace.root / "dir" / "new").exists()
    (workspace.root / "file").unlink()
    (workspace.root / "dir" / "sub" / "leaf").unlink()
    assert not workspace.abort()
    assert (workspace.root / "file").read_text() == "old"
    assert (workspace.root / "dir" / "sub" / "leaf").read_text() == "leaf"
    workspace.check_no_trace()


def interrupted(workspace: Workspace, *steps: Step) -> None:
    """A commit that was killed when all names had changed."""
    commit = workspace.stage(*steps)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(syscalls, "sync_filesystem", die)
        with pytest.raises(KeyboardInterrupt):
            commit.apply()


def read_all(workspace: Workspace) -> dict[str, str]:
    paths = [path for path in workspace.root.rglob("*") if path.is_file() and ".agentfs" not in path.parts]
    return {str(path.relative_to(workspace.root)): path.read_text() for path in paths}


@pytest.mark.parametrize("exchange", [True, False])
@pytest.mark.parametrize("drifted", ["file", "kept", "zone/new"])
def test_a_resume_that_finds_a_path_changed_changes_nothing(
    workspace: Workspace, exchange: bool, drifted: str, request: pytest.FixtureRequest
) -> None:
    if not exchange:
        request.getfixturevalue("no_exchange")
    for name in ("kept", "zone/old"):
        (workspace.root / name).parent.mkdir(exist_ok=True)
        (workspace.root / name).write_text("old")
    adjust = Adjust(b"kept", attributes(FILE | 0o111), workspace.identity("kept"))
    first = put("dir/sub/leaf", expected=workspace.identity("dir/sub/leaf"))
    later = [put("file", expected=workspace.identity("file"), rank=1), put("zone/new", expected=ABSENT, rank=1)]
    commit = workspace.stage(first, *later, put("zone/old", rank=1), adjust)
    with pytest.raises(KeyboardInterrupt):
        commit.apply(lambda done, *_: die(done))  # killed when the first directory was done
    append(workspace.root / "dir/sub/leaf")
    (workspace.root / drifted).write_text("theirs")
    before = read_all(workspace)
    assert (before["dir/sub/leaf"], before["zone/old"]) == ("newtheirs", "old")
    for _ in range(2):
        with pytest.raises(Drifted) as caught:
            workspace.resume()
        assert caught.value.paths == [drifted.encode()]
        assert read_all(workspace) == before
    if drifted == "zone/new":
        (workspace.root / drifted).unlink()
        assert workspace.resume()
        done = {"file": "new", "kept": "old", "zone/old": "new", "zone/new": "new", "dir/sub/leaf": "newtheirs"}
        assert read_all(workspace) == done
    else:
        with pytest.raises(Refusal, match="'dir/sub/leaf'"):
            workspace.abort()
        assert read_all(workspace) == before
        (workspace.root / "dir/sub/leaf").unlink()
        assert not workspace.abort()
        assert read_all(workspace) == before | {"dir/sub/leaf": "leaf"}
    workspace.check_no_trace()


def append(path: Path) -> None:
    with path.open("a") as file:
        file.write("theirs")


@pytest.mark.parametrize("exchange", [True, False])
@pytest.mark.parametrize(
    ("path", "edit"),
    [
        ("file", append),
        ("file", lambda path: os.truncate(path, 1)),
        ("file", lambda path: path.write_text("NEW")),
        ("dir/new", append),
        ("dir/sub/leaf", lambda path: path.write_text("theirs")),  # which the commit has removed
        ("made/in/side", lambda path: path.write_text("theirs")),
        ("made/in/theirs", lambda path: path.write_text("theirs")),
    ],
)
def test_an_abort_leaves_what_somebody_has_edited_since(
    workspace: Workspace, exchange: bool, path: str, edit: Callable[[Path], object], request: pytest.FixtureRequest
) -> None:
    if not exchange:
        request.getfixturevalue("no_exchange")
    tree = [Put(name.encode(), attributes(DIRECTORY)) for name in ("made", "made/in")]
    interrupted(workspace, put("file"), put("dir/new"), Remove(b"dir/sub/leaf"), *tree, put("made/in/side"))
    edited, moved = workspace.root / path, workspace.root / path.split("/in/")[0]
    time.sleep(0.01)  # the clock of the file system moves on
    edit(edited)
    content = edited.read_text()
    for _ in range(2):
        with pytest.raises(Refusal) as caught:
            workspace.abort()
        assert (caught.value.code, caught.value.message.split()[0]) == ("in-the-way", "1")
        assert str(moved.relative_to(workspace.root)) in caught.value.message
        assert edited.read_text() == content
    said = caught.value.hint.removeprefix("its original is ").partition(" in the lower")[0]
    if path in ("file", "dir/sub/leaf"):
        assert (workspace.root / said).read_text() == ("old" if path == "file" else "leaf")
    else:
        assert "no original" in caught.value.hint
    moved.rename(workspace.state.parent / "away")
    assert not workspace.abort()
    assert workspace.names() == ["dir", "dir/sub", "dir/sub/leaf", "file"]
    assert ((workspace.root / "file").read_text(), (workspace.root / "dir/sub/leaf").read_text()) == ("old", "leaf")
    workspace.check_no_trace()
