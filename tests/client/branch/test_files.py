"""A branch as a file system, through a real mount and over the socket of the same daemon."""

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from agentfs_client import locate
from agentfs_client.control import ControlClient, EventStream
from agentfs_client.errors import DaemonGoneError, InvalidRequestError, NotFoundError
from agentfs_files.backends import host
from agentfs_files.backends.branch import BranchFilesystem
from agentfs_files.backends.branch_records import uuid_of
from agentfs_files.filesystem.filesystem_errors import PathEscapeError, SnapshotIncompatibleError, SnapshotNotFoundError
from agentfs_files.filesystem.filesystem_protocol import DiffableFilesystem
from agentfs_files.filesystem.records import FilesystemSnapshot
from tests.mounted import Mounted

Open = Callable[..., BranchFilesystem]


def test_files_of_the_workspace_are_there(fs: BranchFilesystem, place: Mounted, way: str) -> None:
    assert isinstance(fs, DiffableFilesystem)
    assert fs.is_mounted == (way == "mount")
    assert fs.root == (str(place.path) if way == "mount" else "/")
    assert [(found.name, found.kind) for found in fs.list()] == [
        ("file", "file"), ("link", "file"), ("out", "other"), ("sub", "directory"),
    ]  # fmt: skip
    assert fs.read("sub/inner").content == "inner\n"
    assert fs.read("link").content == "lower\n"
    assert fs.stat("file").size_bytes == 6
    assert fs.stat("sub").is_directory
    assert [match.path for match in fs.glob("**/*")] == ["file", "link", "sub/deep/leaf", "sub/inner"]
    assert [(match.path, match.line_number) for match in fs.grep("^l")] == [("file", 1), ("link", 1), ("sub/deep/leaf", 1)]
    assert not fs.exists(".agentfs")


def test_what_is_written_is_the_branchs_alone(fs: BranchFilesystem, place: Mounted) -> None:
    fs.write("new/file", "new\n")
    fs.write("file", "mine\n")
    fs.write("file", "more\n", mode="append")
    fs.delete("sub", recursive=True)
    fs.mkdir("empty")
    subtree = place.subtree(fs.branch)
    assert (subtree / "file").read_text() == "mine\nmore\n"
    assert sorted(os.listdir(subtree)) == ["empty", "file", "link", "new", "out"]
    assert (place.path / "file").read_text() == "lower\n"
    assert (place.lower / "sub" / "inner").exists()


def test_writing_takes_effect_when_it_is_closed(fs: BranchFilesystem, place: Mounted) -> None:
    subtree = place.subtree(fs.branch)
    with fs.open_write("new") as writer:
        writer.write(b"x" * 3_000_000)
        assert not (subtree / "new").exists()
    assert (subtree / "new").stat().st_size == 3_000_000
    with fs.open_write("file") as writer:
        writer.write(b"other")
        assert (subtree / "file").read_text() == "lower\n"
    assert (subtree / "file").read_text() == "other"


def test_writing_that_fails_leaves_nothing(fs: BranchFilesystem, place: Mounted) -> None:
    def fail(path: str, mode: str) -> None:
        with fs.open_write(path, mode=mode) as writer:  # type: ignore[arg-type]
            writer.write(b"x" * 1_000_000)
            raise KeyError

    for path, mode in [("new", "overwrite"), ("file", "overwrite"), ("other", "create"), ("file", "append")]:
        with pytest.raises(KeyError):
            fail(path, mode)
    assert sorted(os.listdir(place.subtree(fs.branch))) == ["file", "link", "out", "sub"]
    assert fs.read("file").content == "lower\n"


def test_mode_and_links_stay_when_a_file_is_overwritten(fs: BranchFilesystem, place: Mounted) -> None:
    subtree = place.subtree(fs.branch)
    (subtree / "run.sh").write_text("old")
    (subtree / "run.sh").chmod(0o751)
    os.link(subtree / "run.sh", subtree / "second")
    before = time.time_ns() - 50_000_000
    fs.write("run.sh", "new")
    fs.write("link", "through the link")
    assert (subtree / "second").read_text() == "new"
    assert (subtree / "run.sh").stat().st_mode & 0o7777 == 0o751
    assert (subtree / "run.sh").stat().st_mtime_ns > before
    assert (subtree / "link").is_symlink()
    assert (subtree / "file").read_text() == "through the link"


