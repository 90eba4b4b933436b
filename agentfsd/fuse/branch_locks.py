"""Takes locks of processes at the mount point on their branch's zero-message connection too.

The kernel keeps the locks of a zero-message connection to itself, so only a lock that is held there excludes the processes of
runs.
"""

import errno
import itertools
import os
import random
import time
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

import trio

from agentfsd.core import inode_stat
from agentfsd.core.tree import Inode
from agentfsd.fuse.branch_mounts import BranchMount
from agentfsd.fuse.lock_service import LockConflict

_NOT_TO_BE_OPENED = (errno.EACCES, errno.EPERM)
_MOVED = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)  # the file was renamed while the request was on its way
_ATTEMPTS_AT_ONCE = 5  # from then on with pauses of random length, so as not to keep step with a process that renames in a loop
_PAUSE_S = 0.002
_THIS_DAEMON = time.time_ns()  # tells it from the one before
_GIVE_UP_S = 10.0


class BranchLocks:
    """A LockPeer that asks the holder of the branch's mount.

    Args:
        has_ended: Tells whether the connection has ended, and with it all locks there.
        knows: Tells whether the kernel has a node of a file on that connection.
        resumed: The holder has locks from the daemon before.
    """

    def __init__(
        self, mount: BranchMount, has_ended: Callable[[], bool], knows: Callable[[Inode], bool], *, resumed: bool = False
    ) -> None:
        self._mount, self._has_ended, self._knows = mount, has_ended, knows
        self._files: WeakSet[Inode] = WeakSet()
        self._is_resumed = resumed

    async def hold(self, inode: Inode, owner: int, start: int, end: int, kind: int, flock: bool) -> LockConflict | None:
        return await self._ask("hold", inode, owner, start, end, kind, flock=flock)

    async def test(self, inode: Inode, owner: int, start: int, end: int, kind: int) -> LockConflict | None:
        return await self._ask("test", inode, owner, start, end, kind)

    async def release(self, inode: Inode, owner: int, start: int, end: int, flock: bool) -> None:
        if inode in self._files or self._is_resumed:
            await self._ask("release", inode, owner, start, end, flock=flock)

    async def forget_former(self) -> None:
        """Release what the holder has from the daemon before, and was not asked for again: that daemon was killed in between."""
        if self._is_resumed:
            unused = {"file": 0, "path": "", "ino": 0, "owner": 0, "start": 0, "end": 0, "kind": 0, "flock": False}
            # A holder that an older version started reads the unused fields first, and refuses the request then.
            await self._mount.lock({"do": "forget", "daemon": _THIS_DAEMON, **unused})

    async def _ask(
        self, do: str, inode: Inode, owner: int, start: int, end: int, kind: int = 0, *, flock: bool = False
    ) -> LockConflict | None:
        began = trio.current_time()
        for attempt in itertools.count(1):
            try:
                return await self._try(do, inode, owner, start, end, kind, flock=flock)
            except OSError as exc:
                if self._has_ended() or exc.errno in _NOT_TO_BE_OPENED:  # then nobody locks it there
                    return None
                if exc.errno not in _MOVED or trio.current_time() - began > _GIVE_UP_S:
                    reason = f"the lock cannot be taken where runs would see it: {exc.strerror}"
                    raise OSError(errno.ENOLCK, reason) from exc
                if attempt >= _ATTEMPTS_AT_ONCE:
                    await trio.sleep(random.uniform(0, _PAUSE_S))
        raise AssertionError

    async def _try(
        self, do: str, inode: Inode, owner: int, start: int, end: int, kind: int, *, flock: bool
    ) -> LockConflict | None:
        path, ino = _place(inode) if do != "release" else ("", 0)
        if inode not in self._files:
            if not path and not self._knows(inode):
                return None  # no process there has it open, and none can open a file without a name
            self._files.add(inode)
        message: dict[str, Any] = {
            "do": do, "file": inode.ino, "path": path, "ino": ino, "owner": owner,
            "start": start, "end": end, "kind": kind, "flock": flock, "daemon": _THIS_DAEMON,
        }  # fmt: skip
        conflict = (await self._mount.lock(message)).get("conflict")
        return LockConflict(conflict[1], conflict[2], conflict[0], 0) if conflict is not None else None


def _place(inode: Inode) -> tuple[str, int]:
    """Return the path and inode number of a file in its branch; ("", 0) for a file without a name."""
    if not inode.nlink:
        return "", 0
    try:
        return os.fsdecode(inode.path), inode_stat.attributes(inode).ino
    except OSError:  # it has gone from the lower
        return "", 0
