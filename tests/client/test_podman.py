"""File systems in containers, against a real podman. One service and one container of each shell serve all tests."""

import errno
import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentfs_files.backends.minimal import ContainerBackend, InMemoryBackend
from agentfs_files.backends.podman import PodmanFilesystem, find_container
from agentfs_files.filesystem.filesystem_errors import (
    PathEscapeError,
    SnapshotCreationError,
    SnapshotIncompatibleError,
    SnapshotNotFoundError,
)
from tests.containers import IMAGE, PATHS, PodmanService, podman_service, within
from tests.rounds import is_long

HOSTILE = [
    "it's",
    'say "hi"',
    "$(touch x)",
    "`touch x`",
    "$nl",
    "-rf",
    "--",
    "two\nlines\n",
    " ",
    "\\n",
    "*",
    "a;b",
    "\udcff\udcfe",
    "ä€",
    "@0 0 0 x",
]


@pytest.fixture(scope="module")
def service() -> Iterator[PodmanService]:
    with podman_service() as service:
        yield service


@pytest.fixture(scope="module", params=sorted(PATHS) if is_long() else ["busybox", "dash"])
def every_shell(request: pytest.FixtureRequest, service: PodmanService) -> Iterator[PodmanFilesystem]:
    with service.client() as client:
        container = service.run(client, request.param)
        with PodmanFilesystem(container) as filesystem:
            yield filesystem
        container.remove(force=True)


@pytest.fixture(scope="module")
def busybox(service: PodmanService) -> Iterator[PodmanFilesystem]:
    with service.client() as client:
        container = service.run(client)
        with PodmanFilesystem(container) as filesystem:
            yield filesystem
        container.remove(force=True)


@pytest.fixture
def anywhere(every_shell: PodmanFilesystem) -> PodmanFilesystem:
    every_shell.delete(".", recursive=True)
    return every_shell


@pytest.fixture
def files(busybox: PodmanFilesystem) -> PodmanFilesystem:
    busybox.delete(".", recursive=True)
    return busybox


def inside(filesystem: PodmanFilesystem, command: str) -> str:
    code, output = filesystem._container.exec_run(["sh", "-c", command], workdir="/workspace", demux=True)
    assert code == 0, output
    return (output[0] or b"").decode()


def test_what_is_written_is_there_for_the_container_and_the_other_way_round(anywhere: PodmanFilesystem) -> None:
    anywhere.write("src/a.txt", "one\n")
    anywhere.write("src/a.txt", "two\n", mode="append")
    assert inside(anywhere, "cat src/a.txt") == "one\ntwo\n"
    inside(anywhere, "mkdir made; echo three > made/b.txt")
    assert anywhere.read("/workspace/made/b.txt").content == "three\n"
    assert [(e.path, e.kind, e.size_bytes) for e in anywhere.list()] == [("made", "directory", None), ("src", "directory", None)]
    found = anywhere.stat("src/a.txt")
    assert (found.is_file, found.size_bytes) == (True, 8)
    assert found.modified_at is not None


def test_modes_of_writing(anywhere: PodmanFilesystem) -> None:
    anywhere.write("new", "x", mode="create")
    with pytest.raises(FileExistsError):
        anywhere.write("new", "y", mode="create")
    anywhere.write("new", "")
    assert anywhere.read_bytes("new").content == b""
    anywhere.write("other", "z", mode="append")
    assert anywhere.read("other").content == "z"
    with pytest.raises(RuntimeError, match="stop here"), anywhere.open_write("new") as writer:
        writer.write(b"never")
        raise RuntimeError("stop here")
    assert anywhere.read_bytes("new").content == b""
    assert [entry.name for entry in anywhere.list()] == ["new", "other"]


