"""Files of a container, opened: content travels through a shell there, some chunks at a time."""

import os
from collections.abc import Iterable, Iterator
from secrets import token_hex
from tarfile import TarInfo
from tarfile import open as open_tar
from typing import IO, cast

from agentfs_files.backends.container_shell import ContainerShell, ContainerShells, quoted
from agentfs_files.filesystem.file_results import WriteMode
from agentfs_files.filesystem.file_streams import Source
from agentfs_files.filesystem.virtual_paths import name_of, parent_of

TEMPORARY = ".agentfs-write-"  # and 16 digits: what is being written, beside the place where it is to be
_CHUNK = 65_536  # bytes: the unit of the script's `hold`, `take` and `rewind`
_FIRST = 4  # chunks that come with the opening of a file
_AHEAD = 64  # chunks that are asked for at once; they come as they are read
_PIECE = 8 * _CHUNK  # bytes that are written at once
_NAMES_BYTES = 1 << 17


def located(path: str) -> bytes:
    """As the script takes a path: the directory, and the name in it."""
    return quoted(parent_of(path)) + b" " + quoted(name_of(path))


def open_source(shells: ContainerShells, path: str) -> "HeldFile":
    shell = shells.take()
    try:
        answer = shell.ask(path, b"hold %b %d" % (located(path), _FIRST))
    except OSError:
        shells.give_back(shell)
        raise
    except BaseException:
        shell.close()
        raise
    size, _, first = answer.partition(b"\n")
    return HeldFile(shells, shell, path, int(size), first)


class HeldFile:
    """A small file is here as a whole; of a greater one a shell has the descriptor, so that it stays the same file to its end."""

    def __init__(self, shells: ContainerShells, shell: ContainerShell, path: str, size: int, first: bytes) -> None:
        self.size = size
        self._shells, self._path = shells, path
        self._piece, self._start, self._position = first, 0, 0
        self._next = len(first)  # where what comes next belongs
        self._answer: Iterator[bytes] = iter(())  # which is being read
        self._shell: ContainerShell | None = shell
        if size <= len(first):
            self._shell = None
            shells.give_back(shell)

    def read(self, size: int) -> bytes:
        parts = []
        while size > 0 and (data := self._some(size)):
            parts.append(data)
            size -= len(data)
            self._position += len(data)
        return b"".join(parts)

    def _some(self, size: int) -> bytes:
        if self._shell is not None and not self._start <= self._position < self._start + len(self._piece):
            self._fetch(self._shell)
        at = self._position - self._start
        return self._piece[at : at + size]

    def seek(self, position: int) -> None:
        self._position = position

    def _fetch(self, shell: ContainerShell) -> None:
        """The piece in which the position is; nothing when it is beyond the end."""
        if self._position != self._next:
            if self._position >= self.size:
                self._start, self._piece = self._position, b""
                return
            self._finish_answer()
            self._next = self._position - self._position % _CHUNK
            shell.ask(self._path, b"rewind %d" % (self._next // _CHUNK))
        while self._next <= self._position:
            piece = next(self._answer, b"")
            if not piece:
                self._answer = shell.stream(self._path, b"take %d" % _AHEAD, ())
                piece = next(self._answer, b"")
            self._start, self._piece = self._next, piece
            self._next += len(piece)
            if not piece:
                return

    def _finish_answer(self) -> None:
        for _ in self._answer:
            pass

    def close(self) -> None:
        if self._shell is not None:
            shell, self._shell = self._shell, None
            try:
                self._finish_answer()
                shell.ask(self._path, b"release")
            except (OSError, RuntimeError):
                shell.close()  # and with it the file
                return
            self._shells.give_back(shell)


class WrittenFile:
    """Goes into a temporary file beside its place, and takes that when it is complete. What fits in one piece is one request."""

    def __init__(self, shells: ContainerShells, path: str, mode: WriteMode) -> None:
        self._shells, self._path, self._mode = shells, path, mode.encode()
        self._begin = b"begin %b %b %b; " % (located(path), quoted(TEMPORARY + token_hex(8)), self._mode)
        self._shell: ContainerShell | None = None
        self._pending = bytearray()

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            part = view[: _PIECE - len(self._pending)]
            self._pending += part
            view = view[len(part) :]
            if len(self._pending) == _PIECE:
                self._send(b"more %d" % _PIECE)

    def commit(self) -> None:
        self._send(b"complete %d %b" % (len(self._pending), self._mode))
        self._leave()

    def discard(self) -> None:
        self._pending.clear()
        if self._shell is not None and self._shell.is_alive:
            self._send(b"abandon")
            self._leave()

    def _send(self, request: bytes) -> None:
        begin = b""
        if self._shell is None:
            self._shell, begin = self._shells.take(), self._begin
        try:
            self._shell.ask(self._path, begin + request, self._pending)
        except BaseException:
            self._shell.close()  # and with it goes the temporary file
            raise
        self._pending.clear()

    def _leave(self) -> None:
        if self._shell is not None:
            self._shells.give_back(self._shell)
            self._shell = None


def contents(shells: ContainerShells, paths: Iterable[str]) -> Iterator[tuple[str, Source]]:
    """Files one after the other, as tar streams: one request for some thousand. Each is valid until the next one is asked for.
    What is no plain file in the archive, such as a second name of one, is opened by its name."""
    for names in _batches(paths):
        if "\\" in names[0]:
            yield from _opened(shells, names[0])
            continue
        data = b"".join(b"./" + os.fsencode(name) + b"\0" for name in names)
        answer = shells.stream("", b"contents '' %d" % len(data), (data,))
        for member, file in tar_members(answer):
            path = member.name.removeprefix("./")
            if file is not None:
                yield path, _Member(member.size, file)
            elif member.islnk() or member.issym():
                yield from _opened(shells, path)


def tar_members(chunks: Iterator[bytes]) -> Iterator[tuple[TarInfo, IO[bytes] | None]]:
    """What a tar stream holds, or several of them; with a file's content, which is to be read before the next one."""
    stream = cast(IO[bytes], _ChunkReader(chunks))
    with open_tar(fileobj=stream, mode="r|", ignore_zeros=True, encoding="utf-8", errors="surrogateescape") as archive:
        while (member := archive.next()) is not None:
            archive.members = []  # type: ignore[attr-defined] # or it keeps them all
            yield member, archive.extractfile(member) if member.isreg() else None


def _opened(shells: ContainerShells, path: str) -> Iterator[tuple[str, Source]]:
    try:
        yield path, open_source(shells, path)
    except OSError:
        return  # gone, or nobody's business


def _batches(paths: Iterable[str]) -> Iterator[list[str]]:
    """Names that fit into one request; one with a backslash stands alone, for GNU tar takes that as an escape."""
    batch: list[str] = []
    size = 0
    for path in paths:
        if batch and ("\\" in path or "\\" in batch[0] or size > _NAMES_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(path)
        size += len(path)
    if batch:
        yield batch


class _Member:
    """A file in a stream, read once from its beginning."""

    def __init__(self, size: int, file: IO[bytes]) -> None:
        self.size, self._file = size, file

    def read(self, size: int) -> bytes:
        return self._file.read(size)

    def seek(self, position: int) -> None:
        self._file.seek(position)

    def close(self) -> None:
        self._file.close()


class _ChunkReader:
    """Chunks of any size, as tarfile reads them."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._held = bytearray()

    def read(self, size: int) -> bytes:
        while len(self._held) < size and (chunk := next(self._chunks, b"")):
            self._held += chunk
        data = bytes(self._held[:size])
        del self._held[:size]
        return data
