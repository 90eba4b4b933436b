"""File systems awaited, on trio and on asyncio, by several tasks, and cancelled."""

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from agentfs_files.aio.async_filesystem import AsyncFilesystem
from agentfs_files.backends.host import HostFilesystem
from agentfs_files.backends.in_memory import InMemoryFilesystem
from agentfs_files.filesystem.file_results import FileStat, WriteMode
from agentfs_files.filesystem.file_streams import Sink
from agentfs_files.filesystem.filesystem_protocol import Filesystem
from tests.client.waiting import WAIT_S, until

Make = Callable[[], Filesystem]

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["memory", "host"])
def filesystem(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncFilesystem[Filesystem]:
    return AsyncFilesystem(InMemoryFilesystem() if request.param == "memory" else HostFilesystem(tmp_path))


async def test_everything_of_a_file_system_can_be_awaited(filesystem: AsyncFilesystem[Filesystem]) -> None:
    written = await filesystem.write("a/b.txt", "one\ntwo\n")
    assert written.bytes_written == 8
    await filesystem.write_bytes("a/c.bin", b"\xff")
    await filesystem.mkdir("d")
    assert [entry.name for entry in await filesystem.list()] == ["a", "d"]
    assert (await filesystem.stat("a/b.txt")).size_bytes == 8
    assert [match.path for match in await filesystem.glob("**/*.txt")] == ["a/b.txt"]
    assert [match.line_number for match in await filesystem.grep("tw.")] == [2]
    assert (await filesystem.read("a/b.txt", offset=1)).content == "two\n"
    assert (await filesystem.read_bytes("a/c.bin")).content == b"\xff"
    await filesystem.delete("a", recursive=True)
    assert not await filesystem.exists("a/b.txt")
    with pytest.raises(FileNotFoundError):
        await filesystem.read("a/b.txt")
    assert (filesystem.root, filesystem.read_only, filesystem.mount_point) == (filesystem.filesystem.root, False, None)


async def test_files_are_streamed(filesystem: AsyncFilesystem[Filesystem]) -> None:
    content = os.urandom(200_000)
    async with filesystem.open_write("big") as writer:
        assert await writer.write(content[:10]) == 10
        await writer.write_all([content[10:20], content[20:]])
    async with filesystem.open_read("big") as reader, filesystem.open_write("copy") as writer:
        assert await writer.write_all(reader) == reader.size == reader.position == len(content)
    assert reader.closed
    assert writer.closed
    async with filesystem.open_read("copy") as reader:
        assert b"".join([chunk async for chunk in reader]) == content
        assert await reader.seek(-5, 2) == len(content) - 5
        assert [chunk async for chunk in reader.chunks(3)] == [content[-5:-2], content[-2:]]


async def test_lines_are_read_as_from_the_file_itself(filesystem: AsyncFilesystem[Filesystem]) -> None:
    lines = [f"line {number} {'x' * (number % 300)}\n" for number in range(2_000)] + ["the end"]
    await filesystem.write("text", "".join(lines))
    async with filesystem.open_text("text") as reader:
        assert await reader.readline() == lines[0]
        assert await reader.read(4) == "line"
        assert await reader.readline() == lines[1][4:]
        assert reader.line_number == 2
        assert [line async for line in reader] == lines[2:]
        assert reader.line_number == len(lines)
        assert await reader.read() == ""
    with pytest.raises(ValueError, match="closed"):
        await reader.readline()
    async with filesystem.open_text("text") as reader:
        assert [line async for line in reader.lines(strip=True)] == [line.rstrip() for line in lines]
    async with filesystem.open_text("text") as reader:
        assert await reader.readline() + await reader.read() == "".join(lines)


async def test_lines_before_what_is_no_text_are_read(filesystem: AsyncFilesystem[Filesystem]) -> None:
    await filesystem.write_bytes("text", b"one\ntwo\n\xff\n")
    found = []
    async with filesystem.open_text("text") as reader:
        with pytest.raises(UnicodeDecodeError, match="at byte 8"):
            async for line in reader:
                found.append(line)  # noqa: PERF401 - one by one
        with pytest.raises(UnicodeDecodeError):
            await reader.read()
    assert found == ["one\n", "two\n"]


@pytest.mark.parametrize("old", [None, "old"])
async def test_a_cancelled_write_leaves_the_file_as_it_was(filesystem: AsyncFilesystem[Filesystem], old: str | None) -> None:
    if old is not None:
        await filesystem.write("file", old)
    with anyio.CancelScope() as scope:
        async with filesystem.open_write("file") as writer:
            await writer.write(b"half")
            scope.cancel()
            await writer.write(b"the other half")
    assert scope.cancelled_caught
    assert writer.closed
    assert [entry.name for entry in await filesystem.list()] == (["file"] if old is not None else [])
    assert old is None or (await filesystem.read("file")).content == old


async def test_one_that_is_cancelled_at_its_end_likewise(filesystem: AsyncFilesystem[Filesystem]) -> None:
    with anyio.CancelScope() as scope:
        async with filesystem.open_write("file") as writer:
            await writer.write(b"all of it")
            scope.cancel()
    assert scope.cancelled_caught
    assert await filesystem.list() == []


async def test_snapshots(tmp_path: Path) -> None:
    filesystem = AsyncFilesystem(InMemoryFilesystem({"a": "1"}))
    first = await filesystem.snapshot(tag="first")
    assert await filesystem.current_snapshot_id() == first.snapshot_id
    await filesystem.write("a", "2")
    await filesystem.write("b", "new")
    difference = await filesystem.diff(first)
    assert (difference.added, difference.modified) == (("b",), ("a",))
    await filesystem.restore(first)
    assert [entry.name for entry in await filesystem.list()] == ["a"]


class Slow(InMemoryFilesystem):
    """Looking and opening take until they are released; how many calls there are at once."""

    inside = most = 0

    def __init__(self) -> None:
        self.begun, self.released = threading.Event(), threading.Event()
        self.released.set()
        super().__init__({"file": "old"})
        self.released.clear()
        self.begun.clear()

    def _wait(self) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.begun.set()
        assert self.released.wait(WAIT_S)
        self.inside -= 1

    def _stat(self, path: str) -> FileStat:
        self._wait()
        return super()._stat(path)

    def _open_write(self, path: str, mode: WriteMode) -> Sink:
        self._wait()
        return super()._open_write(path, mode)


async def test_one_thread_at_a_time_uses_it() -> None:
    slow = Slow()
    filesystem = AsyncFilesystem(slow)
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(filesystem.exists, "file")
            tasks.start_soon(filesystem.write, "file", "new")
        await until(slow.begun.is_set)
        slow.released.set()
    assert slow.most == 1


async def test_who_only_looked_is_free_at_once_and_who_comes_next_waits() -> None:
    slow = Slow()
    filesystem = AsyncFilesystem(slow)
    async with anyio.create_task_group() as tasks:
        with anyio.fail_after(WAIT_S):
            tasks.start_soon(filesystem.stat, "file")
            await until(slow.begun.is_set)
            tasks.cancel_scope.cancel()
    assert slow.inside == 1
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(filesystem.write, "file", "new")
        await anyio.sleep(0.02)
        assert (slow.inside, slow.most) == (1, 1)
        slow.released.set()
    assert slow.most == 1
    assert (await filesystem.read("file")).content == "new"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_task_that_asyncio_cancels_while_it_opens_a_file_leaves_it_as_it_was(anyio_backend: str) -> None:
    slow = Slow()
    filesystem = AsyncFilesystem(slow)

    async def write() -> None:
        async with filesystem.open_write("file") as writer:
            await writer.write(b"new")

    task = asyncio.create_task(write())
    await until(slow.begun.is_set)
    task.cancel()
    await asyncio.sleep(0.01)
    slow.released.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await filesystem.read("file")).content == "old"
