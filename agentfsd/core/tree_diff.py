"""Finds the differences between two trees of one overlay. It walks only directories with changes in layers that the trees do
not share; touched_names.py knows them.

A name that the lower got where the new tree had made something itself was never seen there, so it is not reported as deleted.
"""

import stat
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator
from typing import NamedTuple

from agentfsd.core import inode_stat, origin
from agentfsd.core.content_comparison import ComparisonResults, compare, holds_object, same_bytes
from agentfsd.core.inode import Attributes
from agentfsd.core.inode_attributes import all_xattrs
from agentfsd.core.named_paths import NamedPaths
from agentfsd.core.seen_names import Removals
from agentfsd.core.touched_names import TouchedNames
from agentfsd.core.tree import Inode, Parts, Tree, join

_LETTERS = (("type", "T"), ("content", "M"), ("mode", "m"), ("owner", "m"), ("xattrs", "x"))

_Key = tuple[int, int]
# A path, and the directory there in the old and in the new tree. None: it is removed, except for names the new tree never saw.
_Directories = tuple[bytes, Inode, Inode | None]


class EntryPair(NamedTuple):
    """One path that differs. ``old`` or ``new`` is None if that tree has no such name.

    ``what`` lists what differs if both have it: type alone, or some of content, mode, owner, xattrs and times.
    """

    path: bytes
    old: Inode | None
    new: Inode | None
    what: tuple[str, ...]
    within: Inode | None = None  # the new tree's directory that holds (or held) the name
    shown: Attributes | None = None  # attributes of ``new``, if they were read
    unseen: bytes = b""  # if another type replaced a directory: a path below it that the new tree has never seen


_Group = defaultdict[_Key, list[EntryPair]]


def pairs(parts: Parts, old: Tree, new: Tree, *, times: bool = False) -> Iterator[EntryPair]:
    """Yield every path that differs, each directory before its content, with each name below an added or removed directory.

    With *times*, modification times are compared too. The trees must not change meanwhile.
    """
    return (pair for pair in pairs_in_steps(parts, old, new, times=times) if pair is not None)


def pairs_in_steps(
    parts: Parts, old: Tree, new: Tree, *, times: bool = False, unseen: list[bytes] | None = None
) -> Iterator[EntryPair | None]:
    """Do the same as pairs() in steps: also yield None where the caller may let other work run.

    Args:
        unseen: Receives each path of the lower that *old* shows and *new* lacks without having removed it.
    """
    touched = TouchedNames(old, new)
    walker = Walker(touched, ComparisonResults(), times=times, in_steps=True)
    walker.unseen = unseen if unseen is not None else []
    try:
        yield from touched.reading(parts.store)
        touched.add_links()
        for pair in walker.settled(walker.directory(b"", old.root, new.root, itself=True)):
            yield pair
            if pair is not None:
                yield from _below(walker, pair)
    finally:
        touched.forget()


def pairs_at(old: Tree, new: Tree, paths: Iterable[bytes]) -> Iterator[EntryPair | None]:
    """Yield the pair of each of the *paths* that differs, without those below it; None as pairs_in_steps() does."""
    walker = Walker(TouchedNames(old, new), ComparisonResults(), in_steps=True)
    return walker.settled(walker.at(paths))


def pair_at(old: Tree, new: Tree, path: bytes, *, times: bool = False) -> EntryPair | None:
    """Return the pair of one path in two trees that show different lowers; None if they do not differ there.

    What only the old tree has counts as removed, whoever removed it. *times*: as for pairs().
    """
    parent, _, name = path.rpartition(b"/")
    within, before = _directory_at(new, parent), _directory_at(old, parent)
    if not path:
        was: Inode | None = old.root
        now: Inode | None = new.root
    else:
        was = old.find(before, name) if before is not None else None
        now = new.find(within, name) if within is not None else None
    if was is None or now is None:
        return None if was is now else EntryPair(path, was, now, (), within)
    differences = Walker(TouchedNames(old, new), None, times=times).differences(was, now)
    return EntryPair(path, was, now, differences, within) if differences else None


def only_lower_moved(pair: EntryPair) -> bool:
    """Tell whether a file differs only because the lower's changed: the branch copied it up, but never changed its content.

    The test compares the branch's file with the content that the lower had then. It is False if that is not kept: core/origin.py.
    """
    old, new = pair.old, pair.new
    if old is None or new is None or pair.within is None or not (old.is_file and new.is_file and new.content):
        return False
    row = origin.found_at(pair.within, pair.path.rpartition(b"/")[2], new)
    if old.has_own_data or row is None or origin.identity_of(row) == old.lower:
        return False
    if row.lower_size != inode_stat.data_stat(new).st_size:
        return False
    if row.lower_size and not (row.base and holds_object(new, row.base)):
        return False
    was, now = inode_stat.attributes(old), inode_stat.attributes(new)
    return (was.mode, was.uid, was.gid) == (now.mode, now.uid, now.gid) and all_xattrs(old.tree, old) == all_xattrs(new.tree, new)


