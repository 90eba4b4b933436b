"""Checks permissions by the rules that the kernel applies with default_permissions, for requests that it has not checked.

The kernel checks requests on the mount before it calls the daemon. It does not check requests over the socket, nor an open that
it takes for the creation of a new file.
Sources: path_resolution(7), acl(5), capabilities(7), and inode(7) for the sticky bit.
"""

import errno
import stat
from typing import NamedTuple

from agentfsd.core import acl, inode_attributes, inode_stat
from agentfsd.core.inode import Attributes
from agentfsd.core.rule_checks import RuledCaller
from agentfsd.core.tree import Inode

READ, WRITE, EXECUTE = 4, 2, 1  # for a directory, EXECUTE means to look up names in it


class Credentials(NamedTuple):
    """The process that makes a request.

    Attributes:
        uid: User id.
        gid: Group id.
        groups: All its group ids, with ``gid``.
        privileged: Whether it is root and may override permissions (CAP_DAC_OVERRIDE).
        umask: Permission bits that new files do not get.
        ruled: The rules by path that hold for it; None: there are none.
    """

    uid: int
    gid: int
    groups: frozenset[int]
    privileged: bool = False
    umask: int = 0o022
    ruled: RuledCaller | None = None


def allows(inode: Inode, wanted: int, who: Credentials) -> bool:
    """Return whether *who* has all the permissions *wanted* (a sum of READ, WRITE, EXECUTE) on an inode."""
    if who.privileged and (inode.is_dir or not wanted & EXECUTE):
        return True
    attributes = inode_stat.attributes(inode)
    if who.privileged and attributes.mode & 0o111:
        return True
    return wanted & ~_granted(inode, attributes, wanted, who) == 0


def _granted(inode: Inode, attributes: Attributes, wanted: int, who: Credentials) -> int:
    if who.uid == attributes.uid:
        return attributes.mode >> 6 & 7
    entries = _access_list(inode) if attributes.mode & 0o070 else None  # with an ACL, these bits are its mask
    if entries is not None:
        return acl.granted(entries, wanted, who.uid, who.groups, attributes.gid)
    return (attributes.mode >> 3 if attributes.gid in who.groups else attributes.mode) & 7


def _access_list(inode: Inode) -> acl.Entries | None:
    try:
        return acl.decode(inode_attributes.getxattr(inode.tree, inode, acl.ACCESS))
    except OSError as exc:
        if exc.errno not in (errno.ENODATA, errno.EOPNOTSUPP):
            raise
        return None


def check(inode: Inode, wanted: int, who: Credentials) -> None:
    """Raise PermissionError (EACCES) unless allows() is true, and no rule is against it (also EROFS: see RuledCaller)."""
    if who.ruled is not None:
        _check_rules(inode, wanted, who.ruled)
    if not allows(inode, wanted, who):
        raise PermissionError(errno.EACCES, "permission denied")


def _check_rules(inode: Inode, wanted: int, ruled: RuledCaller) -> None:
    """Check against the rules. Whether a name in a directory may change depends on the name: see RuledCaller.check_name()."""
    if inode.is_dir and wanted & EXECUTE:
        ruled.check_search(inode)
    if wanted & (READ if inode.is_dir else READ | WRITE):
        ruled.check_open(inode, writes=not inode.is_dir and bool(wanted & WRITE))


def check_removal(directory: Inode, victim: Inode, who: Credentials) -> None:
    """Check that *who* may remove, rename or replace a name of *victim* in *directory*.

    Raises:
        PermissionError: EACCES by the directory's mode or ACL, EPERM by its sticky bit.
    """
    check(directory, WRITE | EXECUTE, who)
    above = inode_stat.attributes(directory)
    if not above.mode & stat.S_ISVTX or who.privileged or who.uid == above.uid:
        return
    if inode_stat.attributes(victim).uid != who.uid:
        raise PermissionError(errno.EPERM, "the directory is sticky and the file is somebody else's")


def mode_of_new(directory: Inode, mode: int, who: Credentials) -> int:
    """Return the mode of a new file in *directory*.

    In a setgid directory the file gets the directory's group. If *who* is not a member of it, an executable file loses its setgid
    bit: it would run with the rights of that group.
    """
    above = inode_stat.attributes(directory)
    lends = mode & stat.S_ISGID and mode & stat.S_IXGRP and above.mode & stat.S_ISGID
    return mode & ~stat.S_ISGID if lends and above.gid not in who.groups and not who.privileged else mode


def may_follow(directory: Inode, link: Inode, who: Credentials) -> bool:
    """Return whether *who* may follow a symlink at the end of a path, by the rule of protected_symlinks (proc_sys_fs(5)).

    In a sticky directory that everybody may write to, the link must belong to *who* or to the directory's owner.
    """
    owner = inode_stat.attributes(link).uid
    above = inode_stat.attributes(directory)
    shared = above.mode & stat.S_ISVTX and above.mode & stat.S_IWOTH
    return not shared or owner in (who.uid, above.uid)
