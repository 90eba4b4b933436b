"""Changes names: create, link, unlink, rename. Each function is one transaction.

The kernel has checked permissions. The functions here check what else POSIX demands.
"""

import contextlib
import errno
import stat
from collections.abc import Mapping

from agentfsd.core import acl, inode_stat, origin
from agentfsd.core.content_objects import create_object
from agentfsd.core.copyup import (
    change_time_ns,
    check_writable,
    is_owned,
    materialize,
    now_ns,
    retry_with_reserve,
    save,
    set_entry,
)
from agentfsd.core.entry_rows import (
    count_subdirectory,
    discard_if_gone,
    drop_directory,
    drop_link,
    link_in,
    remove_entry,
    touch,
)
from agentfsd.core.inode import NEW_INO_BASE
from agentfsd.core.tree import Inode, Tree, join
from agentfsd.domain_errors import DamagedContent
from agentfsd.metadata.row_store import GARBAGE
from agentfsd.metadata.rows import is_whiteout
from agentfsd.types import ContentFile

RENAME_NOREPLACE = 1
RENAME_EXCHANGE = 2
LINK_MAX = 65000


class Owner:
    """User, group and umask of the process that creates a file. A default ACL of the directory overrides the umask."""

    __slots__ = ("gid", "uid", "umask")

    def __init__(self, uid: int, gid: int, umask: int = 0) -> None:
        self.uid, self.gid, self.umask = uid, gid, umask


def make(
    tree: Tree, directory: Inode, name: bytes, mode: int, owner: Owner, *, rdev: int = 0, target: bytes = b"",
    content: tuple[int, ContentFile] | None = None,
) -> Inode:  # fmt: skip
    """Create a file, directory, symlink or special file.

    Args:
        tree: The branch's tree.
        directory: The directory to create it in.
        name: Its name.
        mode: Its type and permissions.
        owner: Its owner.
        rdev: Device number of a device file.
        target: Target of a symlink.
        content: Number and complete object for a regular file. A failing transaction removes the object. None: empty.

    Raises:
        OSError: EEXIST, ENAMETOOLONG, ENOENT if the directory was removed, EROFS, ESTALE.
    """
    _check_new_name(tree, directory, name)
    inode = _new_inode(tree, directory, name, mode, owner)
    if stat.S_ISLNK(mode):
        inode.target = target
    elif stat.S_ISDIR(mode):
        inode.nlink, inode.entries = 2, {}
        if directory.lower_path is not None and tree.joins_lower(directory, name):
            inode.lower_path = join(directory.lower_path, name)
    elif not stat.S_ISREG(mode):
        inode.rdev = rdev
    if stat.S_ISREG(mode):
        _give_content(inode, content)
    try:
        with tree.store.transaction() as tx:
            materialize(tx, directory, itself=False)
            inode.id = tree.store.next_id("inode")
            inode.ino = NEW_INO_BASE + inode.id
            if inode.content:
                tree.store.put_object(inode.content, tree.head)
            save(tx, inode)
            link_in(tx, directory, name, inode)
    except BaseException:
        inode.release_files()
        if inode.content:
            tree.backstore.remove(inode.content)
        raise
    tree.adopt(inode)
    return inode


def _new_inode(tree: Tree, directory: Inode, name: bytes, mode: int, owner: Owner) -> Inode:
    inode = Inode(tree, directory, name)
    parent = inode_stat.attributes(directory)
    inode.uid, inode.gid = owner.uid, owner.gid
    if parent.mode & stat.S_ISGID:
        inode.gid = parent.gid
        if stat.S_ISDIR(mode):
            mode |= stat.S_ISGID
    default = default_acl(tree, directory)
    if default is None and not stat.S_ISLNK(mode):
        mode &= ~owner.umask
    inode.mode, inode.xattrs = acl.inherit(default, mode)
    inode.atime_ns = inode.mtime_ns = inode.ctime_ns = inode.btime_ns = now_ns()
    return inode


def default_acl(tree: Tree, directory: Inode) -> bytes | None:
    """Return the default ACL of a directory as an xattr value; None without one."""
    if directory.xattrs is not None:
        return directory.xattrs.get(acl.DEFAULT)
    if directory.lower_path is None:
        return None
    try:
        return tree.lower.getxattr(directory.lower_path, acl.DEFAULT)
    except OSError:
        return None


def tmpfile(tree: Tree, directory: Inode, mode: int, owner: Owner) -> Inode:
    """Create a regular file without a name, as for O_TMPFILE."""
    check_writable(tree)
    if directory.nlink == 0:
        raise FileNotFoundError(errno.ENOENT, "the directory was removed")
    inode = _new_inode(tree, directory, b"", mode, owner)
    inode.nlink, inode.content_layer = 0, tree.head
    inode.ino = NEW_INO_BASE + tree.store.next_id("inode")
    inode.parent, inode.linkable = None, True
    number = tree.store.next_id("object")
    inode.file = create_object(tree, number)
    tree.doom(inode, number)
    with tree.store.transaction():
        tree.store.put_object(number, GARBAGE)
    return inode