class Walker:
    """Walks through two trees, where their names may differ.

    Attributes:
        named: The paths that it walks to; it leaves out everything else.
    """

    def __init__(
        self, touched: TouchedNames, verdicts: ComparisonResults | None, *, times: bool = False, in_steps: bool = False
    ) -> None:
        self.named = NamedPaths()
        self.old, self.new = touched.old, touched.new
        self.touched, self._times, self._verdicts, self._in_steps = touched, times, verdicts, in_steps
        self.unseen: list[bytes] = []
        self._removals = Removals(touched.old, touched.new)

    def directory(self, path: bytes, old: Inode, new: Inode | None, *, itself: bool = False) -> Iterator[EntryPair]:
        """Yield the names that differ below two directories, but none below a name that only one of them has.

        With *itself*, compare the two directories themselves too.
        """
        if itself and (differences := self.differences(old, new)):
            yield EntryPair(path, old, new, differences)
        under_way = [self._inside(path, old, new)]  # trees may be deeper than Python's stack
        while under_way:
            changed = next(under_way[-1], None)
            if changed is None:
                under_way.pop()
                continue
            pair, further = changed
            if pair is not None:
                yield pair
            if further is not None:
                under_way.append(self._inside(*further))

    def at(self, paths: Iterable[bytes]) -> Iterator[EntryPair]:
        """Yield the pair of each path that differs, if both trees have the directory that holds it, or only the new one."""
        known: bytes | None = None
        within = before = None
        for path in paths:
            parent, _, name = path.rpartition(b"/")
            if parent != known:
                known, within, before = parent, _directory_at(self.new, parent), _directory_at(self.old, parent)
            new_entry = inode_stat.look(self.new, within, name) if within is not None else None
            old_entry = inode_stat.look(self.old, before, name) if before is not None else None
            if old_entry is not None and new_entry is None:
                found, _ = self._gone(path, old_entry[0], within)
            else:
                found = self._pair(path, old_entry, new_entry, within)
            if found is not None:
                yield found

    def settled(self, found: Iterable[EntryPair]) -> Iterator[EntryPair | None]:
        """Yield the pairs that really differ. In steps, files of equal size are read here, and None is yielded at each step."""
        for pair in found:
            differences = yield from self._settled(pair.what)
            if differences or not pair.what:
                yield pair if differences is pair.what else pair._replace(what=differences)

    def moved(self, old: EntryPair, new: EntryPair) -> Iterator[EntryPair | None]:
        """Yield the pair of something removed under one name and added under another, with None as in settled()."""
        differences = yield from self._settled(self.differences(old.old, new.new))
        yield new._replace(old=old.old, what=differences)

    def _settled(self, differences: tuple[str, ...]) -> Generator[None, None, tuple[str, ...]]:
        unread = self._verdicts.open if self._in_steps and self._verdicts is not None else ()
        if unread and (yield from compare(*unread.pop())):
            return tuple(part for part in differences if part != "content")
        return differences

    def _inside(self, path: bytes, old: Inode, new: Inode | None) -> Iterator[tuple[EntryPair | None, _Directories | None]]:
        """Yield for each name in two directories the pair if it differs, and the two directories to continue in, if any."""
        for name in self._reached(path, self._names(path, old, new)):
            below, old_entry, new_entry = (
                join(path, name),
                inode_stat.look(self.old, old, name),
                inode_stat.look(self.new, new, name) if new is not None else None,
            )
            if old_entry is not None and new_entry is None:
                yield self._gone(below, old_entry[0], new)
            elif old_entry is not None and new_entry is not None and old_entry[0].is_dir and new_entry[0].is_dir:
                yield self._pair(below, old_entry, new_entry, new), (below, old_entry[0], new_entry[0])
            else:
                yield self._pair(below, old_entry, new_entry, new), None

    def _reached(self, path: bytes, names: Iterable[bytes]) -> list[bytes]:
        """Return which names of a directory lead to what is named, in their order."""
        return sorted(names if self.named.is_all else (name for name in names if self.named.leads(join(path, name))))

    def _names(self, path: bytes, old: Inode, new: Inode | None) -> set[bytes]:
        """Return the names that may differ."""
        if new is None:
            return set(self.old.names(old))
        if old.id == new.id != 0 or (old.lower_path is not None and old.lower_path == new.lower_path):
            names = self.touched.names.get(old.id, set()) | self.touched.names.get(new.id, set())
            return names | self.touched.below.get(path, set())
        return set(self.old.names(old)) | set(self.new.names(new))

    def _pair(
        self, path: bytes, old: tuple[Inode, Attributes] | None, new: tuple[Inode, Attributes] | None, within: Inode | None
    ) -> EntryPair | None:
        if old is None or new is None:
            return None if old is new else EntryPair(path, old and old[0], new and new[0], (), within, new and new[1])
        differences = self._differences(*old, *new)
        unseen = self._removals.unseen_below(path, old[0]) if "type" in differences and old[0].is_dir else b""
        return EntryPair(path, old[0], new[0], differences, within, new[1], unseen) if differences else None

    def _gone(self, path: bytes, old: Inode, within: Inode | None) -> tuple[EntryPair | None, _Directories | None]:
        """Return the pair of a name that only *old* has; None if it is in the lower and the new tree never saw it.

        A directory that contains names the new tree never saw does not count as removed. The walk continues in it, and finds the
        other names in it to be removed. *within*: as in EntryPair.
        """
        if not self._removals.was_removed(path, old, within):
            self.unseen.append(path)
            return None, None
        if old.is_dir and self._removals.unseen_below(path, old):
            return None, (path, old, None)
        return EntryPair(path, old, None, (), within), None

    def below(self, pair: EntryPair) -> Iterator[EntryPair]:
        """Yield the names directly inside a directory that was added or removed, or that changed from or to another type."""
        if pair.old is not None and pair.new is not None and "type" not in pair.what:
            return
        if pair.old is not None and pair.old.is_dir:
            yield from self.directory(pair.path, pair.old, None)
        if pair.new is not None and pair.new.is_dir:
            for name in self._reached(pair.path, self.new.names(pair.new)):
                yield EntryPair(join(pair.path, name), None, self.new.lookup(pair.new, name), (), pair.new)

    def differences(self, old: Inode | None, new: Inode | None) -> tuple[str, ...]:
        assert old is not None and new is not None
        return self._differences(old, inode_stat.attributes(old), new, inode_stat.attributes(new))

    def _differences(self, old: Inode, was: Attributes, new: Inode, now: Attributes) -> tuple[str, ...]:
        if stat.S_IFMT(old.mode) != stat.S_IFMT(new.mode):
            return ("type",)
        differences = []
        if not _same(old, new, was, now, self._verdicts):
            differences.append("content")
        if was.mode != now.mode:
            differences.append("mode")
        if (was.uid, was.gid) != (now.uid, now.gid):
            differences.append("owner")
        if not _share_xattrs(old, new) and all_xattrs(self.old, old) != all_xattrs(self.new, new):
            differences.append("xattrs")
        if self._times and was.mtime_ns != now.mtime_ns:
            differences.append("times")
        return tuple(differences)


