"""Row changes out of which the operations of directory_entries.py are composed. Each belongs inside a transaction."""

import os

from agentfsd.core import origin
from agentfsd.core.copyup import change_time_ns, is_owned, load_lower_attributes, materialize, save, set_entry
from agentfsd.core.inode import NO_LOWER
from agentfsd.core.tree import Inode, Tree, join
from agentfsd.domain_errors import DamagedContent
from agentfsd.metadata import origin_rows
from agentfsd.metadata.row_store import GARBAGE
from agentfsd.metadata.rows import WHITEOUT, is_whiteout
from agentfsd.metadata.transaction import Transaction


def link_in(tx: Transaction, directory: Inode, name: bytes, inode: Inode) -> None:
    """Add a name for an inode that is stored, and change the directory's times and link count."""
    if is_whiteout(directory.tree.entries(directory).get(name)):
        origin.note(tx, directory, name, keep=inode.is_file)
    set_entry(tx, directory, name, inode.id)
    if inode.is_dir:
        count_subdirectory(tx, directory, 1)
    touch(tx, directory)


def remove_entry(tx: Transaction, directory: Inode, name: bytes) -> os.stat_result | None:
    """Remove a name; store a whiteout if the lower or an older layer would show the name again.

    Returns:
        What the lower has at the name, if anything.
    """
    tree = directory.tree
    older = _older_child(tree, directory.id, name)
    in_lower = _lower_status(directory, name)
    came_back = in_lower is not None and tree.joins_lower(directory, name)
    is_shown = in_lower is not None if older is None else not is_whiteout(older)
    if came_back or is_shown or _was_committed(directory, name):
        origin.note(tx, directory, name, keep=False, status=in_lower)
        if came_back:
            origin.note_again(directory, name)
        set_entry(tx, directory, name, WHITEOUT)
    else:
        tree.store.delete_dentry(directory.id, name, tree.head)
        tx.put(tree.entries(directory), name, older)
    return in_lower


def _was_committed(directory: Inode, name: bytes) -> bool:
    """Return whether a commit has put a branch's name into the real directory: the branch's frozen base knows nothing of it."""
    tree = directory.tree
    row = origin_rows.find(tree.store, directory.id, name, tree.chain) if tree.lower.frozen else None
    return row is not None and origin.identity_of(row) != NO_LOWER


def _older_child(tree: Tree, directory_id: int, name: bytes) -> int | None:
    """Return what the layers below the head have for a name: an inode id, a whiteout, or None."""
    if len(tree.chain) == 1:
        return None
    beneath = tree.chain - {tree.head}
    versions = [version for version in tree.store.versions_of_name(directory_id, name) if version[0] in beneath]
    return max(versions)[1] if versions else None


def _lower_status(directory: Inode, name: bytes) -> os.stat_result | None:
    if directory.lower_path is None:
        return None
    try:
        return directory.tree.lower.stat(join(directory.lower_path, name))
    except (FileNotFoundError, NotADirectoryError):
        return None


def touch(tx: Transaction, directory: Inode) -> None:
    """Set the modification and change time of a directory whose names change."""
    stamp = change_time_ns(directory)
    tx.set(directory, mtime_ns=stamp, ctime_ns=stamp)
    save(tx, directory)


def count_subdirectory(tx: Transaction, directory: Inode, change: int) -> None:
    """Adjust a directory's link count, unless its file system does not count subdirectories (btrfs: always 1)."""
    if directory.nlink >= 2:
        tx.set(directory, nlink=max(2, directory.nlink + change))


def drop_link(tx: Transaction, inode: Inode, in_lower: os.stat_result | None = None) -> None:
    """Take one link off an inode other than a directory; without any left its rows go.

    Args:
        tx: The open transaction.
        inode: The inode.
        in_lower: What the lower has at the name that was removed, if that is known.
    """
    if not inode.id:
        is_it = in_lower is not None and inode.lower_fd < 0 and inode.tree.identify(in_lower) == inode.lower
        load_lower_attributes(tx, inode, in_lower if is_it else None)
        if inode.nlink > 1:  # its other names stay, with one link less
            tx.set(inode, id=inode.tree.store.next_id("inode"))
            inode.tree.adopt(inode)
    elif inode.row_layer:
        materialize(tx, inode)
    tx.set(inode, nlink=max(0, inode.nlink - 1), ctime_ns=change_time_ns(inode))
    if inode.nlink == 0:
        inode.tree.events.loses_names(inode)
    if not inode.id:
        return
    if inode.nlink == 0:
        _drop_rows(tx, inode)
    else:
        save(tx, inode)


def drop_directory(tx: Transaction, inode: Inode) -> None:
    """Remove the rows of an empty directory whose name goes, and of the names in it."""
    path = inode.lower_path
    if inode.id:
        inode.tree.store.clear_directory(inode.id, inode.tree.head, keep_origins=path is not None)
    else:
        load_lower_attributes(tx, inode)
        tx.set(inode, id=inode.tree.store.next_id("inode"))  # so that nothing is read from the lower for it any more
    tx.set(inode, nlink=0, entries={}, lower_path=None)
    inode.tree.events.loses_names(inode)
    _drop_rows(tx, inode, seen_at=path)


def _drop_rows(tx: Transaction, inode: Inode, *, seen_at: bytes | None = None) -> None:
    """Remove the row of an inode without names. If an older layer has a row of it, store one with no links, which hides it.

    *seen_at*: path of the directory in the lower, if any. Its row stays and records what the branch had seen there.
    """
    tree = inode.tree
    if is_owned(inode) and inode.content:
        tree.store.put_object(inode.content, GARBAGE)
    is_known = len(tree.chain) > 1 and any(layer != tree.head and layer in tree.chain for layer in tree.store.layers_of(inode.id))
    if seen_at is not None or is_known:
        row = inode.row(tree.head)
        tree.store.put_inode(row._replace(content=0, xattrs=None, target=None, lower_path=seen_at))
    else:
        tree.store.delete_inode(inode.id, tree.head)


def discard_if_gone(inode: Inode) -> None:
    """After the transaction, let the content of a file without names go with its Inode: processes may have it open.

    A takeover removes files by the thousand, so there only files that are open get that; the others are garbage already.
    """
    if inode.nlink or not is_owned(inode) or not inode.content:
        return
    if inode.tree.store.whole is not None and not (inode.opens or inode.has_open_data):
        return
    tree, number = inode.tree, inode.content
    if inode.file is None:
        try:
            inode.file = tree.backstore.open(number)
        except DamagedContent:  # the object there is not one that we wrote
            tree.backstore.set_aside(number)
            return
    tree.doom(inode, number)
