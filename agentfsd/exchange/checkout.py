"""Read the tree of a git commit as a source of entries, for import into a branch.

If agentfsd recorded attributes beside the commit, the entries have them; otherwise they have what git itself stores. The caller
may name the commit whose tree the target already shows. Entries that are equal in both commits are then marked as settled, and
the import skips them.
"""

import stat
from dataclasses import replace

import pygit2

from agentfs_files.trees.stored_tree import Stored, restore, without_holes
from agentfs_files.trees.tree_source import Chunks, TreeEntry
from agentfs_host.descent import join
from agentfsd.exchange.record import DIRECTORIES, ENTRIES, EXECUTABLE, FILE, LINK, TREE, read_entries
from agentfsd.exchange.repository import Items, Repository, Trees, is_dotgit

_CHUNK = 1 << 20
_SUBMODULE = 0o160000
_TYPES = {TREE: stat.S_IFDIR, FILE: stat.S_IFREG, EXECUTABLE: stat.S_IFREG, LINK: stat.S_IFLNK}


_Pair = tuple[pygit2.Oid | None, pygit2.Oid | None]  # object numbers of the content tree and the attribute tree


class Checkout:
    """Read the tree of a commit.

    Args:
        repository: the repository that holds the commit.
        trees: the content and attribute trees of the commit.
        base: the trees of the commit that the target shows now; None if it is not known.
    """

    def __init__(self, repository: Repository, trees: Trees, base: Trees | None = None) -> None:
        self._repository = repository
        self._trees: dict[bytes, _Pair] = {b"": (trees.content, trees.attributes)}
        self._base: dict[bytes, _Pair] = {}
        if base is not None and (base.attributes is None) == (trees.attributes is None):
            self._base[b""] = (base.content, base.attributes)
        self._blobs: dict[bytes, pygit2.Oid] = {}
        self._groups: dict[tuple[int, str], int] = {}

    def root(self) -> TreeEntry:
        said = self._said(self._trees[b""][1]).get(b"")
        if said is not None and stat.S_ISDIR(said.mode):
            return restore(said, b"")
        return TreeEntry(b"", stat.S_IFDIR | 0o755, loose=True)

    def children(self, directory: TreeEntry) -> list[TreeEntry]:
        content, attributes = self._trees.pop(directory.path)
        items = {name: item for name, item in self._repository.read_tree(content).items() if not is_dotgit(name)}
        said, inner = self._said(attributes), self._inner(attributes)
        old_content, old_attributes = self._base.pop(directory.path, (None, None))
        old = (self._repository.read_tree(old_content), self._said(old_attributes), self._inner(old_attributes))
        entries = []
        for name in sorted(items.keys() | said.keys() - {b""}):
            entry = self._entry(join(directory.path, name), items.get(name), said.get(name), inner.get(name))
            if entry is not None:
                same = (items.get(name), said.get(name), inner.get(name)) == tuple(part.get(name) for part in old)
                entries.append(replace(entry, settled=same and bool(old_content) and not entry.group))
                if entry.is_dir and not same:
                    self._base[entry.path] = (_tree_of(old[0].get(name)), (old[2].get(name) or (0, None))[1])
        return entries

    def chunks(self, entry: TreeEntry) -> Chunks:
        data = self._repository.read_blob(self._blobs[entry.path])
        for offset in range(0, len(data), _CHUNK):
            yield from without_holes(bytes(data[offset : offset + _CHUNK]), offset)

    def _entry(
        self, path: bytes, item: tuple[int, pygit2.Oid] | None, said: Stored | None, inner: tuple[int, pygit2.Oid] | None
    ) -> TreeEntry | None:
        """Return None if attributes were recorded for a file whose content is not in the commit."""
        mode, oid = item if item is not None else (0, None)
        if said is not None and mode and stat.S_IFMT(said.mode) != _TYPES.get(mode, 0):
            said = None
        if mode in (TREE, _SUBMODULE) or (oid is None and said is not None and stat.S_ISDIR(said.mode)):
            self._trees[path] = (oid if mode == TREE else None, inner[1] if inner is not None else None)
            return restore(said, path) if said is not None else TreeEntry(path, stat.S_IFDIR | 0o755, loose=True)
        if oid is None:
            special = said is not None and not stat.S_ISREG(said.mode) and not stat.S_ISLNK(said.mode)
            return restore(said, path) if said is not None and special else None
        if mode == LINK:
            entry = restore(said, path) if said is not None else TreeEntry(path, stat.S_IFLNK | 0o777)
            return replace(entry, target=bytes(self._repository.read_blob(oid)), group=0)
        self._blobs[path], size = oid, self._repository.blob_size(oid)
        if said is None:
            return TreeEntry(path, stat.S_IFREG | (0o755 if mode == EXECUTABLE else 0o644), size=size, loose=True)
        return replace(restore(said, path), size=size, group=self._group(said, oid))

    def _group(self, said: Stored, blob: pygit2.Oid) -> int:
        """Return the number of a hard-link group, 0 for none. Names that were linked but now differ in content were changed since
        they were recorded, so they get different groups.
        """
        return self._groups.setdefault((said.links, str(blob)), len(self._groups) + 1) if said.links else 0

    def _said(self, attributes: pygit2.Oid | None) -> dict[bytes, Stored]:
        blob = self._repository.read_tree(attributes).get(ENTRIES)
        return read_entries(self._repository, blob[1]) if blob is not None else {}

    def _inner(self, attributes: pygit2.Oid | None) -> Items:
        inner = self._repository.read_tree(attributes).get(DIRECTORIES)
        return self._repository.read_tree(inner[1]) if inner is not None else {}


def _tree_of(item: tuple[int, pygit2.Oid] | None) -> pygit2.Oid | None:
    return item[1] if item is not None and item[0] == TREE else None
