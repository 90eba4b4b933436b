"""Any `Filesystem` for libraries that use fsspec: pandas, dask, zarr, pyarrow, UPath.

``agentfs://BRANCH/path`` is a file of a branch.

A path begins with a slash. "/" holds the branches, or is the root of the one file system that was given.
"""

import contextlib
import errno
import io
import os
import threading
from collections.abc import Iterator
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any

from agentfs_client.extras import needed_for
from agentfs_files.backends.base_filesystem import BaseFilesystem
from agentfs_files.filesystem.file_results import FileEntry, FileStat, WriteMode
from agentfs_files.filesystem.filesystem_protocol import ByteReader, ByteWriter, Filesystem
from agentfs_files.filesystem.size_limits import SYSTEM_LIMITS, Limits, without_path_limits

with needed_for("fsspec's interface needs", "fsspec"):
    from fsspec import AbstractFileSystem
    from fsspec.spec import AbstractBufferedFile

if TYPE_CHECKING:
    from agentfs_client import wire
    from agentfs_files.backends.branch import BranchFilesystem

_WRITE_MODES: dict[str, WriteMode] = {"wb": "overwrite", "ab": "append", "xb": "create"}

Info = dict[str, Any]


class _InstanceForEachFilesystem(type(AbstractFileSystem)):  # type: ignore[misc]
    """Give each file system its own instance. fsspec identifies instances by the text of their arguments, which is ambiguous for
    objects.
    """

    def __call__(cls, *args: Any, **options: Any) -> Any:
        if options.get("filesystem") is not None:
            options["skip_instance_cache"] = True
        return super().__call__(*args, **options)


