"""A file system in memory. A snapshot keeps the tree unchanged; a later change copies only the directories above the changed
path.

Each directory belongs to the edition that created it. Taking a snapshot begins a new edition, after which older directories are
never changed. Contents are immutable bytes and always shared.
"""

import errno
import io
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from agentfs_files.backends.base_filesystem import BaseFilesystem
from agentfs_files.filesystem.file_results import FileEntry, FileStat, WriteMode
from agentfs_files.filesystem.file_streams import BytesSink, BytesSource
from agentfs_files.filesystem.filesystem_errors import SnapshotIncompatibleError, SnapshotNotFoundError
from agentfs_files.filesystem.records import FilesystemDiff, FilesystemSnapshot
from agentfs_files.filesystem.size_limits import DEFAULT_LIMITS, Limits
from agentfs_files.filesystem.virtual_paths import join, name_of, parent_of, refusal

if TYPE_CHECKING:
    from agentfs_files.archive.unpack import Archive
    from agentfs_files.backends.host_mounts import HostMount, Paths

_BACKEND = "in_memory"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _File:
    __slots__ = ("content", "created_at", "modified_at")

    def __init__(self, content: bytes, created_at: datetime, modified_at: datetime) -> None:
        self.content, self.created_at, self.modified_at = content, created_at, modified_at


class _Directory:
    __slots__ = ("children", "created_at", "edition", "modified_at")

    def __init__(self, edition: int, created_at: datetime) -> None:
        self.children: dict[str, _File | _Directory] = {}
        self.edition, self.created_at, self.modified_at = edition, created_at, created_at

    def copy(self, edition: int) -> "_Directory":
        new = _Directory(edition, self.created_at)
        new.children, new.modified_at = dict(self.children), self.modified_at
        return new


_Node = _File | _Directory


