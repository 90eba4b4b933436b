"""Changes an inode's attributes: mode, owner, times, size, extended attributes. Only a new size other than 0 copies data."""

import errno
import stat
from dataclasses import dataclass

from agentfsd.core import acl, inode_stat
from agentfsd.core.copyup import (
    change_time_ns,
    check_writable,
    is_owned,
    lower_xattrs,
    materialize,
    now_ns,
    open_owned,
    own_content,
    retry_with_reserve,
    save,
)
from agentfsd.core.inode import Attributes
from agentfsd.core.tree import Inode, Tree

XATTR_NAME_MAX = 255
XATTR_SIZE_MAX = 65536
XATTR_NAME_SPACES = (b"user.", b"trusted.", b"security.")
CAPABILITIES = b"security.capability"
XATTR_CREATE = 1
XATTR_REPLACE = 2


@dataclass(slots=True)
class NewAttributes:
    """The attributes that setattr_() sets. None leaves an attribute as it is. Times in ns, size in bytes."""

    mode: int | None = None
    uid: int | None = None
    gid: int | None = None
    size: int | None = None
    atime_ns: int | None = None
    mtime_ns: int | None = None


@retry_with_reserve
def setattr_(tree: Tree, inode: Inode, new: NewAttributes, *, privileged: bool = False) -> Attributes:
    """Change attributes of an inode.

    Args:
        tree: The inode's tree.
        inode: The inode.
        new: The attributes to set.
        privileged: Keep the setuid and setgid bits on chown and truncate.

    Returns:
        What stat(2) shows afterwards.

    Raises:
        OSError: EROFS in a snapshot; ESTALE in a detached tree; EISDIR or EINVAL for the size of what is no regular file.
    """
    if new.size is not None or inode.nlink:
        _check(tree, inode)
    if new.size is not None:
        truncate(inode, new.size)
        drop_capabilities(inode)
        if not privileged:
            drop_setid(inode)
    if (new.mode, new.uid, new.gid, new.atime_ns, new.mtime_ns) != (None,) * 5:
        _change(tree, inode, new, privileged)
    return inode_stat.attributes(inode)


def _check(tree: Tree, inode: Inode) -> None:
    """Refuse a change in a snapshot or a detached tree. An open or nameless inode may still change in a detached tree."""
    if inode.nlink and not inode.opens:
        check_writable(tree)
    elif tree.read_only:
        raise OSError(errno.EROFS, "a snapshot cannot be changed")


def _change(tree: Tree, inode: Inode, new: NewAttributes, privileged: bool) -> None:
    old = inode_stat.attributes(inode)
    mode = _new_mode(old.mode, new, privileged)
    uid, gid = old.uid if new.uid is None else new.uid, old.gid if new.gid is None else new.gid
    atime = old.atime_ns if new.atime_ns is None else new.atime_ns
    mtime = old.mtime_ns if new.mtime_ns is None else new.mtime_ns
    if (mode, uid, gid) == (old.mode, old.uid, old.gid) and inode.has_live_times and is_owned(inode):
        _set_object_times(inode, atime, mtime)  # stat shows the object's times, and utime moves its change time as well
        return
    with tree.store.transaction() as tx:
        if inode.nlink and not tree.detached:
            materialize(tx, inode)
            mode = _new_mode(inode.mode, new, privileged)
        tx.set(
            inode,
            mode=mode,
            uid=uid,
            gid=gid,
            atime_ns=atime,
            mtime_ns=mtime,
            ctime_ns=change_time_ns(inode),
        )
        if new.mode is not None and inode.xattrs and acl.ACCESS in inode.xattrs:
            entries = acl.with_mode(acl.decode(inode.xattrs[acl.ACCESS]), mode)
            tx.set(inode, xattrs=inode.xattrs | {acl.ACCESS: acl.encode(entries)})
        if inode.nlink and not tree.detached:
            save(tx, inode)
    if new.uid is not None or new.gid is not None:
        drop_capabilities(inode)
    if is_owned(inode) and (new.atime_ns is not None or new.mtime_ns is not None):
        _set_object_times(inode, atime, mtime)


