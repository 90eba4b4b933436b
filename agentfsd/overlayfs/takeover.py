"""Brings what an upper directory of the kernel's overlayfs holds into the branch whose run has written it.

The files become content objects by a link, so nothing is copied, and all rows are one transaction. Running it again changes
nothing: it compares what is there with the branch. Whatever the branch shows and neither the upper directory nor the layers
beneath it show was removed in the run.
"""

import contextlib
import itertools
import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

from agentfs_host.descent import Descent, join
from agentfsd.core import copyup, inode_stat, origin, requested_changes
from agentfsd.core.inode_attributes import all_xattrs
from agentfsd.core.tree import Inode, Tree
from agentfsd.domain_errors import NO_ROOM
from agentfsd.metadata.rows import WHITEOUT, is_whiteout
from agentfsd.overlayfs import new_entries
from agentfsd.overlayfs.lower_doubts import LowerDoubts
from agentfsd.overlayfs.new_entries import TakeoverReporter
from agentfsd.overlayfs.twin_directories import TwinDirectories, path_beneath
from agentfsd.overlayfs.unlocking import UnlockedDirectories, is_locked
from agentfsd.overlayfs.upper_scan import Found, Known, open_found, scan, signature, uncertain
from agentfsd.overlayfs.upper_state import UpperState

_ASIDE = b".agentfs-moving-%d"  # names at the root, which nobody sees: they are gone when the transaction ends


class _Unrecognised(Exception):
    """What is known of a directory is not about the one that the branch has."""


class _Way(NamedTuple):
    """How to a directory of the upper: what was found, its path, what it shows of the layers beneath, and its twin in the branch.

    Attributes:
        found: The directory in the upper.
        path: Its path there.
        base_path: The path of what it shows of the layers beneath; None for nothing.
        node: The directory of the branch.
        known: What will be known of it.
    """

    found: Found
    path: bytes
    base_path: bytes | None
    node: Inode
    known: Known


