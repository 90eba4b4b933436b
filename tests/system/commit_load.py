"""Commits into a lower, in a child that dies by SIGKILL just before its n-th system call that changes anything.

python -m tests.system.commit_load ROOT WANTED STATE; then lines of "commit|resume|abort N" (N 0: it lives). For each the
answer is one line: "killed", or what was returned and the number of such calls. The tests may kill the child themselves: its
process number comes first.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agentfs_host import syscalls
from agentfsd.lower import commit_writer
from agentfsd.lower.host_lower import HostLower
from tests.lower.commit_trees import steps_between

CALLS = (
    "open", "mkdir", "link", "symlink", "mknod", "write", "rename", "unlink", "rmdir", "chmod", "chown", "utime", "setxattr",
    "removexattr", "fsync", "ftruncate",
)  # fmt: skip
KERNEL_CALLS = ("rename", "sync_filesystem")


class Counter:
    """Counts calls, and ends the process before the one that was chosen."""

    def __init__(self, last: int) -> None:
        self.count, self._last = 0, last

    def wrap(self, module: Any, name: str) -> None:
        real: Callable[..., Any] = getattr(module, name)

        def call(*arguments: Any, **options: Any) -> Any:
            self.count += 1
            if self.count == self._last:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)

        setattr(module, name, call)


def work(action: str, last: int, root: Path, wanted: Path, state: str) -> str:
    lower = HostLower(str(root))
    steps = steps_between(root, wanted) if action == "commit" else []
    counter = Counter(last)
    for name in CALLS:
        counter.wrap(os, name)
    for name in KERNEL_CALLS:
        counter.wrap(syscalls, name)
    if os.environ.get("AGENTFSD_NO_EXCHANGE"):
        syscalls._renameat2 = None
    os.write(1, b"begins\n")
    counter.count = 0
    if action == "commit":
        commit_writer.stage(lower, state, steps, note={"branch": "b"}).apply()
        done = True
    else:
        done = {"resume": commit_writer.resume, "abort": commit_writer.abort}[action](lower, state)
    return f"{done} {counter.count}"


def main() -> None:
    root, wanted, state = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    for line in sys.stdin:
        action, last = line.split()
        child = os.fork()
        if child == 0:
            print(os.getpid(), flush=True)
            print(work(action, int(last), root, wanted, state), flush=True)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            print("killed", flush=True)
        elif status:
            print("failed", flush=True)


if __name__ == "__main__":
    main()
