"""Who may do what, for requests that reach us without the kernel having checked them: the rules of default_permissions.

On the mount the kernel checks before it asks us; whoever comes over the socket has passed nobody. Source: path_resolution(7),
acl(5), capabilities(7), and the sticky bit of inode(7).
"""

import errno
import stat
from typing import NamedTuple

from agentfsd.core import acl, inode_attributes
from agentfsd.core.inode import Attributes
from agentfsd.core.tree import Inode

READ, WRITE, EXECUTE = 4, 2, 1  # EXECUTE: of a directory, to look names up in it


class Credentials(NamedTuple):
    """Who asks. ``groups`` holds ``gid`` as well. ``privileged``: root with the right to pass over permissions."""

    uid: int
    gid: int
    groups: frozenset[int]
    privileged: bool = False
    umask: int = 0o022


def allows(inode: Inode, wanted: int, who: Credentials) -> bool:
    """Whether *who* has all of *wanted* (READ, WRITE, EXECUTE) on an inode."""
    if who.privileged and (inode.is_dir or not wanted & EXECUTE):
        return True
    found = inode.tree.attributes(inode)
    if who.privileged and found.mode & 0o111:
        return True
    return wanted & ~_granted(inode, found, wanted, who) == 0


def _granted(inode: Inode, found: Attributes, wanted: int, who: Credentials) -> int:
    if who.uid == found.uid:
        return found.mode >> 6 & 7
    entries = _access_list(inode) if found.mode & 0o070 else None  # the group's bits are the mask, where there is a list
    if entries is not None:
        return acl.granted(entries, wanted, who.uid, who.groups, found.gid)
    return (found.mode >> 3 if found.gid in who.groups else found.mode) & 7


def _access_list(inode: Inode) -> acl.Entries | None:
    try:
        return acl.decode(inode_attributes.getxattr(inode.tree, inode, acl.ACCESS))
    except OSError as exc:
        if exc.errno not in (errno.ENODATA, errno.EOPNOTSUPP):
            raise
        return None


def check(inode: Inode, wanted: int, who: Credentials) -> None:
    """PermissionError (EACCES)."""
    if not allows(inode, wanted, who):
        raise PermissionError(errno.EACCES, "permission denied")


def check_removal(directory: Inode, victim: Inode, who: Credentials) -> None:
    """Before a name is taken away or made to mean something else: EACCES, EPERM where the sticky bit forbids it."""
    check(directory, WRITE | EXECUTE, who)
    above = directory.tree.attributes(directory)
    if not above.mode & stat.S_ISVTX or who.privileged or who.uid == above.uid:
        return
    if victim.tree.attributes(victim).uid != who.uid:
        raise PermissionError(errno.EPERM, "the directory is sticky and the file is somebody else's")


def mode_of_new(directory: Inode, mode: int, who: Credentials) -> int:
    """The mode of a file that is made there: it does not lend the rights of a group that whoever makes it is not in."""
    above = directory.tree.attributes(directory)
    lends = mode & stat.S_ISGID and mode & stat.S_IXGRP and above.mode & stat.S_ISGID
    return mode & ~stat.S_ISGID if lends and above.gid not in who.groups and not who.privileged else mode


def may_follow(directory: Inode, link: Inode, who: Credentials) -> bool:
    """Whether a symlink that a path ends with is followed: none that a stranger left where everybody may (protected_symlinks)."""
    owner = link.tree.attributes(link).uid
    above = directory.tree.attributes(directory)
    shared = above.mode & stat.S_ISVTX and above.mode & stat.S_IWOTH
    return not shared or owner in (who.uid, above.uid)
