"""A branch as a file system, through a real mount and over the socket of the same daemon."""

import errno
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
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
from tests.mounted import AGENTFSD, Mounted, needs_fuse, needs_namespaces, needs_root

Open = Callable[..., BranchFilesystem]


@pytest.fixture(scope="module")
def base() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="agentfsd-branch-") as path:
        yield Path(path)


@pytest.fixture(scope="module")
def place(base: Path) -> Iterator[Mounted]:
    needs_fuse()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AGENTFS_RUNTIME_DIR", str(base / "run"))
        (base / "lower" / "sub" / "deep").mkdir(parents=True)
        (base / "lower" / "file").write_text("lower\n")
        (base / "lower" / "sub" / "inner").write_text("inner\n")
        (base / "lower" / "sub" / "deep" / "leaf").write_text("leaf\n")
        (base / "lower" / "link").symlink_to("file")
        (base / "lower" / "out").symlink_to("/etc")
        mounted = Mounted(base)
        try:
            yield mounted.mount()
        finally:
            mounted.end()


@pytest.fixture(autouse=True)
def _same_registry(_own_places: None, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTFS_RUNTIME_DIR", str(base / "run"))


@pytest.fixture(params=["mount", "socket"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


_numbers = iter(range(1000))


@pytest.fixture
def open_branch(place: Mounted, way: str) -> Iterator[Open]:
    """Opens a branch in the way that the test is about; a new one where none is named."""
    opened: list[BranchFilesystem] = []

    def make(branch: str = "", **options: object) -> BranchFilesystem:
        where = {"mount": place.path} if way == "mount" else {"socket": place.record().socket}
        name = branch or f"b{next(_numbers)}"
        made = BranchFilesystem(name, **where, create=not branch, **options)  # type: ignore[arg-type]
        opened.append(made)
        return made

    yield make
    for found in opened:
        found.close()


@pytest.fixture
def fs(open_branch: Open) -> BranchFilesystem:
    return open_branch()


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


def test_processes_in_the_branch_see_changes_at_once(fs: BranchFilesystem, place: Mounted) -> None:
    """They look before, so that the kernel has cached what was there, and what was not."""
    needs_namespaces()
    script = "while read path; do if [ -d $path ]; then ls $path | wc -l; else cat $path 2>/dev/null || echo none; fi; done"
    for view in ("namespace", "pid"):
        name = f"seen-{view}"
        process = place.start(fs.branch, "sh", "-c", script, view=view, stdin=-1, stdout=-1, bufsize=1)
        assert process.stdin is not None
        assert process.stdout is not None

        def ask(path: str, process: object = process) -> str:
            process.stdin.write(path + "\n")  # type: ignore[attr-defined]
            return str(process.stdout.readline().strip())  # type: ignore[attr-defined]

        assert [ask(name), ask("sub/inner"), ask("sub")] == ["none", "inner", "2"]
        fs.write(name, "there\n")
        fs.write("sub/inner", "new\n")
        fs.write("sub/third", "x")
        assert [ask(name), ask("sub/inner"), ask("sub")] == ["there", "new", "3"]
        fs.delete(name)
        fs.delete("sub/third")
        fs.write("sub/inner", "inner\n")
        assert [ask(name), ask("sub/inner"), ask("sub")] == ["none", "inner", "2"]
        process.stdin.close()
        assert process.wait(10) == 0


PAST_US = """
import os
fd = os.open("file", os.O_RDWR)
for line in iter(input, "end"):
    print(os.pread(fd, 100, 0).decode().strip(), flush=True)
    os.pwrite(fd, line.encode(), 0)
    print(os.pread(fd, 100, 0).decode().strip(), flush=True)
"""


@pytest.mark.parametrize("io", ["passthrough", "cached", "zero-message"])
def test_who_has_a_file_open_stays_with_it(place: Mounted, io: str) -> None:
    needs_root()
    needs_namespaces()
    branch = f"open-{io}"
    with BranchFilesystem(branch, socket=place.record().socket, create=True) as fs:
        fs.write("file", "first\n")
        command = [*AGENTFSD, "run", "-m", str(place.path), "-b", branch, "--io", io, "--", sys.executable, "-c", PAST_US]
        process = subprocess.Popen(command, cwd=place.path, text=True, bufsize=1, stdin=-1, stdout=-1)
        place.started.append(process)
        assert process.stdin is not None
        assert process.stdout is not None

        def ask(line: str) -> list[str]:
            process.stdin.write(line + "\n")  # type: ignore[union-attr]
            return [process.stdout.readline().strip() for _ in range(2)]  # type: ignore[union-attr]

        assert ask("FIR") == ["first", "FIRst"]
        fs.write("file", "over the socket")
        fs.write("file", ", and more", mode="append")
        assert ask("OVER") == ["over the socket, and more", "OVER the socket, and more"]
        assert fs.read("file").content == "OVER the socket, and more"
        process.stdin.write("end\n")
        assert process.wait(10) == 0


MAPPED = """
import mmap, os
fd = os.open("file", os.O_RDWR)
pages = mmap.mmap(fd, os.fstat(fd).st_size)
pages[8192:] = b"p" * (len(pages) - 8192)
for line in iter(input, "end"):
    pages[4096:4100] = line.encode()
    print(flush=True)
"""


@pytest.mark.parametrize("view", ["namespace", "pid"])
def test_what_was_written_through_a_mapping_does_not_come_after_what_replaced_it(place: Mounted, view: str) -> None:
    branch = f"mapped-{view}"
    with BranchFilesystem(branch, socket=place.record().socket, create=True) as fs:
        with fs.open_write("file") as writer:
            for _ in range(48 if view == "pid" else 1):  # more than the kernel writes back in an instant
                writer.write(bytes(1 << 20))
        process = place.start(branch, sys.executable, "-c", MAPPED, view=view, stdin=-1, stdout=-1, bufsize=1)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("page\n")
        process.stdout.readline()
        fs.write("file", "n" * 20_000_000)
        assert fs.read_bytes("file").content.count(b"n") == 20_000_000
        process.stdin.write("page\nend\n")
        assert process.wait(10) == 0
        assert fs.read("file").content[:8192] == "n" * 4096 + "page" + "n" * 4092


def test_threads_may_share_it(fs: BranchFilesystem) -> None:
    def read(name: str) -> None:
        found.extend(fs.read(name).content == name * 50_000 for _ in range(20))

    found: list[bool] = []
    for name in "abc":
        fs.write(name, name * 50_000)
    threads = [threading.Thread(target=read, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert found == [True] * 60


def test_a_forked_child_has_a_conversation_of_its_own(fs: BranchFilesystem, place: Mounted) -> None:
    fs.write("a", "a" * 500_000)
    with ControlClient.connect(place.record().socket) as daemon, fs.open_read("a") as reader:
        child = os.fork()
        if child == 0:
            failed = 1
            try:
                failed = fs.read("a").content != "a" * 500_000
                daemon.status()
                failed = 2
            except DaemonGoneError:
                pass
            finally:
                os._exit(failed)
        assert os.waitpid(child, 0)[1] == 0
        assert reader.read() == b"a" * 500_000
        assert daemon.status().pid == place.record().pid


REBOUND = """
import sys
from agentfs_files.backends.branch import BranchFilesystem
with BranchFilesystem(mount=sys.argv[1]) as fs:
    print(fs.branch, flush=True)
    input()
    try:
        fs.write("lost", "x")
    except PermissionError as exc:
        print(exc.code)
"""


def test_a_process_that_is_bound_anew_writes_to_no_other_branch(place: Mounted) -> None:
    with ControlClient.connect(place.record().socket) as daemon:
        for name in ("first", "second"):
            daemon.create_branch(name)
    process = place.start("first", sys.executable, "-c", REBOUND, str(place.path), stdin=-1, stdout=-1, bufsize=1)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.readline()
    with ControlClient.connect(place.record().socket) as daemon:
        for found in daemon.bindings():
            if found.branch == "first":
                daemon.bind(found.pid, "second")
    process.stdin.write("\n")
    assert process.stdout.readline() == "outside-branch\n"
    assert not (place.subtree("second") / "lost").exists()


STANDING = """
import os
os.chdir("dir")
print(flush=True)
for line in iter(input, "end"):
    try:
        print(os.getcwd(), flush=True)
    except OSError as exc:
        print(exc, flush=True)
"""


def test_a_directory_that_is_renamed_is_where_it_was_in_another_branch(place: Mounted) -> None:
    """Also for who stands in it, after somebody has looked up what took its place."""
    socket = place.record().socket
    with (
        BranchFilesystem("here", socket=socket, create=True) as here,
        BranchFilesystem("there", socket=socket, create=True) as there,
    ):
        here.mkdir("dir")
        there.mkdir("dir")
        process = place.start("there", sys.executable, "-c", STANDING, stdin=-1, stdout=-1, bufsize=1)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        place.run("here", "stat", "dir", view="pid")
        here.move("dir", "moved")
        here.mkdir("dir")
        place.run("here", "stat", "dir", view="pid")
        said, ends = "", time.monotonic() + 20
        while said != f"{place.path}/dir\n" and time.monotonic() < ends:
            process.stdin.write("\n")
            said = process.stdout.readline()
        assert said == f"{place.path}/dir\n"
        process.stdin.write("end\n")
        assert process.wait(10) == 0


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


BOUND = """
import os, sys
from agentfs_files.backends.branch import BranchFilesystem
where = {"mount": {}, "socket": {"socket": sys.argv[3]}}[sys.argv[1]]
with BranchFilesystem(**where) as fs:
    print(fs.branch, fs.is_mounted, fs.root == os.getcwd())
    fs.write("by-bound", "yes")
    first = fs.snapshot(tag="t")
    fs.delete("by-bound")
    fs.restore(first)
    print(fs.read("by-bound").content)
try:
    BranchFilesystem("main", **where)
except PermissionError as exc:
    print(exc.code)
try:
    BranchFilesystem(sys.argv[2] + "x", create=True, **where)
except OSError as exc:
    print(exc.code)
"""


@pytest.mark.parametrize("view", ["namespace", "pid"])
def test_a_bound_process_has_its_own_branch(fs: BranchFilesystem, place: Mounted, way: str, view: str) -> None:
    if view == "namespace":
        needs_namespaces()
    command = (sys.executable, "-c", BOUND, way, fs.branch, place.record().socket)
    said = place.run(fs.branch, *command, view=view).stdout.split("\n")
    through_mount = way == "mount" and view == "namespace"
    assert said[0] == f"{fs.branch} {through_mount} {through_mount}"
    assert said[1:4] == ["yes", "outside-branch", "outside-branch"]
    assert fs.read("by-bound").content == "yes"


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
