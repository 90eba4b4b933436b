"""Opens a FUSE connection: by /dev/fuse and mount(2) where that is permitted, else through fusermount3."""

import array
import contextlib
import errno
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator

from agentfsd.linux import mounts

_FUSERMOUNT_TIMEOUT_S = 20


def mount(mountpoint: str, options: frozenset[str]) -> int:
    """Mount with options of mount(8) and ``allow_other``; return the connection's descriptor. OSError says what refused.

    If a killed daemon's mount is there, this one takes its place.
    """
    safe = options | {f"no{name}" for name in ("suid", "dev") if name not in options}
    try:
        return mounts.mount_fuse(mountpoint, safe, "allow_other" in options)
    except OSError as exc:
        if exc.errno != errno.EPERM:
            raise
    mounts.clear_dead(mountpoint)
    return _fusermount(mountpoint, options)


def mount_dead(mountpoint: str, allow_other: bool) -> None:
    """Mount a file system that answers every request with ENOTCONN; do nothing if mounting is refused."""
    with contextlib.suppress(OSError):
        os.close(mount(mountpoint, frozenset({"allow_other"} if allow_other else ())))


@contextlib.contextmanager
def uncovered(mountpoint: str, allow_other: bool) -> Iterator[bool]:
    """Take the mount of a killed daemon away for a moment, in which the directory beneath is seen; yield whether there was one.

    Afterwards nobody can write to that directory again.
    """
    was_dead = mounts.clear_dead(mountpoint)
    try:
        yield was_dead
    finally:
        if was_dead:
            mount_dead(mountpoint, allow_other)


def unmount(mountpoint: str) -> None:
    """Unmount lazily: the file system stays until its last user has gone."""
    try:
        mounts.unmount(mountpoint, lazy=True)
    except OSError as exc:
        if exc.errno != errno.EINVAL:  # it is gone already
            raise


def _fusermount(mountpoint: str, options: frozenset[str]) -> int:
    program = shutil.which("fusermount3")
    if program is None:
        raise OSError(errno.EPERM, "fusermount3 is not installed", mountpoint)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours, theirs:
        wanted = ",".join(["fsname=agentfsd", "subtype=agentfsd", "default_permissions", *sorted(options)])
        done = subprocess.run(
            [program, "-o", wanted, "--", mountpoint], env={**os.environ, "_FUSE_COMMFD": str(theirs.fileno())},
            pass_fds=[theirs.fileno()], capture_output=True, text=True, timeout=_FUSERMOUNT_TIMEOUT_S, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            said = done.stderr.strip().rpartition("fusermount3: ")[2] or "fusermount3 failed"
            raise OSError(errno.EPERM, said, mountpoint)
        return _receive_descriptor(ours)


def _receive_descriptor(channel: socket.socket) -> int:
    numbers = array.array("i")
    _, ancillary, _, _ = channel.recvmsg(1, socket.CMSG_SPACE(numbers.itemsize))
    for level, kind, payload in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            numbers.frombytes(payload[: numbers.itemsize])
            os.set_inheritable(numbers[0], False)
            return numbers[0]
    raise OSError(errno.EPROTO, "fusermount3 handed no descriptor over")
