"""Extended attributes of one file, ACLs among them: see xattr(7)."""

import errno
import os

_UNREADABLE = (errno.ENOTSUP, errno.ENODATA, errno.EPERM, errno.EACCES)


def names(where: bytes | int, *, follow: bool) -> list[bytes]:
    """Return the names of a file's extended attributes; none where the file system has no such attributes.

    Args:
        where: a path or a descriptor.
        follow: whether to follow the last name of a path that is a symlink.
    """
    try:
        found = os.listxattr(where, follow_symlinks=follow or isinstance(where, int))
    except OSError as exc:
        if exc.errno == errno.ENOTSUP:
            return []
        raise
    return [os.fsencode(name) for name in found]


def read_all(where: bytes | int, *, follow: bool) -> dict[bytes, bytes]:
    """Return the extended attributes that may be read. The arguments are those of names()."""
    xattrs = {}
    try:
        listed = names(where, follow=follow)
    except PermissionError:
        return {}
    for name in listed:
        try:
            xattrs[name] = os.getxattr(where, name, follow_symlinks=follow or isinstance(where, int))
        except OSError as exc:
            if exc.errno not in _UNREADABLE:
                raise
    return xattrs


def copy_permitted(source_fd: int, target_fd: int) -> None:
    """Copy the extended attributes of one file to another, as far as permitted, and remove all others from the target."""
    try:
        wanted, present = names(source_fd, follow=True), names(target_fd, follow=True)
    except OSError:
        return
    for name in {*wanted, *present}:
        try:
            if name in wanted:
                os.setxattr(target_fd, name, os.getxattr(source_fd, name))
            else:
                os.removexattr(target_fd, name)
        except OSError:
            pass