def _share_xattrs(old: Inode, new: Inode) -> bool:
    """Tell whether both show the extended attributes of the same lower file, or none. That needs no look at the lower."""
    return old.xattrs is None and new.xattrs is None and _share_lower(old, new)


def _share_lower(old: Inode, new: Inode) -> bool:
    """Tell whether two inodes without data of their own show the same object of the lower, which may have two frozen states."""
    return old.lower_path == new.lower_path and (old.tree.lower is new.tree.lower or old.lower == new.lower)


def _directory_at(tree: Tree, path: bytes) -> Inode | None:
    try:
        found = tree.walk(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found if found.is_dir else None


def same_content(old: Inode, new: Inode) -> bool:
    """Tell whether two inodes of one type have the same data, target or device number. Two directories always have."""
    return _same(old, new, inode_stat.attributes(old), inode_stat.attributes(new))


def _same(old: Inode, new: Inode, was: Attributes, now: Attributes, verdicts: ComparisonResults | None = None) -> bool:
    if old.is_file:
        if old.content == new.content and (old.content or _share_lower(old, new)):
            return True
        return was.size == now.size and (same_bytes(old, new) if verdicts is None else verdicts.of(old, new))
    if stat.S_ISLNK(old.mode):
        return old.tree.readlink(old) == new.tree.readlink(new)
    return old.is_dir or was.rdev == now.rdev


def _below(walker: Walker, pair: EntryPair) -> Iterator[EntryPair]:
    under_way = [walker.below(pair)]
    while under_way:
        child = next(under_way[-1], None)
        if child is None:
            under_way.pop()
            continue
        yield child
        under_way.append(walker.below(child))
