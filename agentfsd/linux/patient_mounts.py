"""Mounts over mount points of file systems that may not answer. This module knows nothing of branches.

mount(2) takes the lock of the directory that is covered. A look-up in that directory holds the lock until its file system
answers, for ever if its daemon was stopped, and no signal ends the wait. So another process mounts, and the caller waits as long
as it likes.
"""

import contextlib
import errno
import os
import select
import time
from collections.abc import Sequence

from agentfs_host import syscalls
from agentfsd.linux import namespaces


def cover(paths: Sequence[str], options: str, limit_s: float) -> dict[str, int]:
    """Mount an empty tmpfs over each path, in this process's namespace. Only a single-threaded process may call it.

    A process that is not done in time goes on alone, as a child of the nearest subreaper. It has no descriptor of ours. A mount
    that does not answer is then detached, which takes no such lock, and the directory below it is covered. In a user namespace
    the kernel refuses that: its users could uncover what was hidden from them.

    Args:
        paths: Directories.
        options: As in tmpfs(5).
        limit_s: How long to wait for one, in seconds.

    Returns:
        For each path 0, or the errno; ETIMEDOUT if it was not done in time and could not be detached.
    """
    outcomes: dict[str, int] = {}
    while len(outcomes) < len(paths):
        left = paths[len(outcomes) :]
        codes = _codes_of_child(left, options, limit_s)
        outcomes.update(zip(left, codes, strict=False))
        if len(codes) < len(left) and not _detach(left[len(codes)]):
            outcomes[left[len(codes)]] = errno.ETIMEDOUT
    return outcomes


def _detach(path: str) -> bool:
    try:
        syscalls.unmount(os.fsencode(path), lazy=True)
    except OSError:
        return False
    return True


def _codes_of_child(paths: Sequence[str], options: str, limit_s: float) -> bytes:
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        if os.fork() == 0:  # so that a late one is no child of the command
            _mount_each(paths, options, write_end)
        os._exit(0)
    os.close(write_end)
    os.waitpid(child, 0)
    codes = b""
    deadline = time.monotonic() + limit_s
    with open(read_end, "rb", buffering=0) as pipe:
        while len(codes) < len(paths) and select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
            part = pipe.read(len(paths))
            if not part:
                break  # it was killed
            codes += part
            deadline = time.monotonic() + limit_s
        if len(codes) == len(paths):
            pipe.read(1)  # until it has ended
    return codes


def _mount_each(paths: Sequence[str], options: str, write_end: int) -> None:
    """Run in the process that mounts. It never returns."""
    try:
        os.dup2(write_end, 0)
        for fd in map(int, os.listdir("/proc/self/fd")):
            if fd:
                with contextlib.suppress(OSError):  # that of the listing
                    os.close(fd)
        for path in paths:
            code = 0
            try:
                namespaces.mount_tmpfs(path, options)
            except OSError as exc:
                code = exc.errno or errno.EIO
            os.write(0, bytes([code]))  # EPIPE: the caller has not waited, and has another process for the rest
    finally:
        os._exit(0)
