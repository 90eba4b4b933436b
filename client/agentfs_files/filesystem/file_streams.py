"""Readers and writers over a backend's open files: chunks of bytes, lines of UTF-8. They hold at most a chunk or a line.

Source: the stream types of the file system protocol, version 3.
"""

import codecs
import errno
import io
import os
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Protocol, Self

from agentfs_files.filesystem.filesystem_protocol import ByteReader, ByteWriter
from agentfs_files.filesystem.size_limits import DEFAULT_LIMITS

_CLOSED = "I/O operation on closed file"


class Source(Protocol):
    """A file that a backend has opened for reading. Positions are in bytes from the start. read() may return less than requested,
    but b"" only at the end.
    """

    @property
    def size(self) -> int: ...

    def read(self, size: int) -> bytes: ...

    def seek(self, position: int) -> None: ...

    def close(self) -> None: ...


class Sink(Protocol):
    """A file that a backend is writing. The caller calls either commit() or discard(), once."""

    def write(self, data: bytes) -> None:
        """Write all of *data*."""
        ...

    def commit(self) -> None: ...

    def discard(self) -> None: ...


class BytesSource:
    """A Source of content in memory."""

    def __init__(self, content: bytes) -> None:
        self.size = len(content)
        self._file = io.BytesIO(content)  # shares the bytes

    def read(self, size: int) -> bytes:
        return self._file.read(size)

    def seek(self, position: int) -> None:
        self._file.seek(position)

    def close(self) -> None:
        self._file.close()


class BytesSink:
    """A Sink that collects content in memory and passes all of it to *store*."""

    def __init__(self, store: Callable[[bytes], object]) -> None:
        self._store, self._file = store, io.BytesIO()

    def write(self, data: bytes) -> None:
        self._file.write(data)

    def commit(self) -> None:
        self._store(self._file.getvalue())  # does not copy

    def discard(self) -> None:
        self._file.close()


class BinaryReader:
    """A ByteReader over a Source."""

    def __init__(self, path: str, source: Source, chunk_bytes: int = DEFAULT_LIMITS.chunk_bytes) -> None:
        self._path, self._source, self._chunk_bytes = path, source, chunk_bytes
        self._size = source.size
        self._position = 0
        self._closed = False

    @property
    def path(self) -> str:
        return self._path

    @property
    def size(self) -> int:
        return self._size

    @property
    def position(self) -> int:
        self._check()
        return self._position

    @property
    def closed(self) -> bool:
        return self._closed

    def read(self, size: int = -1) -> bytes:
        self._check()
        if size >= 0:
            data = self._read(size)
        else:
            data = b"".join(iter(lambda: self._source.read(max(self._chunk_bytes, self._size - self._position)), b""))
        self._position += len(data)
        return data

    def _read(self, size: int) -> bytes:
        """Read until *size* bytes are there, since a source may return less. Stop without another request at the size that the
        file had when it was opened.
        """
        data = self._source.read(size) if size else b""
        parts = [data]
        length = len(data)
        while data and length < size and self._position + length < self._size:
            data = self._source.read(size - length)
            parts.append(data)
            length += len(data)
        return data if len(parts) == 1 else b"".join(parts)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._check()
        if whence not in (os.SEEK_SET, os.SEEK_CUR, os.SEEK_END):
            raise ValueError(f"whence must be 0 (start), 1 (here) or 2 (end), not {whence}")
        position = offset + (0, self._position, self._size)[whence]
        if position < 0:
            raise ValueError(f"there is no position {position} in {self._path}: it would be before the start")
        self._source.seek(position)
        self._position = position
        return position

    def chunks(self, size: int) -> Iterator[bytes]:
        self._check()
        if size <= 0:
            raise ValueError(f"a chunk has at least one byte, not {size}")
        return iter(lambda: self.read(size), b"")

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._source.close()

    def __iter__(self) -> Iterator[bytes]:
        return self.chunks(self._chunk_bytes)

    def __enter__(self) -> Self:
        self._check()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _check(self) -> None:
        if self._closed:
            raise ValueError(_CLOSED)


class BinaryWriter:
    """A ByteWriter over a Sink. A writer that is never closed is discarded."""

    def __init__(self, path: str, sink: Sink) -> None:
        self._path, self._sink = path, sink
        self._written = 0
        self._closed = False

    @property
    def path(self) -> str:
        return self._path

    @property
    def bytes_written(self) -> int:
        return self._written

    @property
    def closed(self) -> bool:
        return self._closed

    def write(self, data: bytes) -> int:
        self._check()
        self._sink.write(data)
        self._written += len(data)
        return len(data)

    def write_all(self, chunks: Iterable[bytes]) -> int:
        self._check()
        return sum(self.write(chunk) for chunk in chunks)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        raise OSError(errno.ESPIPE, "Illegal seek", self._path)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._sink.commit()

    def discard(self) -> None:
        """End the writing without effect."""
        if not self._closed:
            self._closed = True
            self._sink.discard()

    def __enter__(self) -> Self:
        self._check()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self.discard()

    def _check(self) -> None:
        if self._closed:
            raise ValueError(_CLOSED)