def test_names_are_only_names(anywhere: PodmanFilesystem) -> None:
    for name in HOSTILE:
        anywhere.write_bytes(f"{name}/{name}", name.encode(errors="surrogateescape"))
    assert [entry.name for entry in anywhere.list()] == sorted(HOSTILE)
    for name in HOSTILE:
        path = f"{name}/{name}"
        assert anywhere.read_bytes(path).content == os.fsencode(name)
        assert [entry.path for entry in anywhere.list(name)] == [path]
    assert [match.path for match in anywhere.glob("**")] == sorted(f"{name}/{name}" for name in HOSTILE)
    assert {match.path for match in anywhere.grep("[^x]")} == {f"{n}/{n}" for n in HOSTILE if "\udcff" not in n}
    for name in HOSTILE:
        anywhere.delete(f"{name}/{name}")
        anywhere.delete(name)
    assert anywhere.list() == []


def test_no_symlink_leads_out(anywhere: PodmanFilesystem) -> None:
    inside(
        anywhere,
        "echo secret > /etc/secret; ln -s /etc out; ln -s /etc/secret file; ln -s ../etc/new dangling; ln -s /workspace2 near",
    )
    before = inside(anywhere, "ls /etc")
    for path in ("out/secret", "out", "file", "dangling", "out/no/such", "near"):
        assert not anywhere.exists(path)
        with pytest.raises(PathEscapeError):
            anywhere.stat(path)
        with pytest.raises(PathEscapeError):
            anywhere.read_bytes(path)
        with pytest.raises(PathEscapeError):
            anywhere.write(path, "overwritten")
    for path in ("out/directory", "out/secret"):
        with pytest.raises(PathEscapeError):
            anywhere.mkdir(path)
        with pytest.raises(PathEscapeError):
            anywhere.delete(path, recursive=True)
    assert [entry.kind for entry in anywhere.list()] == ["other"] * 4
    assert anywhere.glob("**") == []
    assert anywhere.grep("secret") == ()
    anywhere.delete("out")  # the symlink itself
    assert inside(anywhere, "ls /etc") == before
    assert inside(anywhere, "cat /etc/secret") == "secret\n"


def test_symlinks_that_stay_inside_are_followed(anywhere: PodmanFilesystem) -> None:
    anywhere.write("real/file", "content")
    inside(anywhere, "ln -s real in; ln -s /workspace/real/file absolute; ln -s nothing dangling; ln -s loop loop")
    assert anywhere.read("in/file").content == "content"
    anywhere.write("absolute", "changed")
    assert anywhere.read("real/file").content == "changed"
    assert inside(anywhere, "readlink absolute") == "/workspace/real/file\n"
    assert {entry.name: entry.kind for entry in anywhere.list()} == {
        "absolute": "file", "dangling": "other", "in": "directory", "loop": "other", "real": "directory",
    }  # fmt: skip
    assert [match.path for match in anywhere.glob("**")] == ["absolute", "real/file"]
    assert [match.path for match in anywhere.grep("chang")] == ["absolute", "real/file"]
    with pytest.raises(FileNotFoundError):
        anywhere.read("dangling")
    anywhere.delete("in")
    assert anywhere.exists("real/file")


def test_errors_are_the_standard_ones(anywhere: PodmanFilesystem) -> None:
    anywhere.write("file", "x")
    anywhere.write("directory/file", "x")
    inside(anywhere, "mkfifo pipe")
    for act, error in (
        (lambda: anywhere.read("missing"), FileNotFoundError),
        (lambda: anywhere.read("no/such/path"), FileNotFoundError),
        (lambda: anywhere.read("file/below"), NotADirectoryError),
        (lambda: anywhere.list("file"), NotADirectoryError),
        (lambda: anywhere.read("directory"), IsADirectoryError),
        (lambda: anywhere.write("directory", "x"), IsADirectoryError),
        (lambda: anywhere.delete("directory"), IsADirectoryError),
        (lambda: anywhere.mkdir("file"), FileExistsError),
        (lambda: anywhere.delete("missing"), FileNotFoundError),
        (lambda: anywhere.read("../outside"), PathEscapeError),
    ):
        with pytest.raises(error):
            act()
    with pytest.raises(OSError, match="neither file nor directory") as caught:
        anywhere.read("pipe")
    assert caught.value.errno == errno.EINVAL
    with pytest.raises(PermissionError):
        PodmanFilesystem(anywhere._container, read_only=True).write("file", "y")


