"""The trees that pages show: a branch or snapshot of a running daemon, or an archive. Nothing here changes a tree.

Paths are relative to the root, which is "". Surrogates stand for bytes that are not UTF-8.
"""

import errno
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import TracebackType
from typing import Literal, Protocol

from agentfs_client import wire
from agentfs_client.control import ControlClient
from agentfs_client.errors import AgentFSError
from agentfs_files.archive.archive_view import ArchiveView
from agentfs_files.filesystem.virtual_paths import join, name_of, parent_of, refusal
from agentfs_files.remote_files import RemoteFiles, RemoteSource

LARGE_DIRECTORY = 2_000  # names; looking at each file takes a second for 100,000

Kind = Literal["file", "directory", "symlink", "other"]


@dataclass(frozen=True, slots=True)
class ViewedEntry:
    """A name in a directory.

    Attributes:
        kind: symlink if it is a symlink that leads to nothing or out of the tree; else the kind of the file or of its target.
        is_link: The name is a symlink. The other attributes then describe its target.
        target: The text of the symlink.
        mode: 0 if unknown.
        mtime_ns: 0 if unknown.
    """

    name: str
    kind: Kind
    size_bytes: int = 0
    is_link: bool = False
    mode: int = 0
    mtime_ns: int = 0
    target: str = ""


class ViewedContent(Protocol):
    """An open file; a context manager."""

    @property
    def size(self) -> int: ...

    def read(self, offset: int, size: int) -> bytes:
        """Return *size* bytes from *offset* on; fewer only at the end of the file."""
        ...

    def __enter__(self) -> "ViewedContent": ...

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None: ...


class ViewedTree(Protocol):
    """A tree. Methods raise FileNotFoundError, NotADirectoryError, IsADirectoryError or PathEscapeError."""

    def meta(self) -> Mapping[str, object]:
        """Return at least ``version``, ``created_at``, ``file_count`` and ``total_bytes``, as in the specification's manifest."""
        ...

    def list(self, path: str, *, quickly: bool = False) -> list[ViewedEntry]:
        """List a directory, sorted by name.

        *quickly*: of a large directory, return only the kinds: sizes are -1, and symlinks are not followed.
        """
        ...

    def stat(self, path: str) -> ViewedEntry: ...

    def files(self) -> Iterator[tuple[str, int]]:
        """Yield path and size of every file. Symlinks to directories are not followed."""
        ...

    def open(self, path: str) -> ViewedContent: ...


class ViewedTrees(Protocol):
    """The source of the pages' trees."""

    def tree(self, ref: str) -> AbstractContextManager[ViewedTree]:
        """Return a tree. *ref*: the branch or snapshot; "" if there is only one tree."""
        ...


class LiveTree:
    """A tree of a running daemon, read over one conversation; a context manager that ends it. *ref*: a branch or snapshot."""

    def __init__(self, client: ControlClient, ref: str) -> None:
        self._client, self._ref = client, ref
        self._files = RemoteFiles(client, ref)

    def __enter__(self) -> "LiveTree":
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._client.close()

    def meta(self) -> Mapping[str, object]:
        """See ViewedTree. The time that this takes grows with the number of files."""
        created_ns = self._created_ns()
        counted = self._files.count()
        made = datetime.fromtimestamp(created_ns / 1e9, UTC).isoformat()
        return {
            "version": "1", "created_at": made, "file_count": counted.files, "total_bytes": counted.size_bytes, "ref": self._ref,
        }  # fmt: skip

    def _created_ns(self) -> int:
        for branch in self._client.list_branches(count=False):
            if self._ref in (branch.name, branch.id):
                return branch.created_ns
        return self._client.show_snapshot(self._ref).created_ns

    def list(self, path: str, *, quickly: bool = False) -> list[ViewedEntry]:
        """See ViewedTree."""
        if quickly:
            named = self._files.list(path, names_only=True)
            if len(named) > LARGE_DIRECTORY:
                return [ViewedEntry(_text(info.path_bytes), info.kind, -1, info.is_link) for info in named]
        return [_entry(info) for info in self._files.list(path)]

    def stat(self, path: str) -> ViewedEntry:
        """See ViewedTree."""
        info = self._files.stat(path, follow=False)
        target = self._behind(path) if info.is_link else None
        return replace(target or _entry(info), name=name_of(path), target=_text(info.target_bytes))

    def _behind(self, path: str) -> ViewedEntry | None:
        """Return the target of a symlink; None if it does not exist or is outside the tree."""
        try:
            return _entry(self._files.stat(path))
        except AgentFSError:
            raise
        except OSError:
            return None

    def files(self) -> Iterator[tuple[str, int]]:
        """See ViewedTree."""
        pending = [""]
        while pending:
            directory = pending.pop()
            try:
                entries = self.list(directory)
            except (FileNotFoundError, NotADirectoryError, PermissionError):
                continue  # went meanwhile, or is nobody's business
            for entry in entries:
                path = join(directory, entry.name)
                if entry.kind == "file":
                    yield path, entry.size_bytes
                elif entry.kind == "directory" and not entry.is_link:
                    pending.append(path)

    def open(self, path: str) -> ViewedContent:
        """See ViewedTree."""
        return _Remote(self._files.open(path))


