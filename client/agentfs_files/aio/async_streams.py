"""Await the reading and writing of open files. Each step runs in a worker thread and holds one chunk or some lines in memory."""

from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Iterable

from agentfs_files.aio.threads import OneAtATime
from agentfs_files.filesystem.filesystem_protocol import ByteReader, ByteWriter, TextReader
from agentfs_files.filesystem.size_limits import DEFAULT_LIMITS

_AHEAD_CHARACTERS = DEFAULT_LIMITS.chunk_bytes  # a thread switch for each line would take longer than reading it


class AsyncByteReader:
    """The awaited form of ByteReader."""

    def __init__(self, reader: ByteReader, threads: OneAtATime) -> None:
        self._reader, self._threads = reader, threads

    @property
    def path(self) -> str:
        return self._reader.path

    @property
    def size(self) -> int:
        return self._reader.size

    @property
    def position(self) -> int:
        return self._reader.position

    @property
    def closed(self) -> bool:
        return self._reader.closed

    async def read(self, size: int = -1) -> bytes:
        return await self._threads.run(self._reader.read, size)

    async def seek(self, offset: int, whence: int = 0) -> int:
        return await self._threads.run(self._reader.seek, offset, whence)

    async def chunks(self, size: int) -> AsyncIterator[bytes]:
        if size <= 0:
            raise ValueError(f"a chunk has at least one byte, not {size}")
        while chunk := await self.read(size):
            yield chunk

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Iterate over chunks of 64 KiB."""
        return self.chunks(DEFAULT_LIMITS.chunk_bytes)


class AsyncByteWriter:
    """The awaited form of ByteWriter."""

    def __init__(self, writer: ByteWriter, threads: OneAtATime) -> None:
        self._writer, self._threads = writer, threads

    @property
    def path(self) -> str:
        return self._writer.path

    @property
    def bytes_written(self) -> int:
        return self._writer.bytes_written

    @property
    def closed(self) -> bool:
        return self._writer.closed

    async def write(self, data: bytes) -> int:
        return await self._threads.run(self._writer.write, data)

    async def write_all(self, chunks: AsyncIterable[bytes] | Iterable[bytes]) -> int:
        """Write all *chunks*, which may be an AsyncByteReader, and return the number of bytes."""
        written = 0
        if isinstance(chunks, AsyncIterable):
            async for chunk in chunks:
                written += await self.write(chunk)
        else:
            for chunk in chunks:
                written += await self.write(chunk)
        return written


class AsyncTextReader:
    """The awaited form of TextReader. It reads lines ahead."""

    def __init__(self, reader: TextReader, threads: OneAtATime) -> None:
        self._reader, self._threads = reader, threads
        self._ahead: deque[str] = deque()
        self._line_number = 0
        self._failure: UnicodeDecodeError | None = None  # found after the text that was read ahead

    @property
    def path(self) -> str:
        return self._reader.path

    @property
    def encoding(self) -> str:
        return self._reader.encoding

    @property
    def line_number(self) -> int:
        """Number of lines read so far, which is the number of the next line, counted from 0."""
        return self._line_number

    @property
    def closed(self) -> bool:
        return self._reader.closed

    async def readline(self) -> str:
        """Return the next line; "" at the end."""
        if not self._ahead or self._reader.closed:
            await self._threads.run(self._read_ahead)
        if not self._ahead:
            return ""
        self._line_number += 1
        return self._ahead.popleft()

    async def read(self, size: int = -1) -> str:
        """Return at most *size* characters; -1 means the rest of the file."""
        text = await self._threads.run(self._read, size)
        self._line_number += text.count("\n")
        return text

    async def lines(self, *, strip: bool = False) -> AsyncIterator[str]:
        """Iterate over lines. With *strip*, remove white space and the newline at their ends."""
        while line := await self.readline():
            yield line.rstrip() if strip else line

    def __aiter__(self) -> AsyncIterator[str]:
        return self.lines()

    def _read_ahead(self) -> None:
        if self._failure is not None:
            raise self._failure
        room = _AHEAD_CHARACTERS
        try:
            while room > 0 and (line := self._reader.readline()):
                self._ahead.append(line)
                room -= len(line)
        except UnicodeDecodeError as exc:
            if not self._ahead:
                raise
            self._failure = exc

    def _read(self, size: int) -> str:
        parts = []
        missing = size  # negative: no limit
        while missing and self._ahead and not self._reader.closed:
            line = self._ahead.popleft()
            parts.append(line if size < 0 else line[:missing])
            missing -= len(parts[-1])
            if len(parts[-1]) < len(line):
                self._ahead.appendleft(line[len(parts[-1]) :])
        if missing and self._failure is not None:
            raise self._failure
        parts.append(self._reader.read(max(missing, -1)))
        return "".join(parts)