def test_overwriting_keeps_mode_and_other_names(anywhere: PodmanFilesystem) -> None:
    anywhere.write("script", "old")
    anywhere.write("linked", "old")
    inside(anywhere, "chown 7:8 script; chmod 4751 script; ln linked second")
    anywhere.write("script", "new")
    anywhere.write("linked", "new")
    assert inside(anywhere, "stat -c '%a %u:%g' script") == "4751 7:8\n"
    assert inside(anywhere, "cat second") == "new"
    assert inside(anywhere, "ls -A") == "linked\nscript\nsecond\n"


def test_great_files_stream_both_ways(anywhere: PodmanFilesystem) -> None:
    piece = bytes(range(256)) * 300
    with anywhere.open_write("great") as writer:
        for _ in range(60):
            writer.write(piece)
    whole = piece * 60
    with anywhere.open_read("great") as reader:
        assert reader.size == len(whole)
        assert b"".join(reader) == whole
        for position in (3_000_001, 5, len(whole) - 3, 1 << 20, len(whole), len(whole) + 9):
            reader.seek(position)
            assert reader.read(70_000) == whole[position : position + 70_000][: 1 << 20] or reader.position > position
            reader.seek(position)
            assert b"".join(reader.chunks(1000))[:5000] == whole[position : position + 5000]
        anywhere.write("great", "replaced")
        reader.seek(2_000_000)
        assert reader.read(10) == whole[2_000_000:2_000_010]
    assert anywhere.read("great").content == "replaced"


def test_memory_stays_the_same_whatever_the_size(files: PodmanFilesystem) -> None:
    import tracemalloc

    block = bytes(1 << 16)
    files.write("warm", "up")
    tracemalloc.start()
    try:
        with files.open_write("great") as writer:
            for _ in range(384):
                writer.write(block)
        with files.open_read("great") as reader:
            assert sum(map(len, reader)) == 24 << 20
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


def test_a_write_that_is_given_up_leaves_nothing(files: PodmanFilesystem) -> None:
    with pytest.raises(ValueError, match="enough"), files.open_write("great") as writer:
        writer.write(bytes(3 << 20))
        assert files.list() == []
        raise ValueError("enough")
    writer = files.open_write("other")
    writer.write(bytes(3 << 20))
    files.close()  # as when our process ends
    assert within(5, lambda: inside(files, "ls -A") == "")
    with pytest.raises(RuntimeError, match="stopped while"):
        writer.close()


def test_searching_takes_one_request(files: PodmanFilesystem) -> None:
    inside(
        files,
        "for i in 1 2 3; do mkdir -p d$i/e; for j in 1 2 3 4; do echo needle$i$j >d$i/e/f$j.txt; done; done; ln d1/e/f1.txt hard",
    )
    shell = files._shells.take()
    asked = []
    stream = shell.stream
    shell.stream = lambda path, request, data: (asked.append(request.split()[0]), stream(path, request, data))[1]  # type: ignore[method-assign]
    files._shells.give_back(shell)
    try:
        assert len(files.glob("**/f[12].txt")) == 6
        assert [m.path for m in files.glob("*/e/f1.txt")] == ["d1/e/f1.txt", "d2/e/f1.txt", "d3/e/f1.txt"]
        assert [name for name in asked if name != b"about"] == [b"walk"] * 2
        asked.clear()
        assert len(files.grep("needle", glob="*.txt")) == 12
        assert [name for name in asked if name != b"about"] == [b"walk", b"contents"]
        assert [m.path for m in files.grep("needle11")] == ["d1/e/f1.txt", "hard"]
    finally:
        del shell.stream  # type: ignore[method-assign]
    found = files.grep("needle", max_matches=2)
    assert (len(found), found.truncated) == (2, True)