def _new_mode(mode: int, new: NewAttributes, privileged: bool) -> int:
    if new.mode is not None:
        return stat.S_IFMT(mode) | stat.S_IMODE(new.mode)
    if (new.uid is not None or new.gid is not None) and not privileged and not stat.S_ISDIR(mode):
        return without_setid(mode)
    return mode


def _set_object_times(inode: Inode, atime_ns: int, mtime_ns: int) -> None:
    if inode.file is not None:
        inode.file.utime(atime_ns, mtime_ns)
        return
    content = inode.tree.backstore.open(inode.content)
    try:
        content.utime(atime_ns, mtime_ns)
    finally:
        content.close()


def truncate(inode: Inode, size: int) -> None:
    """Set a regular file's size, in bytes. Size 0 copies no data.

    Raises:
        OSError: EISDIR for a directory, EINVAL for anything else that is no regular file, or an error of the copy-up.
    """
    if not inode.is_file:
        raise OSError(errno.EISDIR if inode.is_dir else errno.EINVAL, "only a regular file has a size to set")
    own_content(inode, empty=size == 0)
    was_open = inode.file is not None
    try:
        open_owned(inode, empty=size == 0).truncate(size)
        _stamp(inode)
    finally:
        if not (was_open or inode.opens):
            inode.release_files()


def _stamp(inode: Inode) -> None:
    """Set the modification time to now: truncate(2) to the size that a file already has must still change it."""
    assert inode.file is not None
    inode.file.utime(inode.file.stat().st_atime_ns, now_ns())


def without_setid(mode: int) -> int:
    """Return what is left of a mode after an unprivileged write or chown.

    The setuid bit goes. The setgid bit goes if the group may execute: without that bit it means mandatory locking.
    """
    mode &= ~stat.S_ISUID
    if mode & stat.S_IXGRP:
        mode &= ~stat.S_ISGID
    return mode


def drop_setid(inode: Inode) -> None:
    """Clear the setuid and setgid bits, as without_setid() does, of an inode that still has a name."""
    mode = without_setid(inode.mode)
    if mode != inode.mode and inode.nlink and not inode.tree.detached:
        with inode.tree.store.transaction() as tx:
            materialize(tx, inode)
            tx.set(inode, mode=mode)
            save(tx, inode)


def drop_capabilities(inode: Inode) -> None:
    """Remove a file's capabilities, as Linux does when its data, owner or size changes."""
    if inode.xattrs and CAPABILITIES in inode.xattrs:
        _change_xattr(inode.tree, inode, CAPABILITIES, None)


# -- extended attributes


def _check_name_space(name: bytes) -> None:
    if not name.startswith(XATTR_NAME_SPACES) and name not in (acl.ACCESS, acl.DEFAULT):
        raise OSError(errno.EOPNOTSUPP, "no such kind of attribute")


def getxattr(tree: Tree, inode: Inode, name: bytes) -> bytes:
    """Return the value of an extended attribute.

    Raises:
        OSError: ENODATA if the inode has no such attribute, EOPNOTSUPP for an unknown namespace.
    """
    if inode.xattrs is not None:
        try:
            return inode.xattrs[name]
        except KeyError:
            _check_name_space(name)
            raise OSError(errno.ENODATA, "no such attribute") from None
    if inode.lower_path is None:
        _check_name_space(name)
        raise OSError(errno.ENODATA, "no such attribute")
    return tree.lower.getxattr(inode.lower_path, name)


def listxattr(tree: Tree, inode: Inode) -> list[bytes]:
    """Return the names of an inode's extended attributes."""
    if inode.xattrs is not None:
        return list(inode.xattrs)
    return tree.lower.listxattr(inode.lower_path) if inode.lower_path is not None else []