class Takeover:
    """One takeover.

    Args:
        tree: The branch.
        base: What lies beneath the upper directory.
        upper: The upper directory.
        state: What the last takeover knew; apply() changes it.
        since_ns: When the run began. What the lower has changed since then, nobody knows whether the run has seen.
        by: Reports the changes.
    """

    def __init__(self, tree: Tree, base: Tree, upper: Descent, state: UpperState, since_ns: int, by: TakeoverReporter) -> None:
        self._tree, self._base, self._upper, self._state, self._by = tree, base, upper, state, by
        self._doubts = LowerDoubts(tree, since_ns)
        self._aside: dict[int, Inode] = {}
        self._visited: list[tuple[Inode, Found]] = []  # directories
        self._placed: set[int] = set()  # inode numbers of directories
        self._given: set[int] = set()  # inode ids of the branch's directories that have a directory of the upper

    def look(self) -> Found:
        """Find what has changed. It may run in a thread of its own, beside all others. OSError."""
        with self._upper:
            return scan(self._upper, self._state.known)

    def apply(self, found: Found) -> bool:
        """Take over what look() has found; return whether the branch may have changed. OSError changes nothing."""
        if not (found.has_changed or found.children):
            return False
        try:
            self._apply(found)
        except _Unrecognised:
            self._apply(self.look())
        except OSError as exc:
            if exc.errno not in NO_ROOM or not self._tree.store.reserve.use():
                raise
            self._apply(self.look())  # it may be what frees room
        return True

    def _apply(self, found: Found) -> None:
        state, self._state = self._state, UpperState(self._state.known, dict(self._state.files), dict(self._state.directories))
        self._aside, self._visited, self._placed, self._given = {}, [], set(), set()
        self._aside_numbers = itertools.count(1)
        try:
            with self._tree.store.as_one(), UnlockedDirectories() as self._unlocked:
                self._twins = TwinDirectories(self._tree, self._base, self._state.directories)
                self._move_aside(found)
                known = self._all_below(found)
                for left in self._aside.values():
                    if left.id not in self._given:
                        self._remove(self._tree.root, left.name)
                for node, directory in self._visited:  # last: what happens in one directory may touch another
                    self._settle_directory(node, directory)
        except BaseException:
            state.known = None  # nothing of it is in the branch now; what was there before is still there
            raise
        else:
            state.known, state.files, state.directories = known, self._state.files, self._state.directories
        finally:
            self._state = state
            self._upper.close()

    # -- directories that were renamed

    def _move_aside(self, root: Found) -> None:
        """Move renamed directories out of the way, before what had their names, or was above them, is removed."""
        for found, node in list(self._renamed(root)):
            if node.parent is None or found.status.st_ino in self._aside or self._is_aside(node.id):
                continue
            self._aside[found.status.st_ino] = node
            name = next(name for name in map(_ASIDE.__mod__, self._aside_numbers) if self._is_free(self._tree.root, name))
            requested_changes.rename(self._by, self._tree, node.parent, node.name, self._tree.root, name)

    def _renamed(self, root: Found) -> Iterator[tuple[Found, Inode]]:
        """Yield the directories of the upper that are elsewhere in the branch, and where."""
        todo: list[tuple[Found, Inode | None, bytes | None]] = [(root, self._tree.root, b"")]
        while todo:
            directory, node, base_path = todo.pop()
            for found in directory.children:
                if not found.is_dir:
                    self._recall(found, node)
                    continue
                below = path_beneath(found, base_path)
                here = self._tree.find(node, found.name) if node is not None and node.is_dir else None
                twin = self._twins.find(found, self._twins.beneath(below), here)
                if twin is not None and twin is not here:
                    yield found, twin
                todo.append((found, twin or here, below))

    def _recall(self, found: Found, node: Inode | None) -> None:
        """Recognise, when nothing is known yet, a file that was taken over before, so that its names stay names of one file."""
        if self._state.known is None and node is not None and stat.S_ISREG(found.status.st_mode) and found.status.st_nlink > 1:
            existing = self._tree.find(node, found.name) if node.is_dir else None
            if existing is not None and existing.is_file:
                self._present(found, existing)

    # -- one directory

    def _all_below(self, root: Found) -> Known:
        """Take over everything. Directories may be deeper than Python's stack."""
        known = Known(signature(root.status), marks=root.marks)
        todo: list[_Way] = [_Way(root, b"", b"", self._tree.root, known)]
        while todo:
            todo += reversed(self._directory(todo.pop()))
        return known

    def _directory(self, way: "_Way") -> list["_Way"]:
        """Take over the names in a directory, and return the ways to the directories in it."""
        found, path, base_path, node, known = way
        self._visited.append((node, found))
        if found.is_gone:
            known.signature = known.signature._replace(ctime_ns=-1)  # so that the next scan finds it changed
            return []
        base, names = self._twins.beneath(base_path), known.names
        if found.has_changed:
            self._drop_vanished(found, node, base)
        before = found.before.names if found.before is not None else {}
        names.update((name, old) for name, old in before.items() if name in found.names)
        self._unlock(found, path, known)
        fresh: list[Found] = []
        directories: list[_Way] = []
        for child in found.children:
            if child.is_whiteout:
                self._hide(node, child.name)
                names[child.name] = Known(signature(child.status))
            elif child.is_dir and child.status.st_ino in self._placed:  # met twice, while it was renamed
                names.pop(child.name, None)
            elif child.is_dir:
                self._placed.add(child.status.st_ino)
                below = path_beneath(child, base_path)
                made = self._place(child, node, below, base)
                names[child.name] = Known(signature(child.status), marks=child.marks)
                directories.append(_Way(child, join(path, child.name), below, made, names[child.name]))
            elif child.has_changed and self._is_free(node, child.name):
                fresh.append(child)
            elif child.has_changed and (fd := open_found(self._upper, path, found)) >= 0:
                self._file(child, fd, node, names)
        if fresh and (fd := open_found(self._upper, path, found)) >= 0:
            self._make(fresh, fd, node, names)
        return directories

    def _unlock(self, found: Found, path: bytes, known: Known) -> None:
        def relocked(status: os.stat_result) -> None:
            known.signature = signature(status)

        if path and found.children and is_locked(found.status):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                self._unlocked.unlock(self._upper.fd(path.rpartition(b"/")[0]), found.name, found.status, relocked)

    def _is_free(self, node: Inode, name: bytes) -> bool:
        return (node.lower_path is None and name not in self._tree.entries(node)) or self._tree.find(node, name) is None

    def _drop_vanished(self, found: Found, node: Inode, base: Inode | None) -> None:
        """Remove the names that the branch has and the run has removed: neither the upper nor what lies beneath shows them."""
        for name, child in list(self._tree.entries(node).items()) if node.id else ():
            if is_whiteout(child) or name in found.names or self._is_aside(child):
                continue
            if base is None or self._base.find(base, name) is None:
                self._remove(node, name)

    def _is_aside(self, number: int) -> bool:
        return any(number == inode.id for inode in self._aside.values())

    def _hide(self, node: Inode, name: bytes) -> None:
        if self._tree.find(node, name) is not None:
            self._remove(node, name)
        elif node.lower_path is not None and name not in self._tree.entries(node):  # the lower had it, and may have it again
            with self._tree.store.transaction() as tx:
                copyup.materialize(tx, node, itself=False)
                copyup.set_entry(tx, node, name, WHITEOUT)

    def _remove(self, node: Inode, name: bytes) -> None:
        """Remove a name with all that is below it."""
        todo = [(node, name, False)]
        while todo:  # trees may be deeper than Python's stack
            directory, below, is_empty = todo.pop()
            inode = self._tree.lookup(directory, below)
            if inode.is_dir and not is_empty:
                todo.append((directory, below, True))
                todo += [(inode, each, False) for each in self._tree.names(inode)]
                continue
            is_uncertain = self._doubts.is_uncertain(directory, below)
            (requested_changes.rmdir if inode.is_dir else requested_changes.unlink)(self._by, self._tree, directory, below)
            if is_uncertain:
                origin.doubt(directory, below)

    def _place(self, found: Found, node: Inode, base_path: bytes | None, base: Inode | None) -> Inode:
        """Return the directory of the branch for one of the upper, after moving or making it."""
        existing, number, beneath = self._tree.find(node, found.name), found.status.st_ino, self._twins.beneath(base_path)
        twin = self._aside.pop(number, None) or self._twins.find(found, beneath, existing)
        if twin is not None and twin.id in self._given:  # inode numbers are given again: two may lead to one directory
            twin = None
        if existing is not None and existing is not twin:
            if twin is None and beneath is None and self._may_stay(existing, node, found, base):
                twin = existing
            else:
                if existing.id or not existing.is_dir or not self._doubts.may_be_unseen(node, found.name):
                    self._remove(node, found.name)
                existing = None
        if existing is None and twin is not None and twin.parent is not None:
            requested_changes.rename(self._by, self._tree, twin.parent, twin.name, node, found.name)
            existing = twin
        if existing is None and beneath is not None:
            existing = self._twins.revive(beneath, node, found.name, self._by)
        if existing is None:
            existing = new_entries.make_directory(self._tree, node, found, self._by)
        if not existing.id:
            with self._tree.store.transaction() as tx:
                copyup.materialize(tx, existing, itself=False)
        if found.before is not None and self._state.directories.get(number) != existing.id:
            raise _Unrecognised
        self._state.directories[number] = existing.id
        self._given.add(existing.id)
        return existing

    def _may_stay(self, existing: Inode, node: Inode, found: Found, base: Inode | None) -> bool:
        """Return whether a directory of the branch can be one of the upper that shows nothing of the layers beneath."""
        if not existing.is_dir or not existing.id:
            return False
        beneath = self._base.entries(base).get(found.name) if base is not None and base.id else None
        return beneath != existing.id and (existing.lower_path is None or self._tree.joins_lower(node, found.name))

    # -- files

    def _make(self, fresh: list[Found], fd: int, node: Inode, names: dict[bytes, Known]) -> None:
        """Make names that the branch does not have, all in one step; names of one file lead to one file."""
        first: list[Found] = []
        more: list[Found] = []
        numbers: set[int] = set()
        for found in fresh:
            is_linked = stat.S_ISREG(found.status.st_mode) and found.status.st_nlink > 1
            if is_linked and (found.status.st_ino in numbers or self._present(found) is not None):
                more.append(found)
            else:
                first.append(found)
                numbers.add(found.status.st_ino)
        for found, number, known in new_entries.make(self._tree, node, fd, first, self._by):
            if stat.S_ISREG(known.signature.mode):
                self._state.files[known.signature.ino] = number
            names[found.name] = known
        copies = [found.name for found in first if found.marks.is_copy]
        for name in copies if copies and self._doubts.may_lack(node) else ():
            origin.doubt(node, name)
        for found in more:
            self._link(found, fd, node, names)

    def _present(self, found: Found, existing: Inode | None = None) -> Inode | None:
        """Return the branch's file whose content object is that file of the upper.

        *existing*: what the branch has at its name, if anything.
        """
        number = self._state.files.get(found.status.st_ino)
        for inode in (existing, self._tree.find_stored(number) if number is not None else None):
            if inode is None or not inode.content or not copyup.is_owned(inode):
                continue
            if inode_stat.data_stat(inode).st_ino == found.status.st_ino:
                self._state.files[found.status.st_ino] = inode.id
                return inode
        return None

    def _link(self, found: Found, fd: int, node: Inode, names: dict[bytes, Known]) -> None:
        inode = self._present(found)
        if inode is None:  # its other name has vanished meanwhile
            return
        requested_changes.link(self._by, self._tree, inode, node, found.name)
        found.status = inode_stat.data_stat(inode)
        self._settle(inode, found)
        is_as_found = new_entries.has_xattrs_of(found, fd)
        names[found.name] = Known(signature(found.status)) if is_as_found else uncertain(found.status)

    def _file(self, found: Found, fd: int, node: Inode, names: dict[bytes, Known]) -> None:
        """Take over a name that the branch has already."""
        existing = self._tree.lookup(node, found.name)
        same_type = stat.S_IFMT(existing.mode) == stat.S_IFMT(found.status.st_mode)
        present = self._present(found, existing) if same_type and existing.is_file else None
        if present is existing and is_locked(found.status):  # we could not read it any more
            self._change(existing, found, fd, node, names)
        elif present is existing:
            self._settle(existing, found)
            self._by.file_changed(existing, data=True)
            self._by.tell_write(existing)
            names[found.name] = Known(signature(found.status))
        elif present is None and same_type and self._is_same_file(existing, found, names.get(found.name)):
            self._change(existing, found, fd, node, names)
        else:
            self._replace(found, fd, node, names)

    @staticmethod
    def _is_same_file(existing: Inode, found: Found, before: Known | None) -> bool:
        """Return whether a file of the upper is the branch's file, changed; else it has replaced that."""
        if stat.S_ISLNK(found.status.st_mode) and existing.tree.readlink(existing) != found.target:
            return False
        if not (existing.is_file or stat.S_ISLNK(existing.mode)):
            return existing.rdev == found.status.st_rdev
        is_same = found.marks.is_copy or (before is not None and before.signature.ino == found.status.st_ino)
        return is_same and (not existing.is_file or inode_stat.attributes(existing).nlink == 1)

    def _change(self, existing: Inode, found: Found, fd: int, node: Inode, names: dict[bytes, Known]) -> None:
        known, is_uncertain = Known(signature(found.status)), self._doubts.is_uncertain(node, found.name)
        if existing.is_file:
            with self._tree.store.transaction() as tx:
                try:
                    number, status, known = new_entries.take(tx, self._tree, fd, found)
                except FileNotFoundError:
                    return
                copyup.adopt_content(existing, number, new_entries.attributes_of(found, status))
                tx.when_undone(lambda: self._reopen(existing))
                self._reopen(existing)
            self._state.files[status.st_ino] = existing.id
            requested_changes.content_changed(self._by, existing)
        else:
            self._settle(existing, found)
        if is_uncertain:
            origin.doubt(node, found.name)
        names[found.name] = known

    def _reopen(self, inode: Inode) -> None:
        inode.release_files()
        if inode.opens and inode.content:
            inode.file = self._tree.backstore.open(inode.content)

    def _replace(self, found: Found, fd: int, node: Inode, names: dict[bytes, Known]) -> None:
        is_unseen = self._doubts.is_uncertain(node, found.name)
        self._remove(node, found.name)
        self._make([found], fd, node, names)
        if is_unseen:
            origin.doubt(node, found.name)

    def _settle_directory(self, node: Inode, found: Found) -> None:
        if found.has_changed:
            self._settle(node, found)
        elif node.row_layer and node.mtime_ns != found.status.st_mtime_ns:
            with self._tree.store.transaction() as tx:
                tx.set(node, mtime_ns=found.status.st_mtime_ns)
                copyup.save(tx, node)
            self._by.names_changed(node)

    def _settle(self, inode: Inode, found: Found) -> None:
        """Give an inode the attributes that the upper's has."""
        look, now = new_entries.attributes_of(found), inode_stat.attributes(inode)
        if inode is self._tree.root and not _may_give(now.uid, now.gid):  # nor can the run: it saw a root of our own
            look = look._replace(uid=now.uid, gid=now.gid)
        is_same = (now.mode, now.uid, now.gid) == look[:3] and all_xattrs(self._tree, inode) == look.xattrs
        if is_same and now.mtime_ns == look.mtime_ns:
            return
        with self._tree.store.transaction() as tx:
            copyup.materialize(tx, inode)
            copyup.set_look(tx, inode, look)
            copyup.save(tx, inode)
        if inode.is_dir:
            self._by.names_changed(inode)
        else:
            self._by.file_changed(inode, data=False)
        if not is_same:
            self._by.tell("attributes", inode)


def _may_give(uid: int, gid: int) -> bool:
    """Return whether we may give files to an owner and a group."""
    return os.geteuid() == 0 or (uid == os.geteuid() and gid in (os.getegid(), *os.getgroups()))
