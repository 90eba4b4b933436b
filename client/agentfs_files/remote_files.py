"""The files of a branch or snapshot over a conversation with the daemon, for processes that do not see them through the mount.

Paths are relative to the root, which is "". A problem with a file raises a standard exception (FileNotFoundError,
PermissionError, ...) or PathEscapeError; a problem with the request or the daemon raises AgentFSError.
"""

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from agentfs_client import wire
from agentfs_client.control import ControlClient
from agentfs_client.descriptor_operations import OpenedFd
from agentfs_client.errors import AgentFSError
from agentfs_files.filesystem.file_results import WriteMode
from agentfs_files.filesystem.virtual_paths import escapes, refusal

_PART_BYTES = 128 << 10  # bytes per request; several are in memory at a time
_PATHS, _PATHS_BYTES = 256, 64 << 10  # that one request names at most

_R = TypeVar("_R", bound=wire.Reply)


class RemoteFiles:
    """The files of a ref. *ref* is a branch or a snapshot, which can only be read; None means the caller's branch."""

    def __init__(self, client: ControlClient, ref: str | None = None) -> None:
        self.client, self._ref = client, ref

    def stat(self, path: str, *, follow: bool = True) -> wire.FileInfo:
        request = wire.StatFile(branch=self._ref, raw_path=os.fsencode(path), follow=follow)
        return _ask(self.client, request, wire.FileReply, path).file

    def contents(self, paths: Sequence[str], most_bytes: int) -> list[bytes | None]:
        """Return the contents of several files, up to *most_bytes* each; None for one that must be opened by itself."""
        contents: list[bytes | None] = []
        while len(contents) < len(paths):
            asked = _that_fit(paths[len(contents) :])
            request = wire.FileContents(branch=self._ref, raw_paths=asked, most_bytes=most_bytes)
            contents += _ask(self.client, request, wire.ContentsReply, paths[0]).contents
        return contents

    def listings(self, paths: Sequence[str], *, detailed: bool = False) -> Iterator[tuple[str, list[wire.NameInTree] | None]]:
        """Yield each directory with its sorted names; None for one that cannot be listed, or has gone. Symlinks are shown."""
        done = 0
        while done < len(paths):
            request = wire.FileListings(branch=self._ref, raw_paths=_that_fit(paths[done:]), detailed=detailed)
            listings = _ask(self.client, request, wire.ListingsReply, paths[done]).listings
            yield from zip(paths[done : done + len(listings)], listings, strict=True)
            done += len(listings)

    def list(self, path: str, *, names_only: bool = False) -> list[wire.FileInfo]:
        """Return the entries of a directory, sorted. ``path`` of each is its name."""
        request = wire.FileList(branch=self._ref, raw_path=os.fsencode(path), names_only=names_only)
        return _ask(self.client, request, wire.FilesReply, path).files

    def count(self, path: str = "") -> wire.FilesCounted:
        """Count the files beneath a directory. Takes time for each file."""
        return _ask(self.client, wire.FileCount(branch=self._ref, raw_path=os.fsencode(path)), wire.FilesCounted, path)

    def open(self, path: str) -> "RemoteSource":
        """Open a file for reading. The reply already holds all of a small file."""
        request = wire.FileOpen(branch=self._ref, raw_path=os.fsencode(path), read_bytes=_PART_BYTES)
        return RemoteSource(self.client, path, _ask(self.client, request, wire.FileOpened, path))

    def create(self, path: str, mode: WriteMode = "overwrite", permissions: int = 0o666) -> "RemoteSink":
        """Create a file for writing; see RemoteSink."""
        request = wire.FileCreate(branch=self._ref, raw_path=os.fsencode(path), mode=mode, permissions=permissions)
        return RemoteSink(self.client, path, _ask(self.client, request, wire.FileOpened, path).handle)

    def open_fd(self, path: str, flags: int, permissions: int = 0o666, *, no_copy: bool = False) -> OpenedFd:
        """Return a real descriptor, which the caller closes. Raises NotForwardedError if the daemon gives none. See
        wire.FdOpen.
        """
        with _about(path):
            return self.client.open_fd(path, flags, branch=self._ref, permissions=permissions, no_copy=no_copy)

    def mkdir(self, path: str, permissions: int = 0o777) -> wire.FileInfo:
        request = wire.FileMkdir(branch=self._ref, raw_path=os.fsencode(path), permissions=permissions)
        return _ask(self.client, request, wire.FileReply, path).file

    def rename(self, path: str, to: str, *, replace: bool = True) -> None:
        request = wire.FileRename(branch=self._ref, raw_path=os.fsencode(path), raw_to=os.fsencode(to), replace=replace)
        _ask(self.client, request, wire.Done, path)

    def delete(self, path: str, *, recursive: bool = False) -> None:
        """Delete a file or directory. A directory that is not empty needs *recursive*."""
        request = wire.FileDelete(branch=self._ref, raw_path=os.fsencode(path), recursive=recursive)
        _ask(self.client, request, wire.Done, path)