def test_refusals_are_the_standard_exceptions(fs: BranchFilesystem, open_branch: Open) -> None:
    for act, kind in [
        (lambda: fs.read("missing"), FileNotFoundError),
        (lambda: fs.read("sub"), IsADirectoryError),
        (lambda: fs.list("file"), NotADirectoryError),
        (lambda: fs.stat("file/x"), NotADirectoryError),
        (lambda: fs.write("file", "", mode="create"), FileExistsError),
        (lambda: fs.write("no/where", "", create_parents=False), FileNotFoundError),
        (lambda: fs.mkdir("sub", exist_ok=False), FileExistsError),
        (lambda: fs.delete("sub"), IsADirectoryError),
        (lambda: fs.read("out/passwd"), PathEscapeError),
        (lambda: fs.write("out/new", ""), PathEscapeError),
        (lambda: fs.read("../x"), PathEscapeError),
        (lambda: fs.write(".agentfs/x", ""), PermissionError),
        (lambda: open_branch(fs.branch, read_only=True).write("x", ""), PermissionError),
        (lambda: open_branch("nowhere"), NotFoundError),
    ]:  # fmt: skip
        with pytest.raises(kind):
            act()
    assert fs.exists("sub/inner")


def test_absolute_symlinks_into_the_workspace_are_followed(fs: BranchFilesystem, place: Mounted) -> None:
    subtree = place.subtree(fs.branch)
    fs.write("file", "mine\n")
    (subtree / "sub" / "link").symlink_to("../file")
    for name, target in [
        ("to-file", place.path / "file"), ("to-lower", place.lower / "file"), ("to-root", place.path),
        ("sub/up", place.path / "sub"), ("to-new", place.path / "new"), ("around", f"{place.path}/sub/../../file"),
        ("beside", f"{place.path}-not/file"), ("control", place.path / ".agentfs" / "branches" / "main" / "file"),
        ("itself", place.path / "itself"),
    ]:  # fmt: skip
        (subtree / name).symlink_to(target)
    for path in ("to-file", "to-lower", "to-root/file", "sub/up/up/link"):
        assert fs.read(path).content == "mine\n"
    fs.write("to-new", "new\n")
    fs.write("to-lower", "more\n", mode="append")
    assert (fs.read("new").content, fs.read("file").content) == ("new\n", "mine\nmore\n")
    assert (place.lower / "file").read_text() == "lower\n"
    for path in ("around", "beside", "control", "itself"):
        with pytest.raises(OSError):
            fs.read(path)


def test_a_directory_is_deleted_by_one_request(fs: BranchFilesystem, place: Mounted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(host, "remove_directory")  # name by name through the mount
    subtree = place.subtree(fs.branch)
    assert os.listdir(subtree / "sub" / "deep") == ["leaf"]
    fs.delete("sub/deep", recursive=True)
    assert os.listdir(subtree / "sub") == ["inner"]
    for path in (".agentfs", "missing"):
        with pytest.raises((FileNotFoundError, PermissionError)):
            fs.delete(path, recursive=True)
    fs.delete("", recursive=True)
    assert (os.listdir(subtree), len(os.listdir(place.lower))) == ([], 4)


def test_one_of_several_mounts_is_asked_for_as_python_names_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    records = [SimpleNamespace(mountpoint=f"/mnt/{name}", lower=f"/srv/{name}") for name in "ab"]
    monkeypatch.setattr(locate, "live_daemons", lambda: records)
    monkeypatch.delenv(locate.MOUNT_VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        InvalidRequestError, match=r"in no workspace, and 2 are mounted; choose one with mount=: /mnt/a"
    ) as caught:
        BranchFilesystem("x")
    assert "-m" not in str(caught.value)
    assert caught.value.__notes__ == [f"hint: {caught.value.hint}"]


def test_errors_know_their_number(fs: BranchFilesystem) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        fs.stat("missing")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOENT, "missing")


