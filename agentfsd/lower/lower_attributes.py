"""Read and set owner, mode, extended attributes and times of one file, in an order in which no step undoes an earlier one.

Files are named by a descriptor, or by a path in /proc/self/fd that leads to exactly one file; never by a name in the lower.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from agentfs_host import xattrs
from agentfsd.lower.commit_plan import FileAttributes

Where = int | bytes

_PATH = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_PRIVILEGED = (b"trusted.", b"security.")


@contextmanager
def held(directory_fd: int, name: bytes) -> Iterator[tuple[bytes, os.stat_result]]:
    """Yield a path that keeps leading to the file that *name* names now, even if it is renamed, and its stat. Symlinks are not
    followed.
    """
    fd = os.open(name, _PATH, dir_fd=directory_fd)
    try:
        yield b"/proc/self/fd/%d" % fd, os.fstat(fd)
    finally:
        os.close(fd)


def read(where: Where, info: os.stat_result) -> FileAttributes:
    return FileAttributes(
        info.st_mode, info.st_uid, info.st_gid, info.st_atime_ns, info.st_mtime_ns, xattrs.read_all(where, follow=True)
    )


def give(where: Where, wanted: FileAttributes, owner: tuple[int, int], mode: int) -> None:
    """Set all attributes of a new file without extended attributes.

    Args:
        where: descriptor or path of the file.
        wanted: the attributes to set.
        owner: user id and group id that the file has now.
        mode: permission bits that the file has now; -1 if they are not known.
    """
    if (wanted.uid, wanted.gid) != owner:
        _own(where, wanted, owner)  # chown before chmod: it clears setuid
    for name, value in wanted.xattrs.items():
        _set_xattr(where, name, value)
        mode = -1  # setting an ACL changes the group bits
    if mode != stat.S_IMODE(wanted.mode) and not stat.S_ISLNK(wanted.mode):
        os.chmod(where, stat.S_IMODE(wanted.mode))
    os.utime(where, ns=(wanted.atime_ns, wanted.mtime_ns))


def adjust(where: Where, wanted: FileAttributes, info: os.stat_result) -> None:
    """Set those attributes of a file that differ from *wanted*."""
    owner = (info.st_uid, info.st_gid)
    changed = (wanted.uid, wanted.gid) != owner and _own(where, wanted, owner)
    has = xattrs.read_all(where, follow=True)
    for name in has.keys() - wanted.xattrs.keys():
        _remove_xattr(where, name)
        changed = True
    for name, value in wanted.xattrs.items():
        if changed or has.get(name) != value:  # chown(2) removes file capabilities
            _set_xattr(where, name, value)
            changed = True
    if (changed or info.st_mode != wanted.mode) and not stat.S_ISLNK(info.st_mode):
        os.chmod(where, stat.S_IMODE(wanted.mode))
    if (wanted.atime_ns, wanted.mtime_ns) != (info.st_atime_ns, info.st_mtime_ns):
        os.utime(where, ns=(wanted.atime_ns, wanted.mtime_ns))


def _own(where: Where, wanted: FileAttributes, owner: tuple[int, int]) -> bool:
    """Set owner and group. Without the right to change the owner, set only a group that this process is in, as cp -a and rsync -a
    do.
    """
    if os.geteuid() == 0:
        os.chown(where, wanted.uid, wanted.gid)
        return True
    if wanted.gid == owner[1]:
        return False
    try:
        os.chown(where, -1, wanted.gid)
    except PermissionError:
        return False
    return True


def _set_xattr(where: Where, name: bytes, value: bytes) -> None:
    try:
        os.setxattr(where, name, value)
    except PermissionError:
        if not name.startswith(_PRIVILEGED) or os.geteuid() == 0:
            raise


def _remove_xattr(where: Where, name: bytes) -> None:
    try:
        os.removexattr(where, name)
    except OSError as exc:
        unprivileged = exc.errno in (errno.EPERM, errno.EACCES) and name.startswith(_PRIVILEGED) and os.geteuid() != 0
        if exc.errno != errno.ENODATA and not unprivileged:
            raise
