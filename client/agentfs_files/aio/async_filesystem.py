"""Await any `Filesystem`. Its methods run in worker threads, because files have no better asynchronous interface. This module
knows no backend.
"""

import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar
from uuid import UUID

from agentfs_client.extras import needed_for
from agentfs_client.transport import close_all
from agentfs_files.aio.async_streams import AsyncByteReader, AsyncByteWriter, AsyncTextReader
from agentfs_files.aio.threads import OneAtATime
from agentfs_files.filesystem.file_results import WriteMode
from agentfs_files.filesystem.filesystem_protocol import (
    ArchivableFilesystem,
    DescriptorFilesystem,
    DiffableFilesystem,
    Filesystem,
    SnapshotableFilesystem,
)

with needed_for("awaiting needs", "async"):
    import anyio

_F = TypeVar("_F", bound=Filesystem)
_F_co = TypeVar("_F_co", bound=Filesystem, covariant=True)
_P = ParamSpec("_P")
_T = TypeVar("_T")


def _awaited(
    method: Callable[Concatenate[_F, _P], _T], *, abandonable: bool = False
) -> "Callable[Concatenate[AsyncFilesystem[_F], _P], Coroutine[Any, Any, _T]]":
    """Return an async method that calls the file system's own method of the same name in a thread. Type checkers accept it only
    if the file system has that method.
    """
    name = method.__name__

    @functools.wraps(method)
    async def call(self: "AsyncFilesystem[_F]", /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        run = self._threads.run_abandonable if abandonable else self._threads.run
        return await run(getattr(self.filesystem, name), *args, **kwargs)

    return call


class AsyncFilesystem(Generic[_F_co]):
    """An awaited view of ``filesystem``. One thread at a time uses it, and nobody else may use it meanwhile.

    A change that is cancelled happens completely or not at all; a file that was being written stays as it was. Cancelling a
    read-only call returns at once, and the next call waits until it has finished.
    """

    def __init__(self, filesystem: _F_co) -> None:
        self.filesystem = filesystem
        self._threads = OneAtATime()

    @property
    def root(self) -> str:
        return self.filesystem.root

    @property
    def read_only(self) -> bool:
        return self.filesystem.read_only

    @property
    def mount_point(self) -> str | None:
        return self.filesystem.mount_point

    @contextlib.asynccontextmanager
    async def open_read(self, path: str) -> AsyncIterator[AsyncByteReader]:
        async with self._threads.hold(lambda: self.filesystem.open_read(path)) as reader:
            yield AsyncByteReader(reader, self._threads)

    @contextlib.asynccontextmanager
    async def open_write(
        self, path: str, *, mode: WriteMode = "overwrite", create_parents: bool = True
    ) -> AsyncIterator[AsyncByteWriter]:
        """Open a file for writing. The content becomes visible when the context ends; an exception or a cancellation
        discards it.
        """
        async with self._threads.hold(
            lambda: self.filesystem.open_write(path, mode=mode, create_parents=create_parents)
        ) as writer:
            yield AsyncByteWriter(writer, self._threads)

    @contextlib.asynccontextmanager
    async def open_text(self, path: str, *, encoding: str = "utf-8") -> AsyncIterator[AsyncTextReader]:
        async with self._threads.hold(lambda: self.filesystem.open_text(path, encoding=encoding)) as reader:
            yield AsyncTextReader(reader, self._threads)

    async def open_fd(self: "AsyncFilesystem[DescriptorFilesystem]", path: str, flags: int, mode: int = 0o666) -> int:
        """Return a descriptor, which the caller closes. If the call is cancelled, the descriptor is closed."""
        opened: list[int] = []
        try:
            await self._threads.run(lambda: opened.append(self.filesystem.open_fd(path, flags, mode)))
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._threads.run(close_all, opened)  # after the call that may still be running
            raise
        return opened[0]

    exists = _awaited(Filesystem.exists, abandonable=True)
    stat = _awaited(Filesystem.stat, abandonable=True)
    list = _awaited(Filesystem.list, abandonable=True)
    glob = _awaited(Filesystem.glob, abandonable=True)
    grep = _awaited(Filesystem.grep, abandonable=True)
    read = _awaited(Filesystem.read, abandonable=True)
    read_bytes = _awaited(Filesystem.read_bytes, abandonable=True)

    write = _awaited(Filesystem.write)
    write_bytes = _awaited(Filesystem.write_bytes)
    delete = _awaited(Filesystem.delete)
    mkdir = _awaited(Filesystem.mkdir)

    snapshot = _awaited(SnapshotableFilesystem.snapshot)
    restore = _awaited(SnapshotableFilesystem.restore)
    diff = _awaited(DiffableFilesystem.diff, abandonable=True)
    export_archive = _awaited(ArchivableFilesystem.export_archive)
    import_archive = _awaited(ArchivableFilesystem.import_archive)

    async def current_snapshot_id(self: "AsyncFilesystem[DiffableFilesystem]") -> UUID | None:
        """Return the id of the snapshot that was last taken or restored, which is the parent of the next one. A backend may have
        to ask for it.
        """
        return await self._threads.run_abandonable(lambda: self.filesystem.current_snapshot_id)