class InMemoryFilesystem(BaseFilesystem):
    """A file system in memory.

    ``files`` are the initial contents by path. The root is ``/``, so every absolute path lies beneath it. The names with an
    underscore are the specification's names for the same arguments.
    """

    def __init__(
        self,
        files: Mapping[str, str | bytes] | None = None,
        *,
        read_only: bool = False,
        mount_point: str | None = None,
        limits: Limits = DEFAULT_LIMITS,
        _read_only: bool = False,
        _mount_point: str | None = None,
    ) -> None:
        super().__init__(mount_point=mount_point or _mount_point, limits=limits)
        self._edition = 0
        self._root = _Directory(0, _now())
        self._file_count = self._total_bytes = 0
        self._states: dict[UUID, tuple[_Directory, int, int]] = {}
        self._current: UUID | None = None
        for path, content in (files or {}).items():
            self.write_bytes(path, content.encode() if isinstance(content, str) else content)
        self._read_only = read_only or _read_only

    @property
    def root(self) -> str:
        return "/"

    def hydrate_from_host(self, mount: "HostMount", *, allowed_roots: "Paths") -> int:
        """Copy in files of this machine, and return their number.

        Raises:
            PathEscapeError: a path lies beneath none of the allowed roots.
        """
        from agentfs_files.backends.host_mounts import hydrate, resolve

        return hydrate(self, [resolve(mount, allowed_roots)])

    # -- the tree

    def _node(self, path: str) -> _Node:
        node: _Node = self._root
        for name in path.split("/") if path else ():
            if isinstance(node, _File):
                raise refusal(errno.ENOTDIR, path)
            child = node.children.get(name)
            if child is None:
                raise refusal(errno.ENOENT, path)
            node = child
        return node

    def _file(self, path: str) -> _File:
        node = self._node(path)
        if isinstance(node, _Directory):
            raise refusal(errno.EISDIR, path)
        return node

    def _directory(self, path: str) -> _Directory:
        node = self._node(path)
        if isinstance(node, _File):
            raise refusal(errno.ENOTDIR, path)
        return node

    def _own(self, path: str) -> _Directory:
        """Return a directory that may be changed. Copy it and those above it if a snapshot contains them."""
        self._directory(path)
        if self._root.edition != self._edition:
            self._root = self._root.copy(self._edition)
        node = self._root
        for name in path.split("/") if path else ():
            child = node.children[name]
            assert isinstance(child, _Directory)
            if child.edition != self._edition:
                child = node.children[name] = child.copy(self._edition)
            node = child
        return node

    def _put(self, path: str, node: _Node | None) -> None:
        """Set or remove a name."""
        parent = self._own(parent_of(path))
        old = parent.children.pop(name_of(path), None) if node is None else parent.children.get(name_of(path))
        if old is not None:
            self._count(old, -1)
        if node is not None:
            parent.children[name_of(path)] = node
            self._count(node, 1)
        parent.modified_at = _now()

    def _count(self, node: _Node, sign: int) -> None:
        for _, file in _files(node):
            self._file_count += sign
            self._total_bytes += sign * len(file.content)

    # -- what BaseFilesystem asks for

    def _stat(self, path: str) -> FileStat:
        node = self._node(path)
        size = len(node.content) if isinstance(node, _File) else 0
        is_file = isinstance(node, _File)
        return FileStat(path or ".", is_file, not is_file, size, node.created_at, node.modified_at)

    def _scan(self, path: str) -> Iterator[FileEntry]:
        for name, node in list(self._directory(path).children.items()):
            is_file = isinstance(node, _File)
            yield FileEntry(name, join(path, name), is_file, not is_file, len(node.content) if isinstance(node, _File) else None)

    def _open_read(self, path: str) -> BytesSource:
        return BytesSource(self._file(path).content)

    def _open_write(self, path: str, mode: WriteMode) -> BytesSink:
        return BytesSink(lambda content: self.store(path, content, mode))

    def _make_directory(self, path: str) -> None:
        self._put(path, _Directory(self._edition, _now()))

    def _remove_file(self, path: str) -> None:
        self._file(path)
        self._put(path, None)

    def _remove_tree(self, path: str) -> None:
        if path:
            self._put(path, None)
        else:
            self._root = _Directory(self._edition, self._root.created_at)
            self._file_count = self._total_bytes = 0

    def _move(self, source: str, destination: str) -> None:
        self._put(destination, self._node(source))
        self._put(source, None)

    def store(self, path: str, content: bytes, mode: WriteMode) -> None:
        """Store the content of a writer that was closed."""
        parent = self._directory(parent_of(path))
        old = parent.children.get(name_of(path))
        if old is not None and mode == "create":
            raise refusal(errno.EEXIST, path)
        if isinstance(old, _Directory):
            raise refusal(errno.EISDIR, path)
        if old is not None and mode == "append":
            content = old.content + content
        now = _now()
        self._put(path, _File(content, old.created_at if old is not None else now, now))

    # -- archives

    def _open_archive(self, path: str) -> "Archive":
        """Open an archive that takes at most half of the machine's memory."""
        from agentfs_files.archive.unpack import Archive

        most = min(self.limits.max_archive_bytes, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)
        return Archive(path, most, foreign_links=False)

    def _replace_all(self, archive: "Archive") -> int:
        from agentfs_files.archive.plain_members import Plain
        from agentfs_files.trees.stored_tree import stream
        from agentfs_files.trees.tree_source import walk

        plain = Plain(archive)
        directories = {b"": _Directory(self._edition, self._root.created_at)}
        total_bytes = 0
        for entry in walk(plain):
            made = _now() if entry.mtime_ns is None else _EPOCH + timedelta(microseconds=entry.mtime_ns // 1000)
            if entry.is_file:
                content = io.BytesIO()
                content.writelines(stream(plain.chunks(entry), entry.size))
                directories[entry.parent].children[os.fsdecode(entry.name)] = _File(content.getvalue(), made, made)
                total_bytes += entry.size
            elif entry.path:
                new = directories[entry.path] = _Directory(self._edition, made)
                directories[entry.parent].children[os.fsdecode(entry.name)] = new
        self._root, self._file_count, self._total_bytes = directories[b""], plain.file_count, total_bytes
        return plain.file_count

    # -- snapshots

    def snapshot(self, *, tag: str | None = None) -> FilesystemSnapshot:
        self._edition += 1
        snapshot = FilesystemSnapshot(
            uuid4(), _now(), f"mem-{self._edition}", "/", tag=tag, parent_id=self._current, file_count=self._file_count,
            total_bytes=self._total_bytes, backend=_BACKEND, strategy="shared",
        )  # fmt: skip
        self._states[snapshot.snapshot_id] = (self._root, self._file_count, self._total_bytes)
        self._current = snapshot.snapshot_id
        return snapshot

    def restore(self, snapshot: FilesystemSnapshot) -> None:
        self._check_writable("")
        self._root, self._file_count, self._total_bytes = self._state(snapshot)
        self._edition += 1
        self._current = snapshot.snapshot_id

    def diff(self, base: FilesystemSnapshot, target: FilesystemSnapshot | None = None) -> FilesystemDiff:
        old, old_count, _ = self._state(base)
        new, _, _ = self._state(target) if target is not None else (self._root, 0, 0)
        added, modified, deleted = _compare(old, new)
        unchanged = old_count - len(modified) - len(deleted)
        return FilesystemDiff(tuple(sorted(added)), tuple(sorted(modified)), tuple(sorted(deleted)), unchanged)

    def delete_snapshot(self, snapshot: FilesystemSnapshot) -> None:
        """Delete a snapshot and the content that only it held. Raises SnapshotNotFoundError."""
        self._state(snapshot)
        del self._states[snapshot.snapshot_id]

    @property
    def current_snapshot_id(self) -> UUID | None:
        return self._current

    def _state(self, snapshot: FilesystemSnapshot) -> tuple[_Directory, int, int]:
        try:
            return self._states[snapshot.snapshot_id]
        except KeyError:
            pass
        if snapshot.backend not in ("", _BACKEND):
            raise SnapshotIncompatibleError(
                f"{snapshot.commit_ref} is a snapshot of another kind of file system ({snapshot.backend})"
            )
        raise SnapshotNotFoundError(f"Unknown snapshot: {snapshot.commit_ref}; this instance has {len(self._states)} others")


def _now() -> datetime:
    return datetime.now(UTC)


def _files(node: _Node | None, path: str = "") -> Iterator[tuple[str, _File]]:
    """Yield every file at or beneath *path*, at any depth."""
    pending = [] if node is None else [(path, node)]
    while pending:
        where, item = pending.pop()
        if isinstance(item, _File):
            yield where, item
        else:
            pending.extend((join(where, name), child) for name, child in item.children.items())


def _compare(old: _Directory, new: _Directory) -> tuple[list[str], list[str], list[str]]:
    """Return the added, modified and deleted files. Skip directories that are the same object on both sides."""
    added: list[str] = []
    modified: list[str] = []
    deleted: list[str] = []
    pending: list[tuple[str, _Node | None, _Node | None]] = [("", old, new)]
    while pending:
        path, before, after = pending.pop()
        if before is after:
            continue
        if isinstance(before, _Directory) and isinstance(after, _Directory):
            names = before.children.keys() | after.children.keys()
            pending.extend((join(path, name), before.children.get(name), after.children.get(name)) for name in names)
        elif isinstance(before, _File) and isinstance(after, _File):
            modified.extend([path] * (before.content != after.content))
        else:
            deleted.extend(inside for inside, _ in _files(before, path))
            added.extend(inside for inside, _ in _files(after, path))
    return added, modified, deleted