def _give_content(inode: Inode, content: tuple[int, ContentFile] | None) -> None:
    """Give a new file *content* or an empty object. Call this before storing the row that refers to it."""
    tree = inode.tree
    inode.content_layer = tree.head
    if content is not None:
        inode.content, inode.file = content
    else:
        inode.content = tree.store.next_id("object")
        inode.file = create_object(tree, inode.content)


def _check_new_name(tree: Tree, directory: Inode, name: bytes) -> None:
    check_writable(tree)
    if directory.nlink == 0:
        raise FileNotFoundError(errno.ENOENT, "the directory was removed")
    if tree.find(directory, name) is not None:
        raise FileExistsError(errno.EEXIST, "name exists")


def link(tree: Tree, inode: Inode, directory: Inode, name: bytes) -> None:
    """Add a name for a file; OSError EEXIST, EPERM for a directory, EMLINK, ENOENT if the file has no name left."""
    _check_new_name(tree, directory, name)
    if inode.is_dir:
        raise PermissionError(errno.EPERM, "a directory cannot have two names")
    if inode.linkable:
        _link_first(tree, inode, directory, name)
        return
    if inode.nlink == 0:
        raise FileNotFoundError(errno.ENOENT, "the file was removed")
    if inode.nlink >= LINK_MAX:
        raise OSError(errno.EMLINK, "too many links")
    with tree.store.transaction() as tx:
        materialize(tx, inode)
        materialize(tx, directory, itself=False)
        tx.set(inode, nlink=inode.nlink + 1, ctime_ns=change_time_ns(inode))
        save(tx, inode)
        link_in(tx, directory, name, inode)


def _link_first(tree: Tree, inode: Inode, directory: Inode, name: bytes) -> None:
    """Give a file made by tmpfile() its first name."""
    number = inode.doomed
    with tree.store.transaction() as tx:
        materialize(tx, directory, itself=False)
        tx.set(inode, id=inode.ino - NEW_INO_BASE, nlink=1, anonymous=False, content=number, content_layer=tree.head, doomed=0)
        tx.set(inode, parent=directory, name=name, linkable=False, ctime_ns=change_time_ns(inode))
        tree.store.put_object(number, tree.head)
        save(tx, inode)
        link_in(tx, directory, name, inode)
        tree.adopt(inode)
    tree.doomed.let_go(number)


def unlink(tree: Tree, directory: Inode, name: bytes) -> Inode:
    """Remove a name and return its inode; OSError ENOENT, IsADirectoryError."""
    inode = tree.lookup(directory, name)
    unlink_all(tree, directory, {name: inode})
    return inode


@retry_with_reserve
def unlink_all(tree: Tree, directory: Inode, inodes: Mapping[bytes, Inode]) -> None:
    """Remove names of one directory, all of them or none; OSError IsADirectoryError.

    Args:
        tree: The branch's tree.
        directory: The directory.
        inodes: What each name leads to, as lookup() has just said.
    """
    check_writable(tree)
    if any(inode.is_dir for inode in inodes.values()):
        raise IsADirectoryError(errno.EISDIR, "is a directory")
    with tree.store.transaction() as tx:
        materialize(tx, directory, itself=False)
        for name, inode in inodes.items():
            drop_link(tx, inode, remove_entry(tx, directory, name))
        touch(tx, directory)
    for inode in inodes.values():
        discard_if_gone(inode)


@retry_with_reserve
def rmdir(tree: Tree, directory: Inode, name: bytes) -> Inode:
    """Remove an empty directory and return its inode; OSError ENOENT, ENOTEMPTY, NotADirectoryError."""
    check_writable(tree)
    inode = tree.lookup(directory, name)
    _check_removable(tree, inode)
    with tree.store.transaction() as tx:
        materialize(tx, directory, itself=False)
        remove_entry(tx, directory, name)
        drop_directory(tx, inode)
        count_subdirectory(tx, directory, -1)
        touch(tx, directory)
    return inode


def _check_removable(tree: Tree, inode: Inode) -> None:
    if not inode.is_dir:
        raise NotADirectoryError(errno.ENOTDIR, "not a directory")
    if not tree.is_empty(inode):
        raise OSError(errno.ENOTEMPTY, "directory not empty")


