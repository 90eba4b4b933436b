"""What differs between two trees of one overlay. Only directories that some differing layer touched are walked."""

import os
import stat
from collections.abc import Iterator

from agentfsd.core.attributes import all_xattrs
from agentfsd.core.copyup import content_fd
from agentfsd.core.inode import ROOT_ID, Inode
from agentfsd.core.tree import Parts, Tree, join
from agentfsd.metadata.store import Store
from agentfsd.types import Change

_CHUNK = 1 << 20


def between(parts: Parts, old: Tree, new: Tree) -> list[Change]:
    """The changes that lead from *old* to *new*, sorted by path."""
    walker = _Walker(old, new, _Touched(parts.store, old, new))
    return sorted(walker.directory(b"", old.root, new.root), key=lambda change: change.path)


class _Touched:
    """The names and inodes that have rows in layers which only one of the two trees has."""

    def __init__(self, store: Store, old: Tree, new: Tree) -> None:
        self.names: dict[int, set[bytes]] = {}
        self.inodes: set[int] = set()
        changed_dirs: set[int] = set()
        for layer in old.chain ^ new.chain:
            names, inodes = store.touched(layer)
            for directory, name in names:
                self.names.setdefault(directory, set()).add(name)
                changed_dirs.add(directory)
            self.inodes.update(inodes)
        self._mark_way_up(store, old.chain | new.chain, changed_dirs | self.inodes)

    def _mark_way_up(self, store: Store, chain: frozenset[int], start: set[int]) -> None:
        """Enters every name that leads to something touched."""
        todo, seen = list(start), set(start)
        while todo:
            child = todo.pop()
            if child == ROOT_ID:
                continue
            for directory, name, layer in store.names_of(child):
                if layer in chain:
                    self.names.setdefault(directory, set()).add(name)
                    if directory not in seen:
                        seen.add(directory)
                        todo.append(directory)


class _Walker:
    def __init__(self, old: Tree, new: Tree, touched: _Touched) -> None:
        self._old, self._new, self._touched = old, new, touched

    def directory(self, path: bytes, old: Inode, new: Inode) -> Iterator[Change]:
        """The changes below two directories at the same path."""
        if old.id == new.id or old.lower_path == new.lower_path:
            names = self._touched.names.get(old.id, set()) | self._touched.names.get(new.id, set())
        else:
            names = set(self._old.names(old)) | set(self._new.names(new))
        for name in names:
            yield from self._pair(join(path, name), self._old.find(old, name), self._new.find(new, name))

    def _pair(self, path: bytes, old: Inode | None, new: Inode | None) -> Iterator[Change]:
        if old is None or new is None:
            if old is not None:
                yield from _all_below(self._old, path, old, "D")
            if new is not None:
                yield from _all_below(self._new, path, new, "A")
            return
        if stat.S_IFMT(old.mode) != stat.S_IFMT(new.mode):
            yield from self._replaced(path, old, new)
            return
        status = self._status(old, new)
        if status:
            yield Change(status, path, _size(self._old, old), _size(self._new, new), _moved(self._new, new))
        if old.is_dir:
            yield from self.directory(path, old, new)

    def _replaced(self, path: bytes, old: Inode, new: Inode) -> Iterator[Change]:
        yield Change("T", path, _size(self._old, old), _size(self._new, new), _moved(self._new, new))
        for tree, inode, status in ((self._old, old, "D"), (self._new, new, "A")):
            if inode.is_dir:
                for name in tree.names(inode):
                    yield from _all_below(tree, join(path, name), tree.lookup(inode, name), status)

    def _status(self, old: Inode, new: Inode) -> str:
        one, two = self._old.attributes(old), self._new.attributes(new)
        if old.is_file and not self._same_data(old, new):
            return "M"
        if one.rdev != two.rdev or self._target(self._old, old) != self._target(self._new, new):
            return "M"
        if (one.mode, one.uid, one.gid) != (two.mode, two.uid, two.gid):
            return "m"
        return "m" if all_xattrs(self._old, old) != all_xattrs(self._new, new) else ""

    @staticmethod
    def _target(tree: Tree, inode: Inode) -> bytes | None:
        return tree.readlink(inode) if stat.S_ISLNK(inode.mode) else None

    def _same_data(self, old: Inode, new: Inode) -> bool:
        if old.content == new.content and (old.content or old.lower_path == new.lower_path):
            return True
        if self._old.data_stat(old).st_size != self._new.data_stat(new).st_size:
            return False
        return _same_bytes(old, new)


def _size(tree: Tree, inode: Inode) -> int:
    return tree.data_stat(inode).st_size if inode.is_file else 0


def _moved(tree: Tree, inode: Inode) -> bool:
    """Whether the lower object is no longer what it was at copy-up."""
    if not inode.id or inode.lower_path is None or inode.is_dir:
        return False
    try:
        return tree.identify(tree.lower.stat(inode.lower_path)) != inode.lower
    except OSError:
        return True


def _all_below(tree: Tree, path: bytes, inode: Inode, status: str) -> Iterator[Change]:
    size = _size(tree, inode)
    yield Change(status, path, size if status == "D" else -1, size if status == "A" else -1)
    if inode.is_dir:
        for name in tree.names(inode):
            yield from _all_below(tree, join(path, name), tree.lookup(inode, name), status)


def _same_bytes(old: Inode, new: Inode) -> bool:
    one, two = content_fd(old), content_fd(new)
    try:
        offset = 0
        while True:
            chunk = os.pread(one, _CHUNK, offset)
            if chunk != os.pread(two, _CHUNK, offset):
                return False
            if not chunk:
                return True
            offset += len(chunk)
    finally:
        os.close(one)
        os.close(two)
