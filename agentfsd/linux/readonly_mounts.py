"""Detached mounts of directories, through which files are opened whose descriptors go to other processes.

The owner of a file can reopen a read-only descriptor for writing through /proc/self/fd. A descriptor opened through a read-only
mount prevents that. The mounts are detached with "/" as their root, so a descriptor does not reveal where the file lies. A mount
ends when its descriptor is closed. Source: open_tree(2), mount_setattr(2); Linux 5.12.
"""

import errno
import os
import socket

from agentfs_host import syscalls
from agentfs_host.syscalls import CLONE_NEWNS, CLONE_NEWUSER, MOUNT_ATTR_NODEV, MOUNT_ATTR_NOSUID, MOUNT_ATTR_RDONLY


def views(*places: tuple[str, bool]) -> list[int]:
    """Return an O_PATH descriptor of a detached mount for each path. The caller closes them.

    What is mounted inside a directory is not included. Without privilege a child process makes the mounts in a user namespace of
    its own, so call this before threads start.

    Args:
        *places: Each a path, and whether it may be written through.

    Raises:
        OSError: The mounts cannot be made.
    """
    try:
        return _make(places)
    except PermissionError:
        return _made_by_child(places)


def _make(places: tuple[tuple[str, bool], ...]) -> list[int]:
    mounts: list[int] = []
    try:
        for path, writable in places:
            mounts.append(syscalls.copy_mount(os.fsencode(path)))
            readonly = 0 if writable else MOUNT_ATTR_RDONLY
            syscalls.set_mount_attributes(mounts[-1], MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | readonly)
    except BaseException:
        for fd in mounts:
            os.close(fd)
        raise
    return mounts


def _made_by_child(places: tuple[tuple[str, bool], ...]) -> list[int]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        child = os.fork()
        if child == 0:
            try:
                syscalls.unshare(CLONE_NEWUSER | CLONE_NEWNS)
                socket.send_fds(theirs, [b"\0"], _make(places))
            except OSError as exc:
                theirs.send(bytes([exc.errno or errno.EIO]))
            finally:
                os._exit(0)
        theirs.close()
        said, mounts, _, _ = socket.recv_fds(ours, 1, len(places))
        os.waitpid(child, 0)
    if said != b"\0" or len(mounts) != len(places):
        number = said[0] if said else errno.EIO
        raise OSError(number, f"no read-only mounts: {os.strerror(number)}")
    for fd in mounts:
        os.set_inheritable(fd, False)
    return mounts
