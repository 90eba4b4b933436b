"""fsspec over file systems: its own test suites, in memory and in a branch of a real mount, and what those do not ask."""

import gzip
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import pytest
from fsspec.tests.abstract import (
    AbstractCopyTests,
    AbstractFixtures,
    AbstractGetTests,
    AbstractOpenTests,
    AbstractPipeTests,
    AbstractPutTests,
)
from upath import UPath

from agentfs_files.backends.host import HostFilesystem
from agentfs_files.backends.in_memory import InMemoryFilesystem
from agentfs_files.filesystem.size_limits import Limits
from agentfs_files.integrations.fsspec import AgentFSFileSystem
from tests.mounted import Mounted, needs_fuse
from tests.rounds import is_long


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounted]:
    needs_fuse()
    with pytest.MonkeyPatch.context() as environment:
        base = tmp_path_factory.mktemp("fsspec")
        for name in ("AGENTFS_STATE_HOME", "AGENTFS_RUNTIME_DIR"):
            environment.setenv(name, str(base / name))
        mounted = Mounted(base).mount()
        mounted.cli("branch create", "b")
        yield mounted
        mounted.end()


@pytest.fixture(scope="module")
def branches(daemon: Mounted) -> Iterator[AgentFSFileSystem]:
    made = fsspec.filesystem("agentfs", mount=str(daemon.path))
    yield made
    made.close()
    AgentFSFileSystem.clear_instance_cache()


@pytest.fixture
def memory() -> AgentFSFileSystem:
    return AgentFSFileSystem(filesystem=InMemoryFilesystem())


class Memory(AbstractFixtures):
    @pytest.fixture
    def fs(self, memory: AgentFSFileSystem) -> AgentFSFileSystem:
        return memory

    @pytest.fixture
    def fs_path(self) -> str:
        return "/"


class Branch(AbstractFixtures):
    @pytest.fixture
    def fs(self, branches: AgentFSFileSystem) -> AgentFSFileSystem:
        return branches

    @pytest.fixture
    def fs_path(self) -> str:
        return "/b"


class Suites(AbstractCopyTests, AbstractGetTests, AbstractPutTests, AbstractOpenTests, AbstractPipeTests):
    pass


class TestMemory(Suites, Memory):
    pass


class TestBranch(Suites, Branch):
    if not is_long():  # patterns are the same whatever is below; there are sixty of these
        test_copy_glob_edge_cases = test_get_glob_edge_cases = test_put_glob_edge_cases = None


# -- branches by URL


def test_urls_name_branch_and_path(daemon: Mounted, branches: AgentFSFileSystem) -> None:
    options = {"mount": str(daemon.path)}
    with fsspec.open("agentfs://b/dir/file.txt", "w", **options) as file:
        file.write("hello")
    assert (daemon.subtree("b") / "dir" / "file.txt").read_text() == "hello"
    assert fsspec.url_to_fs("agentfs://b/dir/file.txt", **options) == (branches, "/b/dir/file.txt")
    assert branches.unstrip_protocol("/b/dir/file.txt") == "agentfs://b/dir/file.txt"
    assert branches.ls("agentfs://b/dir", detail=False) == ["/b/dir/file.txt"]
    branches.rm("/b/dir", recursive=True)


def test_the_root_holds_the_branches(daemon: Mounted, branches: AgentFSFileSystem) -> None:
    daemon.cli("branch create", "a")
    for name in ("a", "b"):
        branches.pipe(f"/{name}/result.txt", name.encode())
    assert branches.ls("/", detail=False) == ["/a", "/b", "/main"]
    assert {info["type"] for info in branches.ls("/")} == {branches.info("/")["type"]} == {"directory"}
    with fsspec.open_files("agentfs://*/result.txt", mount=str(daemon.path)) as files:
        assert [file.read() for file in files] == [b"a", b"b"]
    branches.cp("agentfs://a/result.txt", "agentfs://b/copy.txt")
    assert (daemon.subtree("b") / "copy.txt").read_text() == "a"
    with pytest.raises(IsADirectoryError, match="the root holds the branches"):
        branches.rm("/", recursive=True)
    branches.rm(["/b/copy.txt", "/b/result.txt"])


def test_a_branch_that_is_not_there_is_made_when_that_is_asked_for(daemon: Mounted, branches: AgentFSFileSystem) -> None:
    assert not branches.exists("agentfs://new")
    with pytest.raises(FileNotFoundError, match="new"):
        branches.pipe("agentfs://new/file", b"content")
    making = fsspec.filesystem("agentfs", socket=daemon.record().socket, create=True)
    making.pipe("agentfs://new/file", b"content")
    assert branches.cat("agentfs://new/file") == b"content"
    making.close()