def test_snapshot_restore_and_diff(files: PodmanFilesystem) -> None:
    files.write("kept", "same")
    files.write("changed", "before")
    files.write("deep/gone", "x")
    inside(files, "chmod 741 kept; ln -s kept link; mkdir void; ln changed second")
    first = files.snapshot(tag="first")
    assert (first.backend, first.strategy, first.tag, first.file_count) == ("podman", "container_commit", "first", 4)
    files.write("changed", "after")
    files.delete("deep", recursive=True)
    files.write("added\n", "new")
    second = files.snapshot()
    assert second.parent_id == first.snapshot_id == second.parent_id
    for change in (files.diff(first), files.diff(first, second)):
        assert (change.added, change.modified, change.deleted) == (("added\n",), ("changed", "second"), ("deep/gone",))
        assert change.unchanged_count == 1
    files.restore(first)
    assert files.current_snapshot_id == first.snapshot_id
    assert files.diff(first).added == files.diff(first).modified == files.diff(first).deleted == ()
    assert files.read("deep/gone").content == "x"
    assert inside(files, "ls -A") == "changed\ndeep\nkept\nlink\nsecond\nvoid\n"
    assert inside(files, "stat -c %a kept; stat -c %h second") == "741\n2\n"
    files.restore(second)
    assert files.read("added\n").content == "new"
    files.delete_snapshot(second)
    with pytest.raises(SnapshotNotFoundError, match="was it removed"):
        files.restore(second)
    files.delete_snapshot(first)


def test_snapshots_that_cannot_be_say_why(files: PodmanFilesystem, service: PodmanService, tmp_path: Path) -> None:
    from agentfs_client import InMemoryFilesystem

    with pytest.raises(SnapshotIncompatibleError):
        files.restore(InMemoryFilesystem().snapshot())
    volumes = {str(tmp_path): {"bind": "/workspace", "mode": "rw"}}
    with service.client() as client:
        container = client.containers.create(IMAGE, ["true"], volumes=volumes, network_mode="none")
        try:
            mounted = PodmanFilesystem(container)
            with pytest.raises(SnapshotCreationError, match="mounted into the container"):
                mounted._snapshots.take(None, None, 0, 0)
        finally:
            container.remove(force=True)


def test_a_container_that_stops_is_a_runtime_error(service: PodmanService) -> None:
    with service.client() as client:
        container = service.run(client)
        with PodmanFilesystem(container.id, uri=service.uri) as filesystem:
            filesystem.write("a", "x")
            reader = filesystem.open_read("a")
            container.kill()
            container.wait()
            with pytest.raises(RuntimeError, match=r"no shell in the container .*running|stopped while it was asked"):
                filesystem.read("a")
            assert reader.read() == b"x"
            container.start()
            assert filesystem.read("a").content == "x"
        container.remove(force=True)
        with pytest.raises(RuntimeError, match="no such container"):
            find_container(client, container.id)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # podman-py forgets to close its socket then
def test_a_service_that_is_not_there_is_a_runtime_error(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="out of reach"):
        PodmanFilesystem("some", uri=f"http+unix://{tmp_path}/socket")
    gc.collect()


def test_eight_methods_of_a_container(busybox: PodmanFilesystem, service: PodmanService, tmp_path: Path) -> None:
    """The tool operations' ContainerBackend: what was kept in memory is restored in a container."""
    kept = InMemoryBackend()
    kept.write("src/main.py", "print('hello')")
    kept.export_archive(tmp_path / "kept.fs.zip")
    with service.client() as client:
        backend = ContainerBackend(client.containers.get(busybox.container_id), workdir="/workspace")
        assert backend.import_archive(tmp_path / "kept.fs.zip") == 1
        assert backend.write("src/more.py", "print(2)") == 8
        assert backend.read("/workspace/src/main.py").content == "print('hello')"
        assert [entry.path for entry in backend.glob("**/*.py")] == ["src/main.py", "src/more.py"]
        assert [match.path for match in backend.grep("hello", file_glob="*.py")] == ["src/main.py"]
        assert backend.export_archive(tmp_path / "again.fs.zip") == 2
        assert (backend.delete("src"), len(backend.list())) == (3, 0)
        backend.backend.close()
