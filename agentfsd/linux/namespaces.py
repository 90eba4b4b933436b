"""Create private mount namespaces, and move mounts from one to another. This module knows nothing of branches.

A process that enters a namespace must be single-threaded, and cannot return. Source: unshare(2), setns(2), user_namespaces(7),
open_tree(2) and move_mount(2) of Linux 5.2.
"""

import os
import struct

from agentfs_host import syscalls
from agentfs_host.syscalls import CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWUSER, MOUNT_ATTR_RDONLY, MS_BIND, MS_PRIVATE, MS_REC

_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1  # netdevice(7)


def enter_private_mounts() -> bool:
    """Give this process a private copy of the mount table.

    Without the privilege the process enters a user namespace that maps only its own uid and gid, to themselves. So it keeps its
    identity, and after exec it holds no capability that it did not have before.

    Returns:
        True when the process is in a new user namespace.
    """
    is_owner = False
    try:
        syscalls.unshare(CLONE_NEWNS)
    except OSError:
        is_owner = True
        enter_user_namespace()
    _make_private()
    return is_owner


def enter_user_namespace(process: int | None = None) -> None:
    """Enter a user namespace that maps only the caller's uid and gid, to themselves, and a mount namespace of its own.

    *process*: a descriptor of our own directory in /proc, if there is no /proc here.
    """
    uid, gid = os.geteuid(), os.getegid()
    syscalls.unshare(CLONE_NEWUSER | CLONE_NEWNS)
    place = os.open("/proc/self", os.O_PATH | os.O_DIRECTORY) if process is None else os.dup(process)
    try:
        _write("setgroups", "deny", place)
        _write("uid_map", f"{uid} {uid} 1", place)
        _write("gid_map", f"{gid} {gid} 1", place)
    finally:
        os.close(place)


def enter_mounts_beside(user_namespace: int | None) -> None:
    """Enter private mounts in the user namespace behind that descriptor; None: in the caller's own."""
    if user_namespace is not None:
        syscalls.enter_namespace(user_namespace, CLONE_NEWUSER)
    syscalls.unshare(CLONE_NEWNS)
    _make_private()


def enter_copy_of_mounts(user_namespace: int | None, mount_namespace: int) -> None:
    """Enter a private copy of another mount namespace, which belongs to *user_namespace*; None: to the caller's own."""
    if user_namespace is not None:
        syscalls.enter_namespace(user_namespace, CLONE_NEWUSER)
    syscalls.enter_namespace(mount_namespace, CLONE_NEWNS)
    syscalls.unshare(CLONE_NEWNS)


def _make_private() -> None:
    syscalls.mount(None, b"/", None, MS_REC | MS_PRIVATE)


def bind_over(source: str, target: str) -> None:
    """Bind-mount *source*, with the mounts inside it, over *target*, for this process and its later children."""
    syscalls.mount(os.fsencode(source), os.fsencode(target), None, MS_BIND | MS_REC)


def copy_mount(path: str) -> int:
    """Return the descriptor of a detached copy of the mount at *path*. It can be passed to move_mount() in any namespace."""
    return syscalls.copy_mount(os.fsencode(path))


def copy_tree(path: str) -> int:
    """Copy what is at *path*, a directory or a file, with all that is mounted in it: a descriptor for move_mount().

    The copy keeps the attributes that its mounts have now, whatever becomes of those that it was made from.
    """
    return syscalls.copy_mount(os.fsencode(path), recursive=True)


def make_read_only(place: str | int) -> None:
    """Make every mount at and beneath *place*, a path or a descriptor of copy_tree(), read-only."""
    encoded = os.fsencode(place) if isinstance(place, str) else place
    syscalls.set_mount_attributes(encoded, MOUNT_ATTR_RDONLY, recursive=True)


def make_writable(path: str) -> None:
    """Make the one mount at *path* writable again. PermissionError when it was read-only before this namespace was created."""
    syscalls.set_mount_attributes(os.fsencode(path), 0, to_clear=MOUNT_ATTR_RDONLY)


def mount_tmpfs(target: str, options: str) -> None:
    """Mount an empty tmpfs over the directory *target*; *options* as in tmpfs(5)."""
    syscalls.mount(b"agentfsd", os.fsencode(target), b"tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, options.encode())


def enter_own_network() -> None:
    """Move this process to a network of its own, in which there is nothing but the loopback device, up."""
    import fcntl  # needed here alone
    import socket

    syscalls.unshare(CLONE_NEWNET)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _IFF_UP))


def move_mount(mount: int, target: str) -> None:
    """Attach a result of copy_mount() or copy_tree() at *target*, in this process's namespace."""
    syscalls.place_mount(mount, os.fsencode(target))


def keep_only(path: str) -> None:
    """Make *path* the root of this process, and unmount everything else."""
    os.chdir(path)
    syscalls.pivot_root(b".", b".")  # the old root then lies over the new one
    syscalls.unmount(b".", lazy=True)
    os.chdir("/")


def _write(name: str, text: str, directory: int) -> None:
    fd = os.open(name, os.O_WRONLY, dir_fd=directory)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