def test_a_child_that_was_forked_has_conversations_of_its_own(daemon: Mounted) -> None:
    code = """if True:
        import fsspec, os, sys
        fs = fsspec.filesystem("agentfs", socket=sys.argv[1])
        fs.pipe({"/b/parent": b"p" * 2_000_000, "/b/child": b"c" * 2_000_000})
        child = os.fork()
        name = "parent" if child else "child"
        for _ in range(20):
            assert fs.cat(f"/b/{name}") == name[0].encode() * 2_000_000
        if child:
            assert os.waitpid(child, 0)[1] == 0
            fs.rm(["/b/parent", "/b/child"])
    """
    subprocess.run([sys.executable, "-c", code, daemon.record().socket], check=True, timeout=60)


def test_an_instance_can_be_pickled(branches: AgentFSFileSystem) -> None:
    branches.pipe("/b/file", b"content")
    with branches.open("/b/file") as file:
        assert file.read(3) == b"con"
        with pickle.loads(pickle.dumps(file)) as again:
            assert again.read() == b"tent"
    assert pickle.loads(pickle.dumps(branches)) is branches
    branches.rm("/b/file")


# -- what the suites do not ask


def test_each_file_system_has_an_instance_of_its_own() -> None:
    class Same(InMemoryFilesystem):
        def __repr__(self) -> str:
            return "one of many"

    one, two = (AgentFSFileSystem(filesystem=Same()) for _ in range(2))
    one.pipe("/file", b"")
    assert not two.exists("/file")
    with pytest.raises(ValueError, match="give either"):
        AgentFSFileSystem(filesystem=Same(), mount="/mnt")


@pytest.mark.parametrize("cache_type", ["readahead", "blockcache", "bytes", "none", "all"])
def test_files_are_read_anywhere(memory: AgentFSFileSystem, cache_type: str) -> None:
    content = os.urandom(300_000)
    memory.pipe("/file", content)
    with memory.open("/file", block_size=10_000, cache_type=cache_type) as file:
        for start, size in ((0, 10), (250_000, 100_000), (5, 20_000), (299_999, 5), (300_000, 1)):
            assert file.seek(start) == start
            assert file.read(size) == content[start : start + size]
        assert file.seek(-7, 2) == 299_993
        assert (file.read(), file.size) == (content[-7:], 300_000)
    assert memory.cat_file("/file", -10, -5) == content[-10:-5]
    assert memory.cat_ranges(["/file"] * 2, [0, 7], [3, 7]) == [content[:3], b""]
    assert (memory.head("/file", 5), memory.tail("/file", 5)) == (content[:5], content[-5:])


def test_files_are_written_in_pieces_and_appended_to(memory: AgentFSFileSystem) -> None:
    pieces = [os.urandom(7_000) for _ in range(10)]
    with memory.open("/dir/file", "wb", block_size=10_000) as file:
        for piece in pieces:
            file.write(piece)
        assert file.tell() == 70_000
        assert not memory.exists("/dir/file")
    with memory.open("/dir/file", "ab") as file:
        assert file.tell() == 70_000
        file.write(b"the end")
    assert memory.cat("/dir/file") == b"".join(pieces) + b"the end"
    with memory.open("/log", "a", encoding="utf-8") as text:
        text.write("é\n")
    assert memory.read_text("/log", encoding="utf-8") == "é\n"
    with gzip.open(memory.open("/z", "wb"), "wb") as packed:
        packed.write(b"packed")
    with pytest.raises(ValueError, match="none of rb, wb, ab, xb"):
        memory.open("/log", "r+b")


@pytest.mark.parametrize("mode", ["w", "wb", "ab"])
def test_an_exception_leaves_the_file_as_it_was(memory: AgentFSFileSystem, mode: str) -> None:
    memory.pipe("/file", b"old")
    with pytest.raises(ZeroDivisionError), memory.open("/file", mode) as file:
        file.write("new" if mode == "w" else b"new")
        raise ZeroDivisionError
    assert memory.cat("/file") == b"old"


def test_a_transaction_takes_effect_at_its_end_or_not_at_all(memory: AgentFSFileSystem) -> None:
    memory.pipe("/a", b"old")
    with memory.transaction:
        memory.pipe("/a", b"new")
        with memory.open("/b", "wb") as file:
            file.write(b"new")
        assert (memory.cat("/a"), memory.exists("/b")) == (b"old", False)
    assert (memory.cat("/a"), memory.cat("/b")) == (b"new", b"new")
    with pytest.raises(ZeroDivisionError), memory.transaction:
        memory.pipe("/a", b"newer")
        raise ZeroDivisionError
    assert memory.cat("/a") == b"new"
    with pytest.raises(FileExistsError), memory.transaction:
        memory.pipe("/a", b"exclusive", mode="create")


