"""Adapts a branch after its commit into the lower: the branch becomes empty, or notes what the lower has now."""

import stat
from collections.abc import Container
from typing import NamedTuple

from agentfsd.core import copyup, hard_links, inode_stat, origin
from agentfsd.core.inode import NO_LOWER
from agentfsd.core.inode_attributes import all_xattrs
from agentfsd.core.overlay import Overlay
from agentfsd.core.seen_names import SeenNames
from agentfsd.core.tree import Inode, Tree, join
from agentfsd.history.kept_directories import Progress, keep_all
from agentfsd.metadata import origin_rows
from agentfsd.metadata.rows import WHITEOUT, OriginRow, is_whiteout
from agentfsd.metadata.transaction import Transaction
from agentfsd.types import Lower


class Same(NamedTuple):
    """A path that is the same in the branch and in the lower after a commit.

    ``inode``: its inode id in the branch; 0 if it has none. ``source``: the path in the lower from which its content or names
    came before the commit; None if they did not come from the lower. ``attributes``: False if both are merged as one directory,
    but mode, owner or times differ; or if only some lines of a file were committed.
    """

    path: bytes
    inode: int = 0
    source: bytes | None = None
    attributes: bool = True


def without_attributes(same: list[Same], paths: Container[bytes]) -> list[Same]:
    """Return the paths, of which *paths* are not wholly the same: the branch goes on to differ from the lower there."""
    return [entry._replace(attributes=False) if entry.path in paths else entry for entry in same]


def rights_of(inode: Inode) -> tuple[object, ...]:
    """Return mode, owner and extended attributes of an inode, for comparison."""
    attributes = inode_stat.attributes(inode)
    return attributes.mode, attributes.uid, attributes.gid, all_xattrs(inode.tree, inode)


def settle(overlay: Overlay, branch_id: str, seen: int, same: list[Same], *, whole: bool, once: str) -> Progress:
    """Adapt a branch after the lower has all that was committed, in steps that yield (done, total, what).

    A branch that was committed as a whole, has not changed since and has no open file becomes empty. Otherwise the branch keeps
    its rows, and they note what the lower has now. Other requests may run between two steps.

    Args:
        overlay: The overlay.
        branch_id: The branch.
        seen: The layer that was committed.
        same: The paths that are the same in the branch and in the lower now.
        whole: Whether everything was committed, and no process is in the branch.
        once: Id of the commit. A second call with it skips what must be done only once.
    """
    if moved := {entry.source: entry.path for entry in same if entry.source is not None and entry.source != entry.path}:
        overlay.lower_changes.moved(moved, once)
    if not overlay.refs.exists(branch_id):
        return
    tree = overlay.trees.of_branch(branch_id)
    live = overlay.lowers.live
    if tree.lower is not live:
        yield from _own_what_moved(tree, same)
    elif whole and overlay.branches.is_still(branch_id, seen) and not any(inode.opens for inode in tree.loaded()):
        overlay.branches.become_bare(branch_id)
        return
    with overlay.store.transaction() as tx:
        _join_directories(tx, tree, live, same)
    for done, entry in enumerate(sorted(same)):
        if tree.detached:  # another state has replaced it
            return
        with overlay.store.transaction() as tx:
            _know_anew(tx, tree, live, entry)
        yield done, len(same), "settling"


def settle_root(overlay: Overlay, branch_id: str) -> None:
    """Note the change time of the lower's root, which the commit has changed. Call it at the very end of a commit."""
    root, live = overlay.trees.of_branch(branch_id).root if overlay.refs.exists(branch_id) else None, overlay.lowers.live
    if root is not None and root.id and rights_of(overlay.trees.side(None).root) == rights_of(root):
        with overlay.store.transaction() as tx:
            copyup.materialize(tx, root)
            origin.follow(tx, root, b"", live)


def _own_what_moved(tree: Tree, same: list[Same]) -> Progress:
    """Give a branch with a frozen base a content of its own for what the commit has moved in the real directory.

    The base still has it at the old path. So the branch shows the same as before, and knows the real directory's new path.
    """
    for done, entry in enumerate(sorted(same)):
        inode = _where(tree, entry.path, entry.inode) if entry.inode else None
        if inode is not None and (inode.is_dir or inode.is_file) and entry.source not in (None, entry.path):
            yield from keep_all(inode, None, {})
        if inode is not None and inode.linked:
            for path in sorted(hard_links.names(tree, [inode])[inode]):
                _name(tree, inode, path)
        yield done, len(same), "keeping what was moved"