def _text(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")


def _entry(info: wire.FileInfo) -> ViewedEntry:
    name = _text(info.path_bytes)
    return ViewedEntry(name, info.kind, info.size if info.kind == "file" else 0, info.is_link, info.mode, info.mtime_ns)


class _Remote:
    def __init__(self, source: RemoteSource) -> None:
        self._source = source
        self.size = source.size

    def read(self, offset: int, size: int) -> bytes:
        self._source.seek(offset)
        return self._source.read(size)

    def __enter__(self) -> "_Remote":
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._source.close()


class ArchiveTree:
    """The files of a session, from its ``ID.fs.zip``. Several threads may use it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._view = ArchiveView(path)
        self._turn = threading.Lock()
        self._sizes = {entry.path: entry.size_bytes for entry in self._view.tree()}
        self._children: dict[str, dict[str, ViewedEntry]] = {"": {}}
        for file_path, size_bytes in self._sizes.items():
            self._enter(file_path, ViewedEntry(name_of(file_path), "file", size_bytes))

    def _enter(self, path: str, entry: ViewedEntry) -> None:
        above = parent_of(path)
        if above not in self._children:
            self._children[above] = {}
            self._enter(above, ViewedEntry(name_of(above), "directory"))
        self._children[above][entry.name] = entry

    def close(self) -> None:
        """Close the archive."""
        self._view.close()

    def __enter__(self) -> "ArchiveTree":
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        """Keep the archive open for the next request."""

    def meta(self) -> Mapping[str, object]:
        """See ViewedTree."""
        with self._turn:
            return self._view.manifest()

    def list(self, path: str, *, quickly: bool = False) -> list[ViewedEntry]:
        """See ViewedTree."""
        if path in self._sizes:
            raise refusal(errno.ENOTDIR, path)
        if path not in self._children:
            raise refusal(errno.ENOENT, path)
        return sorted(self._children[path].values(), key=lambda entry: os.fsencode(entry.name))

    def stat(self, path: str) -> ViewedEntry:
        """See ViewedTree."""
        if path in self._children:
            return ViewedEntry(name_of(path), "directory")
        if path not in self._sizes:
            raise refusal(errno.ENOENT, path)
        return ViewedEntry(name_of(path), "file", self._sizes[path])

    def files(self) -> Iterator[tuple[str, int]]:
        """See ViewedTree."""
        return iter(self._sizes.items())

    def open(self, path: str) -> ViewedContent:
        """See ViewedTree."""
        if path in self._children:
            raise refusal(errno.EISDIR, path)
        with self._turn:
            return _Whole(self._view.read(path))


class _Whole:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)

    def read(self, offset: int, size: int) -> bytes:
        return self._data[offset : offset + size]

    def __enter__(self) -> "_Whole":
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        """There is nothing to close."""