def rename(tree: Tree, old_dir: Inode, old: bytes, new_dir: Inode, new: bytes, flags: int = 0) -> tuple[Inode, Inode | None]:
    """Rename like renameat2(2), whose errors it raises. *flags*: RENAME_NOREPLACE, RENAME_EXCHANGE or 0.

    A directory moves in one step, whatever it contains.

    Returns:
        What was renamed, and what had the new name before. They are the same for two names of one file.
    """
    check_writable(tree)
    if flags & ~(RENAME_NOREPLACE | RENAME_EXCHANGE) or flags == RENAME_NOREPLACE | RENAME_EXCHANGE:
        raise OSError(errno.EINVAL, "unknown rename flags")
    source = tree.lookup(old_dir, old)
    if new_dir.nlink == 0:
        raise FileNotFoundError(errno.ENOENT, "the directory was removed")
    target = tree.find(new_dir, new)
    if target is not None and flags & RENAME_NOREPLACE:
        raise FileExistsError(errno.EEXIST, "name exists")
    _check_no_loop(source, new_dir)
    if flags & RENAME_EXCHANGE:
        if target is None:
            raise FileNotFoundError(errno.ENOENT, "nothing to exchange with")
        _check_no_loop(target, old_dir)
        _exchange(tree, (old_dir, old, source), (new_dir, new, target))
        return source, target
    if target is source:
        return source, target
    if target is not None:
        _check_replaceable(tree, source, target)
    _move(tree, source, (old_dir, old), (new_dir, new), target)
    return source, target


def _move(tree: Tree, source: Inode, whence: tuple[Inode, bytes], place: tuple[Inode, bytes], target: Inode | None) -> None:
    (old_dir, old), (new_dir, new) = whence, place
    with tree.store.transaction() as tx:
        tx.set(source, parent=old_dir, name=old)
        materialize(tx, source)
        for node in (old_dir, new_dir):
            materialize(tx, node, itself=False)
        if target is not None:
            if target.is_dir:
                drop_directory(tx, target)
                count_subdirectory(tx, new_dir, -1)
            else:
                drop_link(tx, target)
        remove_entry(tx, old_dir, old)
        if target is not None or is_whiteout(new_dir.tree.entries(new_dir).get(new)):
            origin.note(tx, new_dir, new, keep=source.is_file)
        set_entry(tx, new_dir, new, source.id)
        tx.set(source, parent=new_dir, name=new, ctime_ns=change_time_ns(source))
        save(tx, source)
        if source.is_dir and old_dir is not new_dir:
            count_subdirectory(tx, old_dir, -1)
            count_subdirectory(tx, new_dir, 1)
        touch(tx, old_dir)
        touch(tx, new_dir)
    if target is not None:
        discard_if_gone(target)
        _write_back(source)


def _write_back(inode: Inode) -> None:
    """Start the writeback of a file that has replaced another one: programs that skip fsync(2) rely on it."""
    if not (inode.is_file and inode.content and is_owned(inode)):
        return
    with contextlib.suppress(DamagedContent):
        content = inode.file or inode.tree.backstore.open(inode.content)
        content.start_writeback()
        if content is not inode.file:
            content.close()


def _exchange(tree: Tree, one: tuple[Inode, bytes, Inode], two: tuple[Inode, bytes, Inode]) -> None:
    (dir_a, name_a, node_a), (dir_b, name_b, node_b) = one, two
    with tree.store.transaction() as tx:
        tx.set(node_a, parent=dir_a, name=name_a)
        tx.set(node_b, parent=dir_b, name=name_b)
        for node in (node_a, node_b):
            materialize(tx, node)
        for node in (dir_a, dir_b):
            materialize(tx, node, itself=False)
        origin.note(tx, dir_a, name_a, keep=node_b.is_file)
        origin.note(tx, dir_b, name_b, keep=node_a.is_file)
        set_entry(tx, dir_a, name_a, node_b.id)
        set_entry(tx, dir_b, name_b, node_a.id)
        tx.set(node_a, parent=dir_b, name=name_b, ctime_ns=change_time_ns(node_a))
        tx.set(node_b, parent=dir_a, name=name_a, ctime_ns=change_time_ns(node_b))
        save(tx, node_a)
        save(tx, node_b)
        if node_a.is_dir != node_b.is_dir and dir_a is not dir_b:
            count_subdirectory(tx, dir_a, 1 if node_b.is_dir else -1)
            count_subdirectory(tx, dir_b, 1 if node_a.is_dir else -1)
        touch(tx, dir_a)
        touch(tx, dir_b)


def _check_no_loop(moved: Inode, directory: Inode) -> None:
    node: Inode | None = directory
    while node is not None:
        if node is moved:
            raise OSError(errno.EINVAL, "a directory cannot move into itself")
        node = node.parent


def _check_replaceable(tree: Tree, source: Inode, target: Inode) -> None:
    if target.is_dir:
        if not source.is_dir:
            raise IsADirectoryError(errno.EISDIR, "is a directory")
        _check_removable(tree, target)
    elif source.is_dir:
        raise NotADirectoryError(errno.ENOTDIR, "not a directory")
