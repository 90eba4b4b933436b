"""Mount and unmount. (Who uses a mount: occupants.py. What is mounted where: agentfs_host/mount_table.py.)

This module never accesses files inside a mount: with a dead or hanging daemon the caller would hang too.
"""

import contextlib
import errno
import os
import shutil
import subprocess

from agentfs_host import syscalls
from agentfs_host.mount_table import FSTYPE, Mounted, is_dead, mount_at, resolved, unescape

FUSE_DEVICE = "/dev/fuse"

_MOUNT_FLAGS = {
    "ro": syscalls.MS_RDONLY, "nosuid": syscalls.MS_NOSUID, "nodev": syscalls.MS_NODEV, "noexec": syscalls.MS_NOEXEC,
    "sync": syscalls.MS_SYNCHRONOUS, "dirsync": syscalls.MS_DIRSYNC, "noatime": syscalls.MS_NOATIME,
}  # fmt: skip
_ATTRIBUTES = {
    "ro": syscalls.MOUNT_ATTR_RDONLY, "nosuid": syscalls.MOUNT_ATTR_NOSUID, "nodev": syscalls.MOUNT_ATTR_NODEV,
    "noexec": syscalls.MOUNT_ATTR_NOEXEC, "noatime": syscalls.MOUNT_ATTR_NOATIME,
}  # fmt: skip
_OF_FILESYSTEM = ("ro", "sync", "dirsync")  # options of mount(8) that are not of the mount alone
_READ_AHEAD_KIB = 1024
_FUSERMOUNT_TIMEOUT_S = 20


def mounted_beneath(directory_fd: int) -> list[bytes]:
    """Return the mount points beneath a directory, seen from that directory's mount, as paths relative to it."""
    held = mount_id(directory_fd)
    prefix = os.readlink(f"/proc/self/fd/{directory_fd}").rstrip("/") + "/"
    points = []
    with open("/proc/self/mountinfo", "rb") as file:
        for line in file:
            fields = line.split(maxsplit=5)
            mountpoint = unescape(fields[4])
            if int(fields[1]) == held and mountpoint.startswith(prefix) and mountpoint != prefix:
                points.append(os.fsencode(mountpoint[len(prefix) :]))
    return points


def mount_id(fd: int) -> int:
    """Return the id of the mount in which a descriptor was opened: the first field of mountinfo."""
    with open(f"/proc/self/fdinfo/{fd}", "rb") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(b"mnt_id:"))


def clear_dead(mountpoint: str) -> bool:
    """Unmount an agentfsd mount whose daemon has died, so that a restart needs no repair. Return True when there was one."""
    place = resolved(mountpoint)
    was_dead = False
    while has_dead(place):  # a daemon that was killed while it replaced another has left two
        unmount(place, lazy=True)
        was_dead = True
    return was_dead


def has_dead(mountpoint: str) -> bool:
    """Return whether an agentfsd mount whose daemon has died is at a resolved path."""
    mounted = mount_at(mountpoint)
    return mounted is not None and is_dead(mounted)


def abort(mounted: Mounted) -> None:
    """End the connection of a mount that nobody serves: what waits for an answer there gets an error, and can be killed.

    Threads of a killed daemon may hold a connection (fuse/last_answers.py). Without the kernel's control files for FUSE this also
    unmounts what nobody uses. Source: Documentation/filesystems/fuse/fuse.rst, umount2(2).
    """
    with contextlib.suppress(OSError), open(f"/sys/fs/fuse/connections/{os.minor(mounted.device)}/abort", "w") as file:
        file.write("1")
        return
    with contextlib.suppress(OSError):
        syscalls.unmount(os.fsencode(mounted.mountpoint), force=True)