def _name(tree: Tree, inode: Inode, path: bytes) -> None:
    """Store a name of a file with hard links: the number that the base has for it leads to the file no longer."""
    parent, _, name = path.rpartition(b"/")
    directory = tree.walk(parent)
    if tree.entries(directory).get(name) is None:
        with tree.store.transaction() as tx:
            copyup.materialize(tx, directory, itself=False)
            copyup.set_entry(tx, directory, name, inode.id)


def _join_directories(tx: Transaction, tree: Tree, live: Lower, same: list[Same]) -> None:
    """Merge each directory that the branch had created with the lower's directory at the same path.

    Names there that the branch has removed, or has never seen, stay hidden.
    """
    seen = SeenNames(tree)
    for entry in sorted(same):
        inode = _where(tree, entry.path, entry.inode) if entry.inode else None
        if inode is not None and inode.is_dir and inode.lower_path is None and _is_directory(live, entry.path):
            _join_directory(tx, inode, live, entry.path, seen)
        elif inode is None and (row := seen.row(entry.path)) is not None and origin.now_in(live, tree, entry.path) == NO_LOWER:
            origin_rows.put(tree.store, OriginRow(row.dir, row.name, tree.head, *NO_LOWER, row.since_ns, 0))


def _join_directory(tx: Transaction, inode: Inode, live: Lower, path: bytes, seen: SeenNames) -> None:
    tree = inode.tree
    copyup.materialize(tx, inode)
    tx.set(inode, lower_path=path)
    copyup.save(tx, inode)
    for name in {entry.name for lower in {live, tree.lower} if _is_directory(lower, path) for entry in lower.readdir(path)}:
        if tree.entries(inode).get(name) is None:
            copyup.set_entry(tx, inode, name, WHITEOUT)
            row = seen.row(join(path, name))
            if row is not None:
                origin_rows.put(tree.store, row._replace(dir=inode.id, name=name, layer=tree.head, base=0))


def _is_directory(lower: Lower, path: bytes) -> bool:
    try:
        return stat.S_ISDIR(lower.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _know_anew(tx: Transaction, tree: Tree, live: Lower, entry: Same) -> None:
    inode = _where(tree, entry.path, entry.inode) if entry.inode else None
    if inode is not None and entry.attributes:
        copyup.materialize(tx, inode)
        origin.follow(tx, inode, entry.path, live)
    parent, _, name = entry.path.rpartition(b"/")
    directory = _at(tree, parent)
    if entry.path and directory is not None and directory.id and directory.is_dir:
        hides = is_whiteout(tree.entries(directory).get(name))
        if tree.lower is not live and entry.source not in (None, entry.path) and not _has_moved_alike(tree, live, entry.path):
            origin.doubt(directory, name)  # the base keeps what others have changed in what the commit has moved
        elif not (hides and tree.shows_lower(directory, name)):  # git's directory of objects came back: a record would hide it
            origin.renew(tx, directory, name, entry.path, live)


def _has_moved_alike(tree: Tree, live: Lower, path: bytes) -> bool:
    """Return whether a branch with a frozen base shows at a path what a commit has moved there in the real directory."""
    inode = _at(tree, path)
    try:
        there = live.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return inode is None
    if inode is None or stat.S_IFMT(inode.mode) != stat.S_IFMT(there.st_mode):
        return False
    here = inode_stat.attributes(inode)
    return not inode.is_file or (here.size, here.mtime_ns) == (there.st_size, there.st_mtime_ns)


def _at(tree: Tree, path: bytes) -> Inode | None:
    try:
        return tree.walk(path)
    except OSError:
        return None


def _where(tree: Tree, path: bytes, inode_id: int) -> Inode | None:
    """Find the inode of that id, which was at *path* when the commit was planned; None if it has no name now."""
    for place in (path, *hard_links.stored(tree, inode_id)):
        inode = _at(tree, place)
        if inode is not None and inode.id == inode_id:
            return inode
    return None
