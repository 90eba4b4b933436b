"""HostFilesystem never leaves its root, and never waits: symlinks, races, names that are no text, pipes, depth, numbers."""

import errno
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentfs_client.address import unix_address
from agentfs_files.backends.host import HostFilesystem
from agentfs_files.filesystem.filesystem_errors import PathEscapeError
from agentfs_host import syscalls
from tests.client.host_places import MANY_NAMES, check_large_directory, make_deep, open_descriptors
from tests.mounted import needs_root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with another directory beside it."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("outside")
    (tmp_path / "outside" / "only-outside").write_text("outside")
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture
def fs(root: Path) -> Iterator[HostFilesystem]:
    made = HostFilesystem(root)
    yield made
    made.close()


@pytest.fixture(params=["openat2", "name by name"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """As the kernel does it, and as it is done where openat2 is refused."""
    if request.param == "name by name":
        monkeypatch.setattr(syscalls, "_SYS_OPENAT2", 1 << 20)  # answers ENOSYS
    return str(request.param)


@pytest.mark.usefixtures("either_way")
def test_symlinks_that_lead_out_show_nothing(fs: HostFilesystem, root: Path) -> None:
    (root / "absolute").symlink_to(root.parent / "outside")
    (root / "relative").symlink_to("../outside")
    (root / "file").symlink_to("../outside/file")
    (root / "process").symlink_to("/proc/self/root")
    for path in ("absolute/file", "relative/file", "file", "process/etc/passwd"):
        assert not fs.exists(path)
        for operation in (fs.read, fs.stat, fs.open_read, fs.list, lambda path: fs.write(path, "")):
            with pytest.raises(OSError):
                operation(path)
    for path in ("absolute/new", "relative/a/b/new"):
        with pytest.raises(OSError):
            fs.write(path, "x")
        with pytest.raises(OSError):
            fs.mkdir(path)
    assert (fs.glob("**"), fs.glob("*/*"), fs.grep("outside|root")) == ([], [], ())
    assert [entry.kind for entry in fs.list()] == ["other"] * 4
    fs.delete(".", recursive=True)
    assert sorted(os.listdir(root.parent / "outside")) == ["file", "only-outside"]


def test_refusal_says_that_the_path_escapes(fs: HostFilesystem, root: Path) -> None:
    (root / "link").symlink_to("/etc")
    with pytest.raises(PathEscapeError, match=r"escapes root.*'link/passwd'"):
        fs.read("link/passwd")


def test_symlinks_within_the_root_are_followed(fs: HostFilesystem, root: Path) -> None:
    fs.write("src/deep/file.py", "needle")
    (root / "relative").symlink_to("src/deep")
    (root / "absolute").symlink_to(root / "src")
    (root / "src/up").symlink_to("../src/deep/file.py")
    for path in ("relative/file.py", "absolute/deep/file.py", "src/up", "absolute/up"):
        assert (fs.read(path).content, fs.stat(path).is_file, fs.read(path).path) == ("needle", True, path)
    assert [entry.path for entry in fs.list("absolute")] == ["absolute/deep", "absolute/up"]
    assert [match.path for match in fs.glob("**/*")] == ["src/deep/file.py", "src/up"]
    assert [match.path for match in fs.glob("absolute/**")] == ["absolute/deep/file.py", "absolute/up"]
    assert [match.path for match in fs.grep("needle", path="relative")] == ["relative/file.py"]
    fs.write("absolute/new/file", "x")
    assert fs.read("src/new/file").content == "x"
    fs.delete("relative", recursive=True)
    fs.delete("src/up")
    assert fs.exists("src/deep/file.py")


def test_root_may_be_reached_through_a_symlink(root: Path) -> None:
    (root.parent / "way").symlink_to(root)
    fs = HostFilesystem(root.parent / "way")
    fs.write("file", "x")
    (root / "link").symlink_to(root / "file")
    (root / "other").symlink_to(root.parent / "way" / "file")
    assert [fs.read(path).content for path in ("link", "other", f"{root.parent}/way/file")] == ["x"] * 3
    fs.write("other", "y")
    assert fs.read("file").content == "y"
    fs.close()


_SWAP = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
print("ready", flush=True)
while os.getppid() == int(sys.argv[1]):
    for place in (b"dir", b"top/dir"):
        link = place + b"-link"
        if libc.renameat2(-100, place, -100, link, 2):  # RENAME_EXCHANGE
            for make in (lambda: os.mkdir(place), lambda: os.symlink(sys.argv[2], link)):
                try:
                    make()
                except OSError:
                    pass
"""


@pytest.fixture
def swapper(root: Path) -> Iterator[None]:
    """Makes ``dir`` and ``top/dir`` symlinks that lead out, and directories again, all the time."""
    for place in ("dir", "top/dir"):
        (root / place).mkdir(parents=True)
        (root / f"{place}-link").symlink_to(root.parent / "outside")
    command = [sys.executable, "-c", _SWAP, str(os.getpid()), str(root.parent / "outside")]
    process = subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    yield
    assert process.poll() is None
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.mark.usefixtures("either_way", "swapper")
def test_directory_that_becomes_a_symlink_is_no_way_out(fs: HostFilesystem, root: Path) -> None:
    def write(path: str) -> None:
        fs.write(path, "inside")

    def read(path: str) -> None:
        assert fs.read(path).content in ("inside", "")  # appending nothing makes it where it had gone

    def look(path: str) -> None:
        assert "only-outside" not in {entry.name for entry in fs.list(path)}

    def search(path: str) -> None:
        assert not fs.glob("**/only-outside", path=path)
        assert not fs.glob(f"{path}/only-outside")
        assert not fs.grep("outside", path=path)

    def link(path: str) -> None:
        fs.write(f"{path}/a/b", "inside")
        fs.delete(f"{path}/a", recursive=True)

    steps: list[Callable[[], object]] = [
        lambda: write("dir/file"),
        lambda: read("dir/file"),
        lambda: fs.write("dir/file", "", mode="append"),
        lambda: look("dir"),
        lambda: search("dir"),
        lambda: fs.delete("dir/file"),
        lambda: fs.delete("dir/only-outside"),
        lambda: link("dir"),
        lambda: write("top/dir/file"),
        lambda: fs.delete("top/dir", recursive=True),
        lambda: fs.delete("top", recursive=True),
        lambda: fs.mkdir("top/dir"),
    ]
    before = open_descriptors()
    done = [0] * len(steps)
    start = time.monotonic()
    while (passed := time.monotonic() - start) < 0.6 or (passed < 10 and done.count(0) > 1):  # on a busy machine longer
        for number, step in enumerate(steps):
            try:
                step()
                done[number] += 1
            except OSError:
                pass
    outside = root.parent / "outside"
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"file": "outside", "only-outside": "outside"}
    assert open_descriptors() == before
    assert all(count for number, count in enumerate(done) if number != 6)
    assert done[6] == 0


def test_threads_that_make_the_same_directories(fs: HostFilesystem) -> None:
    failures: list[BaseException] = []
    start = threading.Barrier(4)

    def work(who: int) -> None:
        start.wait()
        try:
            for number in range(60):
                fs.mkdir(f"a{number}/b/c")
                fs.write(f"a{number}/d/e/{who}", "x")
        except OSError as exc:
            failures.append(exc)

    threads = [threading.Thread(target=work, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (failures, len(fs.glob("**"))) == ([], 240)


def test_names_that_are_no_text(fs: HostFilesystem, root: Path) -> None:
    raw = os.fsencode(root) + b"/d\xff"
    os.mkdir(raw)
    with open(raw + b"/\xfe.txt", "wb") as file:
        file.write(b"needle\n")
    (entry,) = fs.list()
    (inner,) = fs.list(entry.path)
    assert (entry.name, inner.path) == ("d\udcff", "d\udcff/\udcfe.txt")
    assert fs.read(inner.path).content == "needle\n"
    assert [match.path for match in fs.glob("**/*.txt")] == [match.path for match in fs.grep("needle")] == [inner.path]
    fs.write(f"{entry.path}/\udcfd", "x")
    fs.delete(inner.path)
    assert os.listdir(raw) == [b"\xfd"]
    assert not fs.exists("\ud800")


def test_what_is_no_file_never_blocks(fs: HostFilesystem, root: Path) -> None:
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as listener, unix_address(str(root / "socket")) as address:
        listener.bind(address)
    names = ["pipe", "socket"]
    if os.geteuid() == 0:
        os.mknod(root / "zero", 0o20666, os.makedev(1, 5))
        names.append("zero")
    fs.write("text", "needle")
    for name in names:
        assert (fs.stat(name).is_file, fs.stat(name).is_directory, fs.exists(name)) == (False, False, True)
        for operation in (
            fs.read,
            fs.read_bytes,
            fs.open_text,
            lambda name: fs.write(name, ""),
            lambda name: fs.open_write(name),
        ):
            with pytest.raises(OSError, match="neither file nor directory") as caught:
                operation(name)
            assert caught.value.errno == errno.EINVAL
        with pytest.raises(FileExistsError):
            fs.write(name, "", mode="create")
    assert [entry.name for entry in fs.list() if entry.kind == "other"] == names
    assert ([match.path for match in fs.glob("**")], [match.path for match in fs.grep("")]) == (["text"], ["text"])
    for name in names:
        fs.delete(name)
    assert os.listdir(root) == ["text"]


def test_file_that_becomes_a_pipe_does_not_block(fs: HostFilesystem, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fs.write("file", "x")
    found = fs.stat("file")
    os.unlink(root / "file")
    os.mkfifo(root / "file")
    monkeypatch.setattr(fs, "_stat", lambda path: found)
    before = open_descriptors()
    for operation in (fs.read, lambda path: fs.write(path, "")):
        with pytest.raises(OSError) as caught:
            operation("file")
        assert caught.value.errno in (errno.EINVAL, errno.ENXIO)
    assert open_descriptors() == before


@pytest.mark.parametrize("name", ["d", "a-longer-name"])  # less than a path may have, and several times more
def test_deep_trees(name: str) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        check_deep_tree(HostFilesystem(place), Path(place), name)


def check_deep_tree(fs: HostFilesystem, root: Path, name: str) -> None:
    make_deep(root, name, 1100)
    leaf = "/".join([name] * 1100) + "/leaf"
    assert [match.path for match in fs.glob("**")] == [leaf]
    assert [match.path for match in fs.glob("**/leaf")] == [match.path for match in fs.grep("needle")] == [leaf]
    assert (fs.read(leaf).content, fs.exists(f"{leaf}x"), len(fs.list(leaf.removesuffix("/leaf")))) == ("needle\n", False, 1)
    fs.write(leaf, "over")
    assert fs.stat(leaf).size_bytes == 4
    with pytest.raises(ValueError):
        fs.write(f"{leaf}-beside", "x")
    before = open_descriptors()
    fs.delete(name, recursive=True)
    assert (os.listdir(root), open_descriptors()) == ([], before)
    fs.close()


def test_large_directories() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        for name in MANY_NAMES:
            os.mknod(os.path.join(place, name))
        check_large_directory(HostFilesystem(place))


def test_times_that_no_calendar_has(fs: HostFilesystem, root: Path) -> None:
    fs.write("file", "x")
    assert fs.stat("file").modified_at is not None
    os.utime(root / "file", ns=(0, 400_000_000_000 * 10**9))
    if (root / "file").stat().st_mtime > 3e11:  # the disk keeps it
        assert fs.stat("file").modified_at is None


def test_birth_of_a_file_stays(fs: HostFilesystem, root: Path) -> None:
    fs.write("file", "x", mode="append")
    born = fs.stat("file").created_at
    os.utime(root / "file", (1, 1))
    found = fs.stat("file")
    assert found.created_at == born
    assert found.modified_at is not None
    assert found.modified_at.year == 1970


def test_mount_inside_the_root_is_part_of_it(fs: HostFilesystem, root: Path) -> None:
    needs_root()
    fs.mkdir("mounted")
    subprocess.run(["mount", "-t", "tmpfs", "none", str(root / "mounted")], check=True)
    try:
        fs.write("mounted/dir/file", "x")
        fs.write("mounted/dir/file", "y")
        assert [match.path for match in fs.grep("y")] == ["mounted/dir/file"]
        with pytest.raises(OSError):
            fs.delete("mounted", recursive=True)
    finally:
        subprocess.run(["umount", str(root / "mounted")], check=True)


def test_file_system_that_has_been_closed_says_so(root: Path) -> None:
    fs = HostFilesystem(root)
    fs.close()
    fs.close()
    for operation in (fs.read, fs.list, fs.exists, lambda path: fs.write(path, "")):
        with pytest.raises(RuntimeError, match="closed"):
            operation("file")


def test_root_must_be_a_directory(root: Path) -> None:
    (root / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        HostFilesystem(root / "file")
    with pytest.raises(FileNotFoundError):
        HostFilesystem(root / "missing")
    with pytest.raises(TypeError, match="directory"):
        HostFilesystem()


def test_root_that_is_removed(root: Path) -> None:
    fs = HostFilesystem(root)
    root.rmdir()
    assert not fs.exists("file")
    for operation in (fs.read, lambda path: fs.write(path, ""), fs.mkdir):
        with pytest.raises(FileNotFoundError):
            operation("file")
    fs.close()
