"""Locks of processes at the mount point, held on the connection of their branch as well, whose kernel side tells us of none."""

import errno
import itertools
import os
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from agentfsd.core.tree import Inode
from agentfsd.fuse.branch_mounts import BranchMount
from agentfsd.fuse.lock_service import LockConflict

_NOT_TO_BE_OPENED = (errno.EACCES, errno.EPERM)
_MOVED = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)  # on the way there, it had another name already
_ATTEMPTS = 100


class BranchLocks:
    """A LockPeer. ``has_ended`` tells that the connection is no more, and nobody there has a lock; ``knows`` whether its kernel
    side has heard of a file."""

    def __init__(self, mount: BranchMount, has_ended: Callable[[], bool], knows: Callable[[Inode], bool]) -> None:
        self._mount, self._has_ended, self._knows = mount, has_ended, knows
        self._files: WeakKeyDictionary[Inode, int] = WeakKeyDictionary()
        self._numbers = itertools.count(1)

    async def hold(self, inode: Inode, owner: int, start: int, end: int, kind: int, flock: bool) -> LockConflict | None:
        return await self._ask("hold", inode, owner, start, end, kind, flock=flock)

    async def test(self, inode: Inode, owner: int, start: int, end: int, kind: int) -> LockConflict | None:
        return await self._ask("test", inode, owner, start, end, kind)

    async def release(self, inode: Inode, owner: int, start: int, end: int, flock: bool) -> None:
        if inode in self._files:
            await self._ask("release", inode, owner, start, end, flock=flock)

    async def _ask(
        self, do: str, inode: Inode, owner: int, start: int, end: int, kind: int = 0, *, flock: bool = False
    ) -> LockConflict | None:
        for attempt in itertools.count(1):
            try:
                return await self._try(do, inode, owner, start, end, kind, flock=flock)
            except OSError as exc:
                if self._has_ended() or exc.errno in _NOT_TO_BE_OPENED:  # who may not open it there has no lock there
                    return None
                if exc.errno not in _MOVED or attempt == _ATTEMPTS:
                    reason = f"the lock cannot be taken where runs would see it: {exc.strerror}"
                    raise OSError(errno.ENOLCK, reason) from exc
        raise AssertionError

    async def _try(
        self, do: str, inode: Inode, owner: int, start: int, end: int, kind: int, *, flock: bool
    ) -> LockConflict | None:
        path, ino = _place(inode) if do != "release" else ("", 0)
        if inode not in self._files:
            if not path and not self._knows(inode):
                return None  # nobody there has it, and nobody can open it any more
            self._files[inode] = next(self._numbers)
        message: dict[str, Any] = {
            "do": do, "file": self._files[inode], "path": path, "ino": ino, "owner": owner,
            "start": start, "end": end, "kind": kind, "flock": flock,
        }  # fmt: skip
        found = (await self._mount.lock(message)).get("conflict")
        return LockConflict(found[1], found[2], found[0], 0) if found is not None else None


def _place(inode: Inode) -> tuple[str, int]:
    """Path and number of a file as its branch shows them; ("", 0) of one that has no name any more."""
    if not inode.nlink:
        return "", 0
    try:
        return os.fsdecode(inode.path), inode.tree.attributes(inode).ino
    except OSError:  # it has gone from the lower
        return "", 0