def test_errors_are_typed(memory: AgentFSFileSystem) -> None:
    memory.pipe("/dir/file", b"")
    for kind, act in (
        (FileNotFoundError, lambda: memory.cat("/missing")),
        (FileNotFoundError, lambda: memory.ls("/missing")),
        (FileNotFoundError, lambda: memory.rm("/missing")),
        (FileNotFoundError, lambda: memory.mkdir("/no/parent", create_parents=False)),
        (IsADirectoryError, lambda: memory.open("/dir")),
        (IsADirectoryError, lambda: memory.open("/dir", "wb")),
        (IsADirectoryError, lambda: memory.rm_file("/dir")),
        (IsADirectoryError, lambda: memory.rm("/dir")),
        (NotADirectoryError, lambda: memory.rmdir("/dir/file")),
        (NotADirectoryError, lambda: memory.pipe("/dir/file/below", b"")),
        (FileExistsError, lambda: memory.mkdir("/dir")),
        (FileExistsError, lambda: memory.makedirs("/dir/file", exist_ok=True)),
        (FileExistsError, lambda: memory.open("/dir/file", "xb")),
        (PermissionError, lambda: memory.open("/../outside", "wb")),
        (ValueError, lambda: memory.pipe("/d" * 2049, b"")),
        (ValueError, lambda: memory.pipe("/" + "x" * 256, b"")),
    ):
        with pytest.raises(kind):
            act()
    with pytest.raises(OSError, match="not empty"):
        memory.rmdir("/dir")
    read_only = AgentFSFileSystem(filesystem=InMemoryFilesystem({"file": ""}, read_only=True))
    with pytest.raises(PermissionError):
        read_only.pipe("/file", b"")


def test_times_and_what_is_made_of_them(memory: AgentFSFileSystem, tmp_path: Path) -> None:
    memory.pipe("/file", b"one")
    seen = memory.ukey("/file"), memory.checksum("/file")
    assert memory.modified("/file") == memory.created("/file")
    memory.pipe("/file", b"two")
    assert memory.modified("/file") > memory.created("/file")
    assert {memory.ukey("/file"), memory.checksum("/file")}.isdisjoint(seen)
    assert memory.ls("/", detail=True) == [memory.info("/file")]
    assert memory.info("/file")["mtime"] == memory.modified("/file").timestamp()


def test_directories_move_with_what_is_in_them(memory: AgentFSFileSystem) -> None:
    memory.pipe({"/dir/a": b"1", "/dir/sub/b": b"2"})
    memory.mkdir("/dir/empty")
    memory.mv("/dir", "/moved")
    assert memory.find("/", withdirs=True) == ["/", "/moved", "/moved/a", "/moved/empty", "/moved/sub", "/moved/sub/b"]
    with pytest.raises(ValueError, match="as a whole"):
        memory.mv("/moved", "/again", maxdepth=1)


def test_symlinks_are_not_walked_into(tmp_path: Path) -> None:
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir" / "file").touch()
    (tmp_path / "dir" / "up").symlink_to("..")
    (tmp_path / "nowhere").symlink_to("missing")
    host = AgentFSFileSystem(filesystem=HostFilesystem(tmp_path))
    assert host.find("/") == ["/dir/file", "/nowhere"]
    assert host.glob("/**/up") == ["/dir/up"]
    assert host.find("/dir/up") == host.find("/dir/up/") == ["/dir/up/dir/file", "/dir/up/nowhere"]
    assert host.info("/dir/up")["type"] == "directory"
    host.rm("/dir/up")
    host.rm_file("/nowhere")
    assert host.find("/", withdirs=True) == ["/", "/dir", "/dir/file"]


def test_threads_may_share_an_instance(daemon: Mounted) -> None:
    shared = fsspec.filesystem("agentfs", socket=daemon.record().socket)

    def work(number: int) -> bool:
        content = bytes([number]) * 100_000
        for _ in range(5):
            shared.pipe(f"/b/threads/{number}", content)
            with shared.open(f"/b/threads/{number}", block_size=10_000) as file:
                if b"".join(iter(lambda: file.read(10_000), b"")) != content:
                    return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))
    shared.rm("/b/threads", recursive=True)
    shared.close()


def test_pathlib_by_upath(daemon: Mounted) -> None:
    root = UPath("agentfs://b/of-upath", mount=str(daemon.path))
    (root / "src").mkdir(parents=True)
    (root / "src" / "main.py").write_text("print()\n")
    assert (daemon.subtree("b") / "of-upath" / "src" / "main.py").read_text() == "print()\n"
    assert [str(path) for path in root.glob("**/*.py")] == ["agentfs://b/of-upath/src/main.py"]
    path = next((root / "src").iterdir())
    assert (path.name, path.suffix, path.stat().st_size, path.parent) == ("main.py", ".py", 8, root / "src")
    with path.open("a") as file:
        file.write("exit()\n")
    assert path.read_bytes() == b"print()\nexit()\n"
    path.rename(root / "moved.py")
    assert not path.exists()
    (root / "moved.py").unlink()
    (root / "src").rmdir()
    assert list(root.iterdir()) == []


def test_branches_have_names_as_long_as_linux_allows(daemon: Mounted) -> None:
    made = fsspec.filesystem("agentfs", mount=str(daemon.path), create=True)
    made.pipe_file(f"/long/{'n' * 250}", b"x")
    with pytest.raises(ValueError, match="exceeds limit of 80"):
        fsspec.filesystem("agentfs", mount=str(daemon.path), limits=Limits()).pipe_file(f"/long/{'m' * 250}", b"x")
