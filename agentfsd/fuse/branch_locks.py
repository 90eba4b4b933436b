"""Locks of processes at the mount point, held on the connection of their branch as well, whose kernel side tells us of none."""

import errno
import os
from collections.abc import Callable
from typing import Any

from agentfsd.core.inode import Inode
from agentfsd.fuse.branch_mounts import BranchMount
from agentfsd.fuse.locks import Conflict


class BranchLocks:
    """A LockPeer. ``has_ended`` tells that the connection is no more, and nobody there has a lock."""

    def __init__(self, mount: BranchMount, has_ended: Callable[[], bool]) -> None:
        self._mount, self._has_ended = mount, has_ended

    async def hold(self, inode: Inode, owner: int, start: int, end: int, kind: int, flock: bool) -> Conflict | None:
        return await self._ask("hold", inode, owner, start, end, kind, flock=flock)

    async def test(self, inode: Inode, owner: int, start: int, end: int, kind: int) -> Conflict | None:
        return await self._ask("test", inode, owner, start, end, kind)

    async def release(self, inode: Inode, owner: int, start: int, end: int, flock: bool) -> None:
        await self._ask("release", inode, owner, start, end, flock=flock)

    async def _ask(
        self, do: str, inode: Inode, owner: int, start: int, end: int, kind: int = 0, *, flock: bool = False
    ) -> Conflict | None:
        if not inode.nlink:
            return None  # nobody can open it there any more
        message: dict[str, Any] = {
            "do": do, "ino": inode.tree.attributes(inode).ino, "path": os.fsdecode(inode.path), "owner": owner,
            "start": start, "end": end, "kind": kind, "flock": flock,
        }  # fmt: skip
        try:
            found = (await self._mount.lock(message)).get("conflict")
        except OSError as exc:
            if self._has_ended():
                return None
            raise OSError(errno.ENOLCK, f"the lock cannot be taken where runs would see it: {exc.strerror}") from exc
        return Conflict(found[1], found[2], found[0], 0) if found is not None else None
