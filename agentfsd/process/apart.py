"""Threads with a descriptor table of their own, for system calls that may wait for this very daemon.

A thread that waits in the kernel for an answer of a daemon that was killed cannot be killed. As long as it lives, the descriptors
of its table stay open, so the state stays locked and nobody learns that the daemon is dead. A thread of this module shares none.
"""

import os
import threading
from collections.abc import Callable
from typing import Any

from agentfs_host import syscalls

_CLONE_FILES = 0x400


def keep_only(*descriptors: int) -> None:
    """Give the calling thread a table with only these descriptors. Call it in a thread of its own: it cannot be undone."""
    try:
        syscalls.unshare(_CLONE_FILES)
    except OSError:  # a sandbox forbids it
        return
    first, end = 0, max(map(int, os.listdir("/proc/thread-self/fd"))) + 1
    for fd in sorted(descriptors):
        os.closerange(first, fd)
        first = fd + 1
    os.closerange(first, end)


def run(work: Callable[[], Any]) -> None:
    """Do some work in such a thread, which has no descriptor of the daemon, and wait for it. OSError, as *work* raises it."""
    failed: list[OSError] = []

    def alone() -> None:
        try:
            keep_only()
            work()
        except OSError as exc:
            failed.append(exc)

    thread = threading.Thread(target=alone, name="agentfsd-apart", daemon=True)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
