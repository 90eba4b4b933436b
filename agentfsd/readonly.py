"""Directories seen through mounts of their own, from which descriptors can be given away.

One for reading could else be opened anew for writing, by /proc/self/fd, by whoever owns the file: so there are mounts that cannot
be written through. And nobody learns from a descriptor where the file lies: the mounts are detached, their root is "/", and they
go with their descriptor. Source: open_tree(2), mount_setattr(2); Linux 5.12.
"""

import ctypes
import errno
import os
import socket
import struct

_SYS_OPEN_TREE, _SYS_MOUNT_SETATTR = 428, 442
_CLONE, _EMPTY_PATH = 1, 0x1000
_ATTR = struct.Struct("=QQQQ")  # to set, to clear, propagation, user namespace
_RDONLY, _NOSUID, _NODEV = 1, 2, 4
_NEWUSER, _NEWNS = 0x10000000, 0x00020000

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def views(*places: tuple[str, bool]) -> list[int]:
    """For each path, and whether it may be written through: a descriptor (O_PATH) of that directory. The caller closes them.

    OSError. What is mounted inside is not in it. Without privilege a child makes them, in a user namespace of its own: call this
    before there are threads.
    """
    try:
        return _make(places)
    except PermissionError:
        return _made_by_child(places)


def _make(places: tuple[tuple[str, bool], ...]) -> list[int]:
    made: list[int] = []
    try:
        for path, writable in places:
            made.append(_check(_libc.syscall(_SYS_OPEN_TREE, -100, os.fsencode(path), _CLONE | os.O_CLOEXEC)))
            attributes = _ATTR.pack(_NOSUID | _NODEV | (0 if writable else _RDONLY), 0, 0, 0)
            _check(_libc.syscall(_SYS_MOUNT_SETATTR, made[-1], b"", _EMPTY_PATH, attributes, len(attributes)))
    except BaseException:
        for fd in made:
            os.close(fd)
        raise
    return made


def _made_by_child(places: tuple[tuple[str, bool], ...]) -> list[int]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        child = os.fork()
        if child == 0:
            try:
                _check(_libc.unshare(_NEWUSER | _NEWNS))
                socket.send_fds(theirs, [b"\0"], _make(places))
            except OSError as exc:
                theirs.send(bytes([exc.errno or errno.EIO]))
            finally:
                os._exit(0)
        theirs.close()
        said, made, _, _ = socket.recv_fds(ours, 1, len(places))
        os.waitpid(child, 0)
    if said != b"\0" or len(made) != len(places):
        number = said[0] if said else errno.EIO
        raise OSError(number, f"no read-only mounts: {os.strerror(number)}")
    for fd in made:
        os.set_inheritable(fd, False)
    return made


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
