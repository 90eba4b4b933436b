"""Read a ZIP as a tree: one of ours, or any archive in the specification's format. Nothing that the ZIP says is trusted.

`Archive` checks names, types, nesting, sizes and checksums before it returns anything. So code that writes from it gets either
the whole tree or an error before the first byte.
"""

import stat
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from types import TracebackType

import msgspec

from agentfs_files.archive.members import MAX_TARGET_BYTES, Members, mode_of, shown
from agentfs_files.archive.pack import FILES, VERSION
from agentfs_files.trees.stored_tree import Stored, is_possible, restore, without_holes
from agentfs_files.trees.tree_source import Chunks, Step, TreeEntry

DEFAULT_MAX_BYTES = 16 << 30

_MAX_MANIFEST_BYTES = 256 << 20
_FREE_MANIFEST_BYTES = 16 << 20
_MANIFEST_RATIO = 100  # manifests compress to about a tenth; a higher ratio means an attempt to exhaust memory
_MAX_ENTRIES = 1 << 22
_FREE_IMPLIED = 1 << 16  # allowed directories that exist only as parts of paths, beyond one for each entry


class _Manifest(msgspec.Struct):
    """The keys that are read. Other keys are ignored."""

    version: str
    entries: list[Stored] | None = None


class Archive:
    """The checked tree in a ZIP.

    Args:
        foreign_links: whether to accept symlinks that the manifest does not list.
        check_contents: if false, damage to a file is found only when the file is read.

    ``data_bytes`` is the size of all files in bytes, without long runs of zeros.

    Raises:
        ArchiveError: the ZIP is damaged or malicious.
        ArchiveTooLargeError: its content exceeds *max_bytes*.
    """

    def __init__(
        self, path: str, max_bytes: int = DEFAULT_MAX_BYTES, step: Step = lambda done, total: None, *,
        foreign_links: bool = True, check_contents: bool = True,
    ) -> None:  # fmt: skip
        self.path, self.max_bytes, self._foreign_links = path, max_bytes, foreign_links
        self._zip = Members(path, max_bytes)
        try:
            self.data_bytes = self._zip.check_contents(step) if check_contents else 0
            self._entries, self._members = self._combine()
            self._children = self._check_tree()
        except BaseException:
            self._zip.close()
            raise

    def close(self) -> None:
        self._zip.close()

    def __enter__(self) -> "Archive":
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    # -- the tree

    def __len__(self) -> int:
        return len(self._entries)

    def root(self) -> TreeEntry:
        return self._entries[b""]

    def children(self, directory: TreeEntry) -> list[TreeEntry]:
        return self._children.get(directory.path, [])

    def chunks(self, entry: TreeEntry) -> Chunks:
        offset = 0
        for data in self._zip.chunks(self._members[entry.path]):
            yield from without_holes(data, offset)
            offset += len(data)

    def find(self, path: bytes) -> TreeEntry | None:
        return self._entries.get(path)

    def manifest(self) -> bytes:
        """Return the manifest unchanged; b"" if there is none."""
        info = self._zip.manifest
        if info is None:
            return b""
        if info.file_size > min(_MAX_MANIFEST_BYTES, _FREE_MANIFEST_BYTES + _MANIFEST_RATIO * info.compress_size):
            raise self._zip.bad(f"its manifest has {info.file_size} bytes")
        return self._zip.read(info)

    # -- what the manifest says, and what the members say

    def _combine(self) -> tuple[dict[bytes, TreeEntry], dict[bytes, zipfile.ZipInfo]]:
        """Combine the manifest with the members. A member that the manifest does not list gets what the ZIP itself records."""
        unclaimed = dict(self._zip.by_path)
        entries: dict[bytes, TreeEntry] = {}
        claimed: dict[bytes, zipfile.ZipInfo] = {}
        for stored in self._read_manifest():
            path, member = self._stored_paths(stored)
            if path in entries:
                raise self._zip.bad(f"its manifest lists {shown(path)} twice")
            info = unclaimed.pop(member, None)
            entries[path] = self._described(stored, path, info)
            if info is not None:
                claimed[path] = info
        for path, info in unclaimed.items():
            if path in entries:
                raise self._zip.bad(f"its manifest lists {shown(path)} under another name")
            entries[path], claimed[path] = self._plain(path, info), info
        self._check_groups(entries, claimed)
        return entries, claimed

    def _read_manifest(self) -> list[Stored]:
        text = self.manifest()
        if not text:
            return []
        try:
            manifest = msgspec.json.decode(text, type=_Manifest)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as exc:
            raise self._zip.bad(f"its manifest cannot be read: {exc}") from exc
        if manifest.version != VERSION:
            raise self._zip.bad(f"its manifest is of version {manifest.version!r}; only {VERSION!r} is read")
        return manifest.entries or []

    def _stored_paths(self, stored: Stored) -> tuple[bytes, bytes]:
        """Return the path in the tree and the path below files/."""
        try:
            path = stored.path_bytes()
            member = stored.name.removeprefix(FILES).removesuffix("/").encode("utf-8", "surrogateescape") or path
        except ValueError as exc:
            raise self._zip.bad(f"its manifest names {stored.path!r} in no readable way") from exc
        if path:
            self._zip.check_path(path)
        return path, member

    def _described(self, stored: Stored, path: bytes, info: zipfile.ZipInfo | None) -> TreeEntry:
        kind = stat.S_IFMT(stored.mode)
        has_member = kind in (stat.S_IFREG, stat.S_IFLNK)
        if not is_possible(stored) or (not path and kind != stat.S_IFDIR):
            raise self._zip.bad(f"its manifest gives {shown(path)} attributes that no file can have")
        if has_member != (info is not None and not info.is_dir()) and kind != stat.S_IFDIR:
            raise self._zip.bad(f"its manifest and its members disagree about {shown(path)}")
        if kind == stat.S_IFDIR and info is not None and not info.is_dir():
            raise self._zip.bad(f"its manifest and its members disagree about {shown(path)}")
        entry = replace(restore(stored, path), size=info.file_size if info is not None else 0)
        return replace(entry, target=self._target(info)) if info is not None and entry.is_link else entry

    def _plain(self, path: bytes, info: zipfile.ZipInfo) -> TreeEntry:
        """Make an entry from Info-ZIP's fields. An archive without modes leaves them undefined."""
        mode = mode_of(info)
        if info.is_dir():
            return TreeEntry(path, stat.S_IFDIR | (stat.S_IMODE(mode) or 0o755), loose=not mode)
        if stat.S_ISLNK(mode):
            if not self._foreign_links:
                raise self._zip.bad(f"it holds the symlink {shown(path)}, of which its manifest says nothing")
            return TreeEntry(path, stat.S_IFLNK | 0o777, target=self._target(info))
        return TreeEntry(path, stat.S_IFREG | (mode & 0o777 or 0o644), size=info.file_size, loose=not stat.S_IFMT(mode))

    def _target(self, info: zipfile.ZipInfo) -> bytes:
        """Return the target of a symlink. It may be anything: code that writes it does not follow it."""
        target = self._zip.read(info) if 0 < info.file_size <= MAX_TARGET_BYTES else b""
        if not target or b"\0" in target:
            raise self._zip.bad(f"{info.filename!r} is a symlink to nowhere")
        return target

    def _check_groups(self, entries: dict[bytes, TreeEntry], members: dict[bytes, zipfile.ZipInfo]) -> None:
        """Check that all names of one file have the same content."""
        first: dict[int, tuple[int, int, int]] = {}
        for path, entry in entries.items():
            if entry.group and not entry.is_dir:
                info = members.get(path)
                content = (entry.mode, info.CRC, info.file_size) if info else (entry.mode, 0, entry.rdev)
                if first.setdefault(entry.group, content) != content:
                    raise self._zip.bad(f"{shown(path)} is said to be another name of a file that differs")

    def _check_tree(self) -> dict[bytes, list[TreeEntry]]:
        """Return the entries of each directory, sorted. Add directories that only occur in paths. Refuse entries beneath anything
        but a directory.
        """
        entries = self._entries
        most = min(_MAX_ENTRIES, 2 * len(entries) + _FREE_IMPLIED)
        for path in list(entries):
            for parent in _parents(path):
                above = entries.setdefault(parent, TreeEntry(parent, stat.S_IFDIR | 0o755, loose=True))
                if not above.is_dir:
                    raise self._zip.bad(f"it holds {shown(path)} beneath {shown(parent)}, which is not a directory")
            if len(entries) > most:
                raise self._zip.bad(f"it holds more than {most} files and directories")
        entries.setdefault(b"", TreeEntry(b"", stat.S_IFDIR | 0o755, loose=True))
        children: dict[bytes, list[TreeEntry]] = {}
        for path in sorted(entries):
            if path:
                children.setdefault(entries[path].parent, []).append(entries[path])
        return children


def _parents(path: bytes) -> Iterator[bytes]:
    position = path.find(b"/")
    while position >= 0:
        yield path[:position]
        position = path.find(b"/", position + 1)