def mount_fuse(target: str, options: frozenset[str], allow_other: bool) -> int:
    """Mount a FUSE file system that no process serves yet, and return the descriptor of its connection.

    It takes the place of an agentfsd mount whose daemon has died, in one step where the kernel can (Linux 6.5): else programs
    that go on could write to the directory beneath meanwhile.

    Args:
        target: The mount point.
        options: Options of mount(8). Only those that restrict are applied.
        allow_other: Whether other users may access it.

    Raises:
        OSError: EPERM without the privilege.
    """
    fd = os.open(FUSE_DEVICE, os.O_RDWR | os.O_CLOEXEC)
    wanted: dict[str, str | None] = {
        "fd": str(fd), "rootmode": "40000", "user_id": str(os.geteuid()), "group_id": str(os.getegid()),
        "default_permissions": None,
    }  # fmt: skip
    if allow_other:
        wanted["allow_other"] = None
    try:
        if not (has_dead(target) and _replace_dead(target, options, wanted)):
            flags = sum(flag for name, flag in _MOUNT_FLAGS.items() if name in options)
            data = ",".join(name if text is None else f"{name}={text}" for name, text in wanted.items())
            syscalls.mount(b"agentfsd", os.fsencode(target), FSTYPE.encode(), flags, data.encode())
    except OSError:
        os.close(fd)
        raise
    return fd


def _replace_dead(target: str, options: frozenset[str], wanted: dict[str, str | None]) -> bool:
    """Mount a FUSE file system beneath a dead one, and unmount that; return False if it was only unmounted. OSError: EPERM."""
    kind, _, subtype = FSTYPE.partition(".")
    wanted |= {"source": "agentfsd", "subtype": subtype} | {name: None for name in _OF_FILESYSTEM if name in options}
    encoded = {name.encode(): text if text is None else text.encode() for name, text in wanted.items()}
    attributes = sum(flag for name, flag in _ATTRIBUTES.items() if name in options)
    is_mounted = False
    try:
        mount = syscalls.new_mount(kind.encode(), encoded, attributes)
        try:
            syscalls.place_mount(mount, os.fsencode(target), beneath=True)
            is_mounted = True
        finally:
            os.close(mount)
    except OSError as exc:
        if exc.errno == errno.EPERM:
            raise
    unmount(target, lazy=True)
    return is_mounted


def mount_tmpfs(target: str, source: str, size_bytes: int, *, again: bool = False) -> None:
    """Mount a tmpfs that only its owner may enter.

    Args:
        target: The mount point.
        source: The name that the mount table shows.
        size_bytes: Its largest size.
        again: Change the size of the tmpfs that is mounted there.

    Raises:
        OSError: EPERM without the privilege.
    """
    flags = syscalls.MS_NOSUID | syscalls.MS_NODEV | (syscalls.MS_REMOUNT if again else 0)
    data = f"size={size_bytes}" + ("" if again else ",mode=700")
    syscalls.mount(source.encode(), os.fsencode(target), b"tmpfs", flags, data.encode())


def unmount(mountpoint: str, lazy: bool = False) -> None:
    """Unmount the topmost mount at *mountpoint*, by umount2 when permitted, else by fusermount3.

    *lazy*: detach it at once; it ends with its last user.

    Raises:
        OSError: EBUSY when it is in use (never with *lazy*), EINVAL when nothing is mounted there.
    """
    try:
        syscalls.unmount(os.fsencode(mountpoint), lazy=lazy)
    except PermissionError as exc:
        if exc.errno != errno.EPERM:
            raise
        _fusermount(mountpoint, lazy)


def _fusermount(mountpoint: str, lazy: bool) -> None:
    program = shutil.which("fusermount3")
    if program is None:
        raise OSError(errno.EPERM, "fusermount3 is not installed", mountpoint)
    command = [program, "-u", *(["-z"] if lazy else []), "--", mountpoint]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_FUSERMOUNT_TIMEOUT_S, check=False)
    if done.returncode == 0:
        return
    message = done.stderr.strip().rpartition(": ")[2] or "fusermount3 failed"
    busy = "busy" in message.lower()
    gone = "not found" in message.lower() or "invalid" in message.lower()
    raise OSError(errno.EBUSY if busy else errno.EINVAL if gone else errno.EPERM, message, mountpoint)


def read_far_ahead(device: int) -> None:
    """Set the kernel's read-ahead on a FUSE file system to the size of one request, if permitted (root)."""
    path = f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb"
    with contextlib.suppress(OSError), open(path, "w") as setting:
        setting.write(str(_READ_AHEAD_KIB))