class RemoteSource:
    """A file that the daemon keeps open for us, or all of a small one. Like a descriptor, it stays with its file."""

    def __init__(self, client: ControlClient, path: str, opened: wire.FileOpened) -> None:
        assert opened.file is not None
        self.size = opened.file.size
        self._client, self._path, self._handle = client, path, opened.handle
        self._part, self._part_at = opened.data, 0  # the data that was read last, and its offset in the file
        self._position = 0

    def read(self, size: int) -> bytes:
        """Return *size* bytes; fewer only at the end of the file."""
        parts = bytearray()
        while len(parts) < size and (found := self._next(size - len(parts))):
            parts += found
        return bytes(parts)

    def _next(self, size: int) -> bytes:
        begin = self._position - self._part_at
        if self._handle and not 0 <= begin < len(self._part):
            request = wire.FileRead(handle=self._handle, offset=self._position, size=_PART_BYTES)
            self._part = _ask(self._client, request, wire.FileData, self._path).data
            self._part_at, begin = self._position, 0
        part = self._part[begin : begin + size]
        self._position += len(part)
        return part

    def seek(self, position: int) -> None:
        self._position = position

    def close(self) -> None:
        _close(self._client, self._handle)
        self._handle, self._part = 0, b""


class RemoteSink:
    """A file that is being written. commit() makes it visible at once; discard(), or the end of the conversation, drops it."""

    def __init__(self, client: ControlClient, path: str, handle: int) -> None:
        self._client, self._path, self._handle = client, path, handle
        self._kept = bytearray()

    def write(self, data: bytes) -> None:
        self._kept += data
        self._send()

    def _send(self) -> None:
        """Send everything except the part that the commit will carry."""
        while len(self._kept) > _PART_BYTES:
            part = bytes(self._kept[:_PART_BYTES])
            _ask(self._client, wire.FileWrite(handle=self._handle, data=part), wire.Done, self._path)
            del self._kept[:_PART_BYTES]

    def commit(self) -> None:
        self._send()
        _ask(self._client, wire.FileCommit(handle=self._handle, data=bytes(self._kept)), wire.FileReply, self._path)

    def discard(self) -> None:
        self._kept.clear()
        _close(self._client, self._handle)


def _that_fit(paths: Sequence[str]) -> list[bytes]:
    """Return the first of several paths: as many as one request takes, at least one."""
    fitting: list[bytes] = []
    size_bytes = 0
    for path in paths[:_PATHS]:
        raw = os.fsencode(path)
        size_bytes += len(raw)
        if fitting and size_bytes > _PATHS_BYTES:
            break
        fitting.append(raw)
    return fitting


def _close(client: ControlClient, handle: int) -> None:
    """Close a handle; errors do not matter, since the daemon closes it at the end of the conversation."""
    if not handle or not client.is_usable:
        return
    try:
        client.ask(wire.FileClose(handle=handle), wire.Done)
    except AgentFSError:
        pass


def _ask(client: ControlClient, request: wire.Request, expected: type[_R], path: str) -> _R:
    with _about(path):
        return client.ask(request, expected)


@contextmanager
def _about(path: str) -> Iterator[None]:
    """Turn the daemon's errors about a file into standard exceptions with its path."""
    try:
        yield
    except AgentFSError as exc:
        if exc.code == "path-escape":
            raise escapes(path) from None
        if exc.errno is not None and exc.code == errno.errorcode.get(exc.errno):
            too_long = exc.errno == errno.ENAMETOOLONG  # no file can have this name
            raise refusal(errno.ENOENT if too_long else exc.errno, path) from exc
        raise