class AgentFSFileSystem(AbstractFileSystem, metaclass=_InstanceForEachFilesystem):  # type: ignore[misc]
    """An fsspec file system over branches, or over one backend.

    ``mount`` or ``socket`` select the daemon, as for BranchFilesystem; with ``create`` the first use of a branch creates it.
    ``limits`` are those of branches; by default names and paths may be as long as Linux allows.
    ``filesystem`` replaces these by any backend, whose paths are used directly.

    Writing creates parent directories. A file becomes visible when it is closed, but not if its ``with`` or the transaction ends
    with an exception. Threads that share an instance wait for each other.
    """

    protocol = "agentfs"
    root_marker = "/"
    blocksize = 1 << 20

    def __init__(
        self,
        *,
        mount: str | None = None,
        socket: str | None = None,
        create: bool = False,
        filesystem: Filesystem | None = None,
        limits: Limits = SYSTEM_LIMITS,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if filesystem is not None and (mount is not None or socket is not None or create):
            raise ValueError("filesystem takes the place of mount, socket and create; give either")
        self.lock = threading.RLock()  # held while a backend or one of its files is in use
        without_path_limits(filesystem)
        self._filesystem = filesystem
        self._branches = None if filesystem is not None else _Branches(mount, socket, limits, create=create)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        stripped = super()._strip_protocol(path)
        return f"/{stripped.lstrip('/')}" if isinstance(stripped, str) else stripped

    def unstrip_protocol(self, name: str) -> str:
        """Return a path with its protocol, ``agentfs://``."""
        return f"{self.protocol}://{self._strip_protocol(name)[1:]}"

    @contextlib.contextmanager
    def at(self, path: str) -> Iterator[tuple[Filesystem, str]]:
        """Yield the backend for a path, reserved for this thread, and the path in it."""
        where: str = self._strip_protocol(path)[1:]
        with self.lock:
            if self._branches is None:
                assert self._filesystem is not None
                yield self._filesystem, where
            elif where:
                branch, _, inner = where.partition("/")
                yield self._branches.open(branch), inner
            else:
                raise IsADirectoryError(errno.EISDIR, "the root holds the branches; name one: agentfs://BRANCH/path", path)

    def close(self) -> None:
        """End the conversations about branches; the next use begins new ones. A backend that the caller gave stays open."""
        with self.lock:
            if self._branches is not None:
                self._branches.close()

    # -- looking

    def info(self, path: str, **options: Any) -> Info:
        """Return ``name``, ``size`` and ``type`` (file, directory, other), and ``mtime`` and ``created`` in seconds if they are
        known.
        """
        where = self._strip_protocol(path)
        if where == "/" and self._branches is not None:
            return {"name": where, "size": 0, "type": "directory"}
        with self.at(where) as (filesystem, inner):
            return _info(where, filesystem.stat(inner))

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        """List a directory: names, or with *detail* the records of info()."""
        where = self._strip_protocol(path)
        if where == "/" and self._branches is not None:
            with self.lock:
                branches = self._branches.list()
            return [_branch_info(branch) if detail else f"/{branch.name}" for branch in branches]
        with self.at(where) as (filesystem, inner):
            stat = filesystem.stat(inner)
            if not stat.is_directory:
                return [_info(where, stat) if detail else where]
            entries = filesystem.list(inner)
            names = [f"{where.rstrip('/')}/{entry.name}" for entry in entries]
            if not detail:
                return names
            return [_info(name, _stat_of(filesystem, entry)) for name, entry in zip(names, entries, strict=True)]

    def walk(self, path: str, maxdepth: int | None = None, topdown: bool = True, **options: Any) -> Iterator[Any]:
        """Walk a tree. Symlinks to directories are listed and not entered, since they may lead back up."""
        if not (options.get("is_below") and self._is_link(path)):
            yield from super().walk(path, maxdepth=maxdepth, topdown=topdown, **(options | {"is_below": True}))

    def _is_link(self, path: str) -> bool:
        with self.at(path) as (filesystem, inner):
            if not isinstance(filesystem, BaseFilesystem):
                return False  # the protocol has no symlinks
            return not filesystem._stat_name(inner).is_directory  # noqa: SLF001

    def created(self, path: str) -> datetime:
        """Return when a file was created; NotImplementedError if that is unknown."""
        with self.at(path) as (filesystem, inner):
            time = filesystem.stat(inner).created_at
        if time is None:
            raise NotImplementedError(f"nobody knows when {path} was created; modified() tells when it was last written")
        return time

    def modified(self, path: str) -> datetime:
        """Return when a file was last changed; NotImplementedError if that is unknown."""
        with self.at(path) as (filesystem, inner):
            time = filesystem.stat(inner).modified_at
        if time is None:
            raise NotImplementedError(f"nobody knows when {path} was last written")
        return time

    # -- reading and writing

    def open(self, path: str, mode: str = "rb", *args: Any, **options: Any) -> Any:
        """Open a file. See AgentFSFileSystem about when written content becomes visible."""
        if "b" in mode:
            return super().open(path, mode, *args, **options)
        of_text = {name: options.pop(name) for name in ("encoding", "errors", "newline") if name in options}
        return _TextFile(super().open(path, mode.replace("t", "") + "b", *args, **options), **of_text)

    def _open(
        self, path: str, mode: str = "rb", block_size: int | None = None, autocommit: bool = True, **options: Any
    ) -> "AgentFSFile":
        return AgentFSFile(self, path, mode, block_size or self.blocksize, autocommit, **options)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        """Return the content of a file, from *start* to before *end*."""
        with self.at(path) as (filesystem, inner), filesystem.open_read(inner) as reader:
            begin, stop, _ = slice(start, end).indices(reader.size)
            return _read(reader, begin, stop)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        """Write the whole content of a file."""
        with self.open(path, "xb" if mode == "create" else "wb", **options) as file:
            file.write(value)

    def cp_file(self, path1: str, path2: str, **options: Any) -> None:
        """Copy one file."""
        if self.isdir(path1):
            self.makedirs(path2, exist_ok=True)
            return
        with (
            self.at(path1) as (source, there), self.at(path2) as (target, here),
            source.open_read(there) as reader, target.open_write(here) as writer,
        ):  # fmt: skip
            writer.write_all(reader)

    def mv(self, path1: str, path2: str, recursive: bool = False, maxdepth: int | None = None, **options: Any) -> None:
        """Move a file or a whole directory: copy everything, then delete the original."""
        if maxdepth is not None:
            raise ValueError("mv moves a directory as a whole; copy() takes maxdepth")
        super().mv(path1, path2, recursive=recursive or (isinstance(path1, str) and self.isdir(path1)), **options)

    # -- directories, and what goes

    def mkdir(self, path: str, create_parents: bool = True, **options: Any) -> None:
        """Create a directory, and with *create_parents* those above it."""
        with self.at(path) as (filesystem, inner):
            filesystem.mkdir(inner, parents=create_parents, exist_ok=False)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Create a directory and those above it."""
        with self.at(path) as (filesystem, inner):
            filesystem.mkdir(inner, parents=True, exist_ok=exist_ok)

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        with self.at(path) as (filesystem, inner):
            if not filesystem.stat(inner).is_directory:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            if filesystem.list(inner):
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
            filesystem.delete(inner)

    def rm_file(self, path: str) -> None:
        """Remove one file."""
        if self.isdir(path) and not self._is_link(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        with self.at(path) as (filesystem, inner):
            filesystem.delete(inner)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Remove paths. A directory that is not empty needs *recursive*. Raises IsADirectoryError if there is more below
        *maxdepth*.
        """
        step_by_step = recursive and maxdepth is not None
        for found in reversed(self.expand_path(path, recursive=step_by_step, maxdepth=maxdepth)):
            with self.at(found) as (filesystem, inner):
                filesystem.delete(inner, recursive=recursive and not step_by_step)


class AgentFSFile(AbstractBufferedFile):  # type: ignore[misc]
    """A file opened for reading, through one of fsspec's block caches, or for writing. See AgentFSFileSystem."""

    def __init__(
        self, fs: AgentFSFileSystem, path: str, mode: str, block_size: int, autocommit: bool, *, size: int | None = None,
        **options: Any,
    ) -> None:  # fmt: skip
        """Open the file. *size* is the size at the time of pickling and is ignored: the size is looked up again."""
        if mode != "rb" and mode not in _WRITE_MODES:
            raise ValueError(f"the mode {mode!r} is none of rb, wb, ab, xb")
        self._stream: ByteReader | ByteWriter
        with fs.at(path) as (filesystem, inner):
            if mode == "rb":
                self._stream = filesystem.open_read(inner)
                size = self._stream.size
            else:
                self._stream = filesystem.open_write(inner, mode=_WRITE_MODES[mode])
                size = filesystem.stat(inner).size_bytes if mode == "ab" and filesystem.exists(inner) else 0
        super().__init__(fs, path, mode, block_size, autocommit, size=size, **options)
        self.loc = size if mode == "ab" else 0

    def _fetch_range(self, start: int, end: int) -> bytes:
        assert isinstance(self._stream, ByteReader)
        with self.fs.lock:
            return _read(self._stream, start, end)

    def _upload_chunk(self, final: bool = False) -> bool:
        assert isinstance(self._stream, ByteWriter)
        with self.fs.lock:
            self._stream.write(self.buffer.getvalue())
            if final and self.autocommit:
                self._stream.close()
        return True

    def close(self) -> None:
        """Close the file. Written content becomes visible, unless a transaction is open."""
        if self.closed:
            return
        try:
            super().close()
        except BaseException:
            self.discard()
            raise
        if self.mode == "rb":
            self._stream.close()

    def commit(self) -> None:
        """Make the content visible at the end of a transaction."""
        self.close()
        with self.fs.lock:
            self._stream.close()

    def discard(self) -> None:
        """End the writing without effect. Does nothing if the content is already visible."""
        self.closed = True
        with self.fs.lock:
            self._stream.__exit__(io.UnsupportedOperation, io.UnsupportedOperation("discarded"), None)

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        if kind is not None and self.mode != "rb":
            self.discard()
        else:
            self.close()


class _TextFile(io.TextIOWrapper):
    """Text over an AgentFSFile. An exception in its ``with`` block discards what was written."""

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        below = self.buffer
        if kind is not None and isinstance(below, AgentFSFile) and below.mode != "rb":
            self.detach()
            below.discard()
        else:
            super().__exit__(kind, value, tb)


class _Branches:
    """The branches of one daemon. The first use of a branch begins its own conversation.

    A forked child begins new conversations: two processes in one would read each other's replies.
    """

    def __init__(self, mount: str | None, socket: str | None, limits: Limits, *, create: bool) -> None:
        self._mount, self._socket, self._limits, self._create = mount, socket, limits, create
        self._opened: dict[str, BranchFilesystem] = {}
        self._pid = os.getpid()

    def open(self, name: str) -> "BranchFilesystem":
        """Return the file system of a branch."""
        from agentfs_client.errors import NotFoundError
        from agentfs_files.backends.branch import BranchFilesystem

        if self._pid != os.getpid():
            self._opened, self._pid = {}, os.getpid()
        if name not in self._opened:
            try:
                self._opened[name] = BranchFilesystem(
                    name, mount=self._mount, socket=self._socket, create=self._create, limits=self._limits
                )  # fmt: skip
            except NotFoundError as exc:
                raise FileNotFoundError(exc.errno, f"{exc.message}; {exc.hint}", name) from exc
        return self._opened[name]

    def list(self) -> "list[wire.Branch]":
        """Return the names of all branches."""
        from agentfs_client import locate
        from agentfs_client.control import ControlClient

        connect = ControlClient.connect(self._socket) if self._socket is not None else locate.find(self._mount).connect()
        with connect as daemon:
            return sorted(daemon.list_branches(), key=lambda branch: branch.name)

    def close(self) -> None:
        """End all conversations."""
        while self._opened:
            self._opened.popitem()[1].close()


def _read(reader: ByteReader, start: int, end: int) -> bytes:
    """Return the bytes from *start* to before *end*, or to the end of the file."""
    reader.seek(start)
    parts = []
    while start < end and (part := reader.read(end - start)):
        parts.append(part)
        start += len(part)
    return b"".join(parts)


def _stat_of(filesystem: Filesystem, entry: FileEntry) -> FileStat:
    """Return an entry's attributes, including those that a listing lacks. For a symlink that leads nowhere, use the entry."""
    try:
        return filesystem.stat(entry.path)
    except OSError:
        return FileStat(entry.path, entry.is_file, entry.is_directory, entry.size_bytes or 0)


def _info(name: str, stat: FileStat) -> Info:
    kind = "directory" if stat.is_directory else "file" if stat.is_file else "other"
    info: Info = {"name": name, "size": stat.size_bytes, "type": kind}
    if stat.modified_at is not None:
        info["mtime"] = stat.modified_at.timestamp()
    if stat.created_at is not None:
        info["created"] = stat.created_at.timestamp()
    return info


def _branch_info(branch: "wire.Branch") -> Info:
    return {"name": f"/{branch.name}", "size": 0, "type": "directory", "created": branch.created_ns / 1e9}
