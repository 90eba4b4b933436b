"""A branch as a tree for an archive: names and small files by requests about many at once, the rest from its mount."""

from collections import deque
from collections.abc import Iterator

from agentfs_client import wire
from agentfs_files.remote_files import RemoteFiles
from agentfs_files.trees.directory_tree import Directory
from agentfs_files.trees.tree_source import Chunks, TreeEntry
from agentfs_host.descent import join

_SMALL_BYTES = 128 << 10
_AHEAD_FILES, _AHEAD_BYTES = 128, 2 << 20
_BLOCK = 512


class BranchTree:
    """The files of a branch that *directory* shows, which read the same from there, and slower."""

    def __init__(self, files: RemoteFiles, directory: Directory) -> None:
        self._files, self._directory = files, directory
        self._small: dict[bytes, deque[TreeEntry]] = {}  # by directory: files that are not read yet, in order
        self._read: dict[bytes, bytes] = {}  # by path: files that were read ahead

    def root(self) -> TreeEntry:
        return self._directory.root()

    def children(self, directory: TreeEntry) -> list[TreeEntry]:
        listing = next(self._listings(directory.path))
        if listing is None:
            return self._directory.children(directory)  # which says why it cannot be listed
        entries = [_entry(join(directory.path, name.name), name) for name in listing]
        self._small[directory.path] = deque(
            entry for entry, name in zip(entries, listing, strict=True) if _is_small(entry, name)
        )  # fmt: skip
        return entries

    def _listings(self, path: bytes) -> Iterator[list[wire.NameInTree] | None]:
        for _, listing in self._files.listings([_text(path)], detailed=True):
            yield listing

    def chunks(self, entry: TreeEntry) -> Chunks:
        if entry.path not in self._read:
            self._read_ahead(entry)
        content = self._read.pop(entry.path, None)
        if content is None:
            yield from self._directory.chunks(entry)
        elif content:
            yield 0, content

    def _read_ahead(self, entry: TreeEntry) -> None:
        """Read a small file, and those after it in the same directory."""
        waiting = self._small.get(entry.parent)
        if waiting is None or entry not in waiting:
            return
        while waiting[0] != entry:  # nobody wanted it
            waiting.popleft()
        some: list[TreeEntry] = []
        while waiting and len(some) < _AHEAD_FILES and sum(each.size for each in some) < _AHEAD_BYTES:
            some.append(waiting.popleft())
        contents = self._files.contents([_text(each.path) for each in some], _SMALL_BYTES)
        self._read |= {each.path: content for each, content in zip(some, contents, strict=True) if content is not None}


def _is_small(entry: TreeEntry, name: wire.NameInTree) -> bool:
    return entry.is_file and entry.size <= min(_SMALL_BYTES, name.blocks * _BLOCK)  # others may have holes


def _entry(path: bytes, name: wire.NameInTree) -> TreeEntry:
    xattrs = {_text(key): value for key, value in name.xattrs.items()}
    is_file = TreeEntry(path, name.mode).is_file
    return TreeEntry(
        path, name.mode, name.uid, name.gid, size=name.size if is_file else 0, mtime_ns=name.mtime_ns, rdev=name.rdev,
        target=name.target, xattrs=xattrs, group=name.group,
    )  # fmt: skip


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
