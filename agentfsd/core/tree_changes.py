"""Lists the changes between two trees: what tree_diff.py finds, with a moved file or directory as one change.

With some named paths only these are walked to, unless one of them may be half of a move.
"""

import itertools
import stat
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator

from agentfsd.core import inode_stat, origin
from agentfsd.core.content_comparison import ComparisonResults, run_to_end
from agentfsd.core.move_traces import MoveTraces
from agentfsd.core.named_paths import NamedPaths
from agentfsd.core.touched_names import TouchedNames
from agentfsd.core.tree import Inode, Parts, Tree
from agentfsd.core.tree_diff import EntryPair, Walker
from agentfsd.types import PathChange

_LETTERS = (("type", "T"), ("content", "M"), ("mode", "m"), ("owner", "m"), ("xattrs", "x"))

_Key = tuple[int, int]
_Group = defaultdict[_Key, list[EntryPair]]


def between(
    parts: Parts, old: Tree, new: Tree, verdicts: ComparisonResults | None = None, *, named: NamedPaths | None = None
) -> list[PathChange]:
    """Return the changes that lead from *old* to *new*, sorted by path.

    A moved directory is one change; a name inside it is listed only if it changed too. With *verdicts* no file content is read:
    two files whose comparison *verdicts* does not know count as different, and are added to ``verdicts.open``. With *named*,
    changes elsewhere may be left out, but none of these paths, or below them, or of a directory above that was moved.
    """
    return run_to_end(_changes(parts, Walker(TouchedNames(old, new), verdicts), named))


def between_in_steps(
    parts: Parts, old: Tree, new: Tree, verdicts: ComparisonResults | None = None, *, named: NamedPaths | None = None
) -> Generator[tuple[int, int, str], None, list[PathChange]]:
    """Do the same as between() in steps: yield (done, total, what) where the caller may let other work run.

    The trees must not change meanwhile.
    """
    return _changes(parts, Walker(TouchedNames(old, new), verdicts or ComparisonResults(), in_steps=True), named)


def paths_in_steps(parts: Parts, old: Tree, new: Tree) -> Generator[tuple[int, int, str], None, list[bytes]]:
    """Return the paths of the changes that between_in_steps() returns, which is less work."""
    found = list[bytes]()
    for one in _listed(parts, Walker(TouchedNames(old, new), ComparisonResults(), in_steps=True)):
        if one is not None:
            found.append(one[1].path)
        yield len(found), 0, "comparing"
    return found


def _changes(parts: Parts, walker: Walker, named: NamedPaths | None) -> Generator[tuple[int, int, str], None, list[PathChange]]:
    changes = list[PathChange]()
    for step in _listed(parts, walker, named):
        if step is not None:
            changes.append(_change(walker, *step))
        yield len(changes), 0, "comparing"
    return sorted(changes, key=lambda change: change.path)


def _listed(
    parts: Parts, walker: Walker, named: NamedPaths | None = None
) -> Iterator[tuple[bytes, EntryPair] | None]:  # fmt: skip
    """Yield what _with_renames() yields of the two whole trees, or less with *named*: see between()."""
    touched = walker.touched
    try:
        for _ in touched.reading(parts.store):
            yield None
        if named is not None and not named.is_all:
            found = yield from _at_named(walker, named)
            if found is not None:
                yield from ((b"", pair) for pair in found)
                return
        yield from _with_renames(walker, _from_root(walker))
    finally:
        touched.forget()


def _from_root(walker: Walker) -> Iterator[EntryPair | None]:
    return walker.settled(walker.directory(b"", walker.old.root, walker.new.root, itself=True))


def _at_named(walker: Walker, named: NamedPaths) -> Generator[None, None, list[EntryPair] | None]:
    """Return the pairs on the way to the named paths and below them; None if one of them may be half of a move."""
    traces, found = MoveTraces(walker.touched), list[EntryPair]()
    walker.named = named
    under_way = [_from_root(walker)]
    while under_way:
        for pair in under_way.pop():
            if pair is None:
                yield
                continue
            if _may_be_moved(traces, pair):
                walker.named = NamedPaths()
                return None
            found.append(pair)
            under_way.append(walker.below(pair))
    return found


def _may_be_moved(traces: MoveTraces, pair: EntryPair) -> bool:
    if pair.old is None:
        return pair.new is not None and traces.may_have_come(pair.new)
    return pair.new is None and traces.may_have_gone(pair.old)


def _with_renames(walker: Walker, found: Iterable[EntryPair | None]) -> Iterator[tuple[bytes, EntryPair] | None]:
    """Yield (old path, pair) for each change, and None at each other step. The old path is b"" if nothing was renamed.

    An added or removed directory that was not renamed is opened: the names in it may have been moved from or to anywhere.
    """
    came, gone = _Group(list), _Group(list)
    further: list[Iterable[EntryPair | None]] = [found]
    while further:
        stayed = yield from _sorted_out(itertools.chain.from_iterable(further), came, gone)
        yield from ((b"", pair) for pair in stayed)
        further = [walker.below(pair) for pair in stayed]
        for old, new in _matches(came, gone):
            yield from (pair and (old.path, pair) for pair in walker.moved(old, new))
            if old.old is not None and new.new is not None and new.new.is_dir:
                further.append(walker.settled(walker.directory(new.path, old.old, new.new)))
        for pair in [*_directories(came), *_directories(gone)]:
            yield b"", pair
            further.append(walker.below(pair))
    for group in (came, gone):
        yield from ((b"", pair) for those in group.values() for pair in those)


def _sorted_out(found: Iterable[EntryPair | None], came: _Group, gone: _Group) -> Generator[None, None, list[EntryPair]]:
    """Collect the added pairs in *came* and the removed ones in *gone*, and return the others."""
    stayed = []
    for pair in found:
        yield
        if pair is not None and pair.old is None:
            came[_key(pair.new)].append(pair)
        elif pair is not None and pair.new is None:
            gone[_key(pair.old)].append(pair)
        elif pair is not None:
            stayed.append(pair)
    return stayed


def _matches(came: _Group, gone: _Group) -> Iterator[tuple[EntryPair, EntryPair]]:
    """Take the pairs (gone, came) of the same file or directory out of the groups, and yield them."""
    for key in came.keys() & gone.keys():
        while came[key] and gone[key]:
            yield gone[key].pop(0), came[key].pop(0)


def _directories(group: _Group) -> list[EntryPair]:
    """Take the pairs of directories out of *group*, and return them."""
    return [pair for key in [key for key in group if stat.S_ISDIR(key[1])] for pair in group.pop(key)]


def _key(inode: Inode | None) -> _Key:
    """Return inode number and type: they are the same on both sides if only the name changed."""
    assert inode is not None
    return inode.ino, stat.S_IFMT(inode.mode)


def _change(walker: Walker, old_path: bytes, pair: EntryPair) -> PathChange:
    path, old, new, differences, within, *_ = pair
    if old_path:
        status = "R"
    elif old is None or new is None:
        status = "A" if old is None else "D"
    else:
        status = next(letter for sort, letter in _LETTERS if sort in differences)
    moved = within is not None and origin.has_moved(walker.new, within, path.rpartition(b"/")[2], new)
    return PathChange(status, path, _size(walker.old, old), _size(walker.new, new), moved, old_path, differences)


def _size(tree: Tree, inode: Inode | None) -> int:
    if inode is None:
        return -1
    return inode_stat.data_stat(inode).st_size if inode.is_file else 0