def setxattr(tree: Tree, inode: Inode, name: bytes, value: bytes, flags: int = 0, *, in_group: bool = True) -> None:
    """Set an extended attribute. Setting the access ACL also sets the permission bits of the mode.

    Args:
        tree: The inode's tree.
        inode: The inode.
        name: At most XATTR_NAME_MAX bytes.
        value: At most XATTR_SIZE_MAX bytes.
        flags: XATTR_CREATE, XATTR_REPLACE or 0, as in setxattr(2).
        in_group: Whether the caller is a member of the file's group. If not, setting the access ACL clears the setgid bit.

    Raises:
        OSError: EEXIST (XATTR_CREATE) or ENODATA (XATTR_REPLACE); EOPNOTSUPP for an unknown namespace; EROFS in a snapshot;
            ESTALE in a detached tree. Too long are, as on ext4: the name (ERANGE), the value (E2BIG), all together (ENOSPC).
    """
    _check(tree, inode)
    _check_name_space(name)
    if len(name) > XATTR_NAME_MAX:
        raise OSError(errno.ERANGE, "attribute name too long")
    if len(value) > XATTR_SIZE_MAX:
        raise OSError(errno.E2BIG, "attribute value too long")
    old = all_xattrs(tree, inode)
    if flags & XATTR_CREATE and name in old:
        raise FileExistsError(errno.EEXIST, "attribute exists")
    if flags & XATTR_REPLACE and name not in old:
        raise OSError(errno.ENODATA, "no such attribute")
    new = old | {name: value}
    if sum(map(len, new.keys())) + sum(map(len, new.values())) > 2 * XATTR_SIZE_MAX:
        raise OSError(errno.ENOSPC, "no room for more attributes")
    if name != acl.ACCESS:
        _change_xattr(tree, inode, name, value)
        return
    entries = acl.decode(value)
    _change_xattr(tree, inode, name, None if acl.is_minimal(entries) else value, entries=entries, in_group=in_group)


def removexattr(tree: Tree, inode: Inode, name: bytes) -> None:
    """Remove an extended attribute.

    Raises:
        OSError: ENODATA if the inode has no such attribute; EROFS in a snapshot; ESTALE in a detached tree.
    """
    _check(tree, inode)
    if name not in all_xattrs(tree, inode):
        raise OSError(errno.ENODATA, "no such attribute")
    _change_xattr(tree, inode, name, None)


def all_xattrs(tree: Tree, inode: Inode) -> dict[bytes, bytes]:
    """Return every extended attribute with its value."""
    if inode.xattrs is not None:
        return inode.xattrs
    return lower_xattrs(tree, inode.lower_path) if inode.lower_path is not None else {}


def _change_xattr(
    tree: Tree, inode: Inode, name: bytes, value: bytes | None, *, entries: acl.Entries | None = None, in_group: bool = True
) -> None:  # fmt: skip
    """Store one attribute, or remove it.

    Args:
        tree: The inode's tree.
        inode: The inode.
        name: The attribute.
        value: None removes it.
        entries: An access ACL from which the mode gets its permission bits.
        in_group: See setxattr().
    """
    with tree.store.transaction() as tx:
        live = inode.nlink and not tree.detached
        if live:
            materialize(tx, inode)
        xattrs = {old: kept for old, kept in all_xattrs(tree, inode).items() if old != name}
        if value is not None:
            xattrs[name] = value
        if entries is not None:
            mode = acl.mode_of(entries, inode.mode if live else inode_stat.attributes(inode).mode)
            if not in_group:  # as in chmod(2): only a member may set the bit that runs the file with the group's rights
                mode &= ~stat.S_ISGID
            tx.set(inode, mode=mode)
        tx.set(inode, xattrs=xattrs, ctime_ns=change_time_ns(inode))
        if live:
            save(tx, inode)
