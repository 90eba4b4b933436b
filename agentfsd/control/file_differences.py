"""List the files that differ between two states, and count files. This module sees no request."""

import stat
from collections.abc import Callable, Iterable, Iterator

from agentfs_client import wire
from agentfsd.control.cooperative import Steps
from agentfsd.control.reply_records import wire_repository
from agentfsd.core import inode_stat
from agentfsd.core.tree import Inode, Parts, Tree
from agentfsd.core.tree_changes import paths_in_steps
from agentfsd.core.tree_diff import pairs_in_steps
from agentfsd.repositories.git_internals import GitInternals
from agentfsd.repositories.telling import Told, tell


def files(
    parts: Parts, old: Tree, new: Tree, *, count: bool, hides: Callable[[bytes], bool], histories: bool = False,
    internal: bool = True,
) -> Steps[wire.FilesDifferReply]:  # fmt: skip
    """List the files that differ between two trees, which must not change meanwhile.

    Args:
        parts: The parts of the overlay.
        old: The tree to compare with.
        new: The tree that is compared.
        count: Also count the files that are the same, which walks all of *old*.
        hides: Tells which paths the caller must not see.
        histories: Say what was committed with git.
        internal: List git's own files, too.
    """
    added, modified, deleted = list[bytes](), list[bytes](), list[bytes]()
    for done, pair in enumerate(pairs_in_steps(parts, old, new)):
        yield done, 0, "comparing"
        if pair is None or hides(pair.path):
            continue
        had, has = _is_file(pair.old), _is_file(pair.new)
        if had or has:
            (modified if had and has else deleted if had else added).append(pair.path)
    unchanged = -1
    if count:
        unchanged = (yield from _count(old)) - len(modified) - len(deleted)
    repositories = list[Told]()
    if histories:
        paths = yield from paths_in_steps(parts, old, new)
        repositories = yield from tell(parts, old, new, [path for path in paths if not hides(path)])
    if not internal:
        internals = GitInternals(old, new)
        added, modified, deleted = (internals.without(some, lambda path: path) for some in (added, modified, deleted))
    return wire.FilesDifferReply(
        added=_names(added), modified=_names(modified), deleted=_names(deleted), unchanged=unchanged,
        repositories=[wire_repository(told) for told in repositories],
    )  # fmt: skip


def _is_file(inode: Inode | None) -> bool:
    return inode is not None and not inode.is_dir


def _names(paths: Iterable[bytes]) -> list[wire.PathName]:
    return [wire.PathName(**wire.path_fields(path)) for path in sorted(paths)]


def _count(tree: Tree) -> Steps[int]:
    total = 0
    for directory in _directories(tree, tree.root):
        total += sum(not stat.S_ISDIR(kind) for _, kind in tree.kinds(directory))
        yield total, 0, "counting"
    return total


def count(tree: Tree, directory: Inode) -> Steps[wire.FilesCounted]:
    """Count the files beneath a directory, and add up their sizes in bytes."""
    files = size_bytes = 0
    for inside in _directories(tree, directory):
        for name in tree.names(inside):
            looked = inode_stat.look(tree, inside, name)
            if looked is not None and not looked[0].is_dir:
                files += 1
                size_bytes += looked[1].size if looked[0].is_file else 0
            yield files, 0, "counting"
    return wire.FilesCounted(files=files, size_bytes=size_bytes)


def _directories(tree: Tree, top: Inode) -> Iterator[Inode]:
    """Yield *top* and all directories beneath it, each before its content."""
    todo = [top]
    while todo:
        directory = todo.pop()
        yield directory
        for name, kind in tree.kinds(directory):
            if stat.S_ISDIR(kind) and (inside := tree.find(directory, name)) is not None and inside.is_dir:
                todo.append(inside)
