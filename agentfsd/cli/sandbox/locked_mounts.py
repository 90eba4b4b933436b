"""Lock the mounts that a process sees. Even with every capability, it can then unmount only what it mounts itself.

This module knows no branch and no daemon. Call it only in a single-threaded process that is about to exec.
"""

import errno
import os
import socket

from agentfs_host import syscalls
from agentfs_host.syscalls import CLONE_NEWNS, CLONE_NEWUSER


def lock() -> None:
    """Move this process to a copy of its mount table in which every mount is locked. Source: mount_namespaces(7).

    The kernel locks mounts that are copied into a namespace of a less privileged user namespace. A child makes such a copy. This
    process enters only the mount namespace, so it stays in its user namespace and keeps all of its capabilities. Then it makes
    another copy for itself: otherwise the kernel would also lock, at the next unshare(2), whatever is mounted later. Afterwards
    the working directory is the root.

    Raises:
        OSError: It is not permitted, for example in a chroot.
    """
    ours, childs = socket.socketpair()
    with ours, childs:
        child = os.fork()
        if child == 0:
            _show_copy(childs)
        childs.close()
        try:
            answer, descriptors, _, _ = socket.recv_fds(ours, 8, 1)
        finally:
            os.waitpid(child, 0)
    if not descriptors:
        code = int(answer or str(errno.EIO))
        raise OSError(code, os.strerror(code), "unshare")
    try:
        syscalls.enter_namespace(descriptors[0], CLONE_NEWNS)
    finally:
        os.close(descriptors[0])
    syscalls.unshare(CLONE_NEWNS)


def _show_copy(to: socket.socket) -> None:
    """Run in the child. It never returns."""
    try:
        syscalls.unshare(CLONE_NEWUSER | CLONE_NEWNS)
        socket.send_fds(to, [b"0"], [os.open("/proc/self/ns/mnt", os.O_RDONLY)])
    except OSError as exc:
        to.send(str(exc.errno).encode())
    finally:
        os._exit(0)