def test_snapshot_restore_and_diff(fs: BranchFilesystem, open_branch: Open) -> None:
    fs.write("kept", "1")
    counting = open_branch(fs.branch, count_files=True)
    first = fs.snapshot(tag="before")
    assert (first.tag, first.backend, first.root_path, first.parent_id) == ("before", "branch", fs.root, None)
    assert fs.current_snapshot_id == first.snapshot_id == uuid_of(first.commit_ref)
    fs.write("file", "changed")
    fs.write("made/a", "a")
    fs.delete("sub/deep", recursive=True)
    diff = fs.diff(first)
    assert (diff.added, diff.modified, diff.deleted) == (("made/a",), ("file",), ("sub/deep/leaf",))
    assert (diff.unchanged_count, counting.diff(first).unchanged_count) == (0, 4)  # kept, link, out, sub/inner
    second = fs.snapshot()
    assert second.parent_id == first.snapshot_id
    fs.restore(first)
    assert fs.read("file").content == "lower\n"
    assert not fs.exists("made")
    assert fs.exists("sub/deep/leaf")
    assert fs.current_snapshot_id == first.snapshot_id
    assert fs.diff(first, second).added == ("made/a",)
    assert fs.diff(second, first).deleted == ("made/a",)
    again = open_branch(fs.branch)
    again.restore(again.find_snapshot(second.commit_ref))
    assert fs.read("made/a").content == "a"
    assert [found.snapshot_id for found in again.log()] == [second.snapshot_id, first.snapshot_id]
    again.delete_snapshot(second)
    with pytest.raises(SnapshotNotFoundError):
        again.restore(second)
    with pytest.raises(SnapshotIncompatibleError):
        again.diff(FilesystemSnapshot(first.snapshot_id, first.created_at, "mem-1", "/", backend="in_memory"))


def test_a_reader_keeps_its_file(fs: BranchFilesystem) -> None:
    content = os.urandom(2_000_000)
    fs.write_bytes("big", content)
    with fs.open_read("big") as reader:
        assert reader.read(10) == content[:10]
        fs.delete("big")
        assert reader.read() == content[10:]
        reader.seek(1_500_000)
        assert reader.read(7) == content[1_500_000:1_500_007]


def test_watchers_are_told(fs: BranchFilesystem, place: Mounted, way: str) -> None:
    with ControlClient.connect(place.record().socket, timeout_s=10).events(fs.branch) as events:
        fs.write("new", "1")
        fs.write("file", "2")
        fs.mkdir("dir")
        fs.delete("sub/deep", recursive=True)
        seen = told_until(events, "deleted sub/deep")
    if way == "socket":  # on the mount a file takes its name in several steps
        assert seen == ["created new", "modified file", "created dir", "deleted sub/deep/leaf", "deleted sub/deep"]
    else:
        assert {"created dir", "deleted sub/deep/leaf"} <= set(seen)


def told_until(events: EventStream, last: str) -> list[str]:
    seen: list[str] = []
    while last not in seen:
        event = next(events)
        assert event.pid == os.getpid()
        seen.append(f"{event.kind} {event.path}")
    return seen


def test_mount_is_found_by_itself(place: Mounted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.path / "sub")
    with BranchFilesystem() as fs:
        assert (fs.branch, fs.root) == ("main", str(place.path))
    monkeypatch.chdir("/")
    monkeypatch.setenv("AGENTFS_MOUNT", str(place.path))
    with BranchFilesystem(mount_point="/workspace") as fs:
        assert fs.read("/workspace/file").content == fs.read(f"{place.path}/file").content
    monkeypatch.setenv("AGENTFS_MOUNT", "/nowhere")
    with pytest.raises(NotFoundError):
        BranchFilesystem()
    with pytest.raises(ValueError, match="not both"):
        BranchFilesystem(mount="/", socket="/x")


def test_a_closed_one_says_so(fs: BranchFilesystem) -> None:
    fs.close()
    fs.close()
    with pytest.raises(ValueError, match="closed"):
        fs.read("file")


def test_discard_takes_the_branch_away(open_branch: Open, place: Mounted) -> None:
    gone = open_branch()
    gone.write("x", "x")
    other = open_branch(gone.branch)
    gone.discard(keep=False)
    assert gone.branch not in os.listdir(place.path / ".agentfs" / "branches")
    with pytest.raises((RuntimeError, NotFoundError)):
        other.read("x")


def test_a_restarted_daemon_is_found_again(open_branch: Open, place: Mounted) -> None:
    """Last of its kind: the daemon is killed."""
    fs = open_branch()
    fs.write("before", "1")
    writer = fs.open_write("half")
    writer.write(b"x" * 2_000_000)
    place.kill()
    for act in (
        lambda: fs.read("before"),
        lambda: fs.write("x", ""),
        lambda: fs.snapshot(),
        lambda: writer.write(b"x" * 999_999),
    ):
        with pytest.raises(RuntimeError) as caught:
            act()
        assert isinstance(caught.value, DaemonGoneError)
    with pytest.raises(RuntimeError):
        writer.close()
    place.mount()
    assert fs.read("before").content == "1"
    fs.write("after", "2")
    assert fs.snapshot().parent_id is None
    assert not fs.exists("half")
    assert place.fsck() == []