class Utf8Reader:
    """A TextReader over a ByteReader, which it closes."""

    def __init__(self, reader: ByteReader) -> None:
        self._reader = reader
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._text = ""  # decoded text; the part from _at on has not been returned yet
        self._at = 0
        self._lines = 0
        self._failure: UnicodeDecodeError | None = None  # found after the text in _text
        self._at_end = False

    @property
    def path(self) -> str:
        return self._reader.path

    @property
    def encoding(self) -> str:
        return "utf-8"

    @property
    def line_number(self) -> int:
        return self._lines

    @property
    def closed(self) -> bool:
        return self._reader.closed

    def readline(self) -> str:
        self._check()
        parts = []
        while True:
            end = self._text.find("\n", self._at) + 1
            if end:
                parts.append(self._take(end))
                break
            parts.append(self._take(len(self._text)))
            if not self._fill():
                break
        line = "".join(parts)
        self._lines += bool(line)
        return line

    def read(self, size: int = -1) -> str:
        self._check()
        parts: list[str] = []
        missing = size
        while missing:
            end = len(self._text) if size < 0 else min(len(self._text), self._at + missing)
            parts.append(self._take(end))
            missing -= len(parts[-1]) if size >= 0 else 0
            if missing and not self._fill():
                break
        text = "".join(parts)
        self._lines += text.count("\n")
        return text

    def lines(self, *, strip: bool = False) -> Iterator[str]:
        self._check()
        lines = iter(self.readline, "")
        return (line.rstrip() for line in lines) if strip else lines

    def close(self) -> None:
        self._reader.close()

    def __iter__(self) -> Iterator[str]:
        return self.lines()

    def __enter__(self) -> Self:
        self._check()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _take(self, end: int) -> str:
        part = self._text[self._at : end]
        self._at = end
        return part

    def _fill(self) -> bool:
        """Decode the next chunk into the emptied _text; return False at the end. Bytes that are not UTF-8 raise an error when the
        caller reaches them.
        """
        if self._failure is not None:
            raise self._failure
        if self._at_end:
            return False
        start = self._reader.position - len(self._decoder.getstate()[0])
        chunk = self._reader.read(DEFAULT_LIMITS.chunk_bytes)
        self._at_end = not chunk
        try:
            self._text = self._decoder.decode(chunk, final=self._at_end)
        except UnicodeDecodeError as exc:
            self._text = exc.object[: exc.start].decode()
            self._failure = not_text(exc, self.path, start)
            self._failure.__traceback__ = None
        self._at = 0
        return bool(self._text) or self._fill()

    def _check(self) -> None:
        if self._reader.closed:
            raise ValueError(_CLOSED)


class Utf8Writer:
    """A TextWriter over a ByteWriter, which it closes."""

    def __init__(self, writer: ByteWriter) -> None:
        self._writer = writer

    @property
    def path(self) -> str:
        return self._writer.path

    @property
    def encoding(self) -> str:
        return "utf-8"

    @property
    def bytes_written(self) -> int:
        return self._writer.bytes_written

    @property
    def closed(self) -> bool:
        return self._writer.closed

    def write(self, text: str) -> int:
        self._writer.write(text.encode())
        return len(text)

    def write_all(self, parts: Iterable[str]) -> int:
        return sum(self.write(part) for part in parts)

    def close(self) -> None:
        self._writer.close()

    def __enter__(self) -> Self:
        self._writer.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._writer.__exit__(kind, value, tb)


def not_text(exc: UnicodeDecodeError, path: str, start: int) -> UnicodeDecodeError:
    """Return *exc* with the position in the file and a remedy. *start* is the position of the decoded bytes in the file."""
    reason = f"{exc.reason} at byte {start + exc.start} of {path}: it holds binary content, for which there is read_bytes()"
    return UnicodeDecodeError(exc.encoding, exc.object, exc.start, exc.end, reason)


def check_encoding(encoding: str) -> None:
    """Raise ValueError for any encoding other than UTF-8."""
    try:
        known = codecs.lookup(encoding).name
    except LookupError:
        known = ""
    if known != "utf-8":
        raise ValueError(f"only the encoding utf-8 is supported, not {encoding!r}; read_bytes() gives the bytes as they are")
