"""Create private mount namespaces, and move mounts from one to another. This module knows nothing of branches.

A process that enters a namespace must be single-threaded, and cannot return. Source: unshare(2), setns(2), user_namespaces(7),
open_tree(2) and move_mount(2) of Linux 5.2.
"""

import ctypes
import os
import struct

_CLONE_NEWNS = 0x00020000  # unshare(2)
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_MS_BIND = 0x1000  # mount(2)
_MS_REC = 0x4000
_MS_PRIVATE = 1 << 18
_SYS_OPEN_TREE, _SYS_MOVE_MOUNT, _SYS_MOUNT_SETATTR = 428, 429, 442
_SYS_PIVOT_ROOT = {"x86_64": 155}.get(os.uname().machine, 41)  # the other number is that of all newer machines
_MNT_DETACH = 2
_AT_FDCWD = -100
_OPEN_TREE_CLONE = 1
_AT_RECURSIVE, _AT_EMPTY_PATH = 0x8000, 0x1000
_MOVE_MOUNT_F_EMPTY_PATH = 4
_MS_NOSUID, _MS_NODEV = 2, 4
_ATTR_RDONLY, _ATTR_NOSUID, _ATTR_NODEV = 1, 2, 4  # mount_setattr(2)
_ATTRIBUTES = struct.Struct("=QQQQ")  # to set, to clear, propagation, user namespace

_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1  # netdevice(7)

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def enter_private_mounts() -> bool:
    """Give this process a private copy of the mount table.

    Without the privilege the process enters a user namespace that maps only its own uid and gid, to themselves. So it keeps its
    identity, and after exec it holds no capability that it did not have before.

    Returns:
        True when the process is in a new user namespace.
    """
    is_owner: bool = _libc.unshare(_CLONE_NEWNS) != 0
    if is_owner:
        uid, gid = os.geteuid(), os.getegid()
        _check(_libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS), "unshare")
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{uid} {uid} 1")
        _write("/proc/self/gid_map", f"{gid} {gid} 1")
    _make_private()
    return is_owner


def enter_mounts_beside(user_namespace: int | None) -> None:
    """Enter private mounts in the user namespace behind that descriptor; None: in the caller's own."""
    if user_namespace is not None:
        _check(_libc.setns(user_namespace, _CLONE_NEWUSER), "setns")
    _check(_libc.unshare(_CLONE_NEWNS), "unshare")
    _make_private()


def enter_copy_of_mounts(user_namespace: int, mount_namespace: int) -> None:
    """Enter a private copy of another mount namespace, which belongs to *user_namespace*. Both are descriptors."""
    _check(_libc.setns(user_namespace, _CLONE_NEWUSER), "setns")
    _check(_libc.setns(mount_namespace, _CLONE_NEWNS), "setns")
    _check(_libc.unshare(_CLONE_NEWNS), "unshare")


def _make_private() -> None:
    _check(_libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None), "mount")


def bind_over(source: str, target: str) -> None:
    """Bind-mount *source*, with the mounts inside it, over *target*, for this process and its later children."""
    _check(_libc.mount(os.fsencode(source), os.fsencode(target), None, _MS_BIND | _MS_REC, None), target)


def copy_mount(path: str) -> int:
    """Return the descriptor of a detached copy of the mount at *path*. It can be passed to move_mount() in any namespace."""
    return _check(_libc.syscall(_SYS_OPEN_TREE, _AT_FDCWD, os.fsencode(path), _OPEN_TREE_CLONE | os.O_CLOEXEC), path)


def copy_tree(path: str) -> int:
    """Copy what is at *path*, a directory or a file, with all that is mounted in it: a descriptor for move_mount().

    The copy keeps the attributes that its mounts have now, whatever becomes of those that it was made from.
    """
    flags = _OPEN_TREE_CLONE | _AT_RECURSIVE | os.O_CLOEXEC
    return _check(_libc.syscall(_SYS_OPEN_TREE, _AT_FDCWD, os.fsencode(path), flags), path)


def make_read_only(place: str | int) -> None:
    """Make every mount at and beneath *place*, a path or a descriptor of copy_tree(), read-only."""
    _set_attributes(place, _ATTR_RDONLY, 0, _AT_RECURSIVE)


def make_writable(path: str) -> None:
    """Make the one mount at *path* writable again. PermissionError when it was read-only before this namespace was created."""
    _set_attributes(path, 0, _ATTR_RDONLY, 0)


def deny_privileges(mount: int) -> None:
    """Mount a copied tree with nosuid and nodev."""
    _set_attributes(mount, _ATTR_NOSUID | _ATTR_NODEV, 0, _AT_RECURSIVE)


def _set_attributes(place: str | int, to_set: int, to_clear: int, flags: int) -> None:
    at, path = (_AT_FDCWD, os.fsencode(place)) if isinstance(place, str) else (place, b"")
    flags |= 0 if isinstance(place, str) else _AT_EMPTY_PATH
    attributes = _ATTRIBUTES.pack(to_set, to_clear, 0, 0)
    _check(_libc.syscall(_SYS_MOUNT_SETATTR, at, path, flags, attributes, len(attributes)), str(place))


def mount_tmpfs(target: str, options: str) -> None:
    """Mount an empty tmpfs over the directory *target*; *options* as in tmpfs(5)."""
    flags = ctypes.c_ulong(_MS_NOSUID | _MS_NODEV)
    _check(_libc.mount(b"agentfsd", os.fsencode(target), b"tmpfs", flags, options.encode()), target)


def enter_own_network() -> None:
    """Move this process to a network of its own, in which there is nothing but the loopback device, up."""
    import fcntl  # needed here alone
    import socket

    _check(_libc.unshare(_CLONE_NEWNET), "unshare")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _IFF_UP))


def move_mount(mount: int, target: str) -> None:
    """Attach a result of copy_mount() or copy_tree() at *target*, in this process's namespace."""
    _check(_libc.syscall(_SYS_MOVE_MOUNT, mount, b"", _AT_FDCWD, os.fsencode(target), _MOVE_MOUNT_F_EMPTY_PATH), target)


def keep_only(path: str) -> None:
    """Make *path* the root of this process, and unmount everything else."""
    os.chdir(path)
    _check(_libc.syscall(_SYS_PIVOT_ROOT, b".", b"."), "pivot_root")  # the old root then lies over the new one
    _check(_libc.umount2(b".", _MNT_DETACH), "umount")
    os.chdir("/")


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _check(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), what)
    return result
