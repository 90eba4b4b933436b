"""Locks the mounts that a process sees: whoever holds every capability can then unmount only what it mounts itself.

It knows nothing of branches or daemons. Call it only in a single-threaded process that is about to exec.
"""

import ctypes
import errno
import os
import socket

_CLONE_NEWNS = 0x00020000  # unshare(2)
_CLONE_NEWUSER = 0x10000000

_libc = ctypes.CDLL(None, use_errno=True)


def lock() -> None:
    """Moves this process to a copy of its mount table in which every mount is locked (mount_namespaces(7)).

    The kernel locks mounts that are copied into a namespace of a less privileged user namespace. A child makes such a copy. This
    process enters the mount namespace alone, so it stays in its user namespace and keeps all of its capabilities. Then it takes a
    copy of its own: else the kernel would lock whatever is mounted later, too, at the next unshare(2).
    The working directory is the root then. OSError where that is not permitted, such as in a chroot.
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
        _check(_libc.setns(descriptors[0], _CLONE_NEWNS), "setns")
    finally:
        os.close(descriptors[0])
    _check(_libc.unshare(_CLONE_NEWNS), "unshare")


def _show_copy(to: socket.socket) -> None:
    """The child's side: never returns."""
    try:
        _check(_libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS), "unshare")
        socket.send_fds(to, [b"0"], [os.open("/proc/self/ns/mnt", os.O_RDONLY)])
    except OSError as exc:
        to.send(str(exc.errno).encode())
    finally:
        os._exit(0)


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), what)
