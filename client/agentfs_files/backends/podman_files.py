"""Open files of a container. Their content travels in chunks through a shell in the container."""

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

TEMPORARY = ".agentfs-write-"  # prefix of a temporary file beside its target; 16 digits follow
_CHUNK = 65_536  # bytes: the unit of the script's `hold`, `take` and `rewind`
_FIRST = 4  # chunks that the answer to opening a file contains
_AHEAD = 64  # chunks per request; they arrive as they are read
_PIECE = 8 * _CHUNK  # bytes per write request
_NAMES_BYTES = 1 << 17


def located(path: str) -> bytes:
    """Return a path as the script expects it: the directory and the name in it."""
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
    """An open file. A small file is held here as a whole; a shell holds the descriptor of a larger one, so that it remains the
    same file to its end.
    """

    def __init__(self, shells: ContainerShells, shell: ContainerShell, path: str, size: int, first: bytes) -> None:
        self.size = size
        self._shells, self._path = shells, path
        self._piece, self._start, self._position = first, 0, 0
        self._next = len(first)  # the file offset of the next data from the shell
        self._answer: Iterator[bytes] = iter(())  # the answer that is being read
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
        """Get the piece that contains the position; nothing if the position is beyond the end."""
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
                shell.close()  # which also closes the file
                return
            self._shells.give_back(shell)


class WrittenFile:
    """Write to a temporary file beside the target, and rename it when it is complete. Content that fits into one piece takes one
    request.
    """

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
            self._shell.close()  # which also removes the temporary file
            raise
        self._pending.clear()

    def _leave(self) -> None:
        if self._shell is not None:
            self._shells.give_back(self._shell)
            self._shell = None


def contents(shells: ContainerShells, paths: Iterable[str]) -> Iterator[tuple[str, Source]]:
    """Yield files one after the other from tar streams, with one request for some thousand files. Each is valid until the next
    one is requested.

    A file that is not plain in the archive, such as a second name of a file, is opened by its name.
    """
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
    """Yield the members of one or several tar streams, with the content of files. The content must be read before the next member
    is requested.
    """
    stream = cast(IO[bytes], _ChunkReader(chunks))
    with open_tar(fileobj=stream, mode="r|", ignore_zeros=True, encoding="utf-8", errors="surrogateescape") as archive:
        while (member := archive.next()) is not None:
            archive.members = []  # type: ignore[attr-defined] # otherwise tarfile keeps all members
            yield member, archive.extractfile(member) if member.isreg() else None


def _opened(shells: ContainerShells, path: str) -> Iterator[tuple[str, Source]]:
    try:
        yield path, open_source(shells, path)
    except OSError:
        return  # deleted meanwhile, or not readable


def _batches(paths: Iterable[str]) -> Iterator[list[str]]:
    """Yield lists of names that fit into one request. A name with a backslash is alone, because GNU tar treats it as
    an escape.
    """
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
    """A file in a stream, which is read once from its beginning."""

    def __init__(self, size: int, file: IO[bytes]) -> None:
        self.size, self._file = size, file

    def read(self, size: int) -> bytes:
        return self._file.read(size)

    def seek(self, position: int) -> None:
        self._file.seek(position)

    def close(self) -> None:
        self._file.close()


class _ChunkReader:
    """Chunks of any size as a file for tarfile."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._held = bytearray()

    def read(self, size: int) -> bytes:
        while len(self._held) < size and (chunk := next(self._chunks, b"")):
            self._held += chunk
        data = bytes(self._held[:size])
        del self._held[:size]
        return data
