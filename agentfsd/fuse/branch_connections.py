"""The connections that `agentfsd run` sees its branches through: one for each branch, which all runs of that branch share.

To the kernel two FUSE connections are two file systems: page caches, maps and locks of one know nothing of the other's. So there
is one connection for a branch, which every further run of it joins. What processes do at the mount point meanwhile, bound to that
branch or below `.agentfs/branches/`, is brought into line by fuse/page_owners.py.
"""

import errno
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import trio

from agentfsd.core.tree import Inode
from agentfsd.domain_errors import Refusal
from agentfsd.fuse.branch_locks import BranchLocks
from agentfsd.fuse.branch_mounts import BranchMount, BranchMounts
from agentfsd.fuse.lock_service import LockService
from agentfsd.linux import mounts
from agentfsd.types import BranchView

_LOOKS, _LOOK_S = 50, 0.01
_KEPT_S = 30.0  # after the last run of a branch: the next one finds the kernel's caches warm


log = logging.getLogger(__name__)


class BranchSession(Protocol):
    """A connection that the daemon answers on."""

    ended: bool

    @property
    def io(self) -> str: ...

    def knows(self, inode: Inode) -> bool: ...


@dataclass(slots=True)
class _BranchConnection:
    session: BranchSession
    mount: BranchMount
    users: int = 0  # conversations of runs
    is_let_go: bool = False
    is_mourned: bool = False
    used_s: float = field(default_factory=time.monotonic)


async def _ended_soon(session: BranchSession) -> None:
    """Gives the kernel time to tell that nobody has the mount any more."""
    for _ in range(_LOOKS):
        if session.ended:
            return
        await trio.sleep(_LOOK_S)


class BranchConnections:
    """``serve(connection, branch id, io, device)`` begins to answer on one; ``is_in_use(branch id)``: whether a process is in
    that branch."""

    def __init__(
        self,
        branch_mounts: BranchMounts,
        options: Callable[[], frozenset[str]],
        serve: Callable[[int, str, str, int], BranchSession],
        is_in_use: Callable[[str], bool],
        locks: LockService,
    ) -> None:
        self._mounts, self._options = branch_mounts, options
        self._serve, self._is_in_use, self._locks = serve, is_in_use, locks
        self._by_branch: dict[str, _BranchConnection] = {}
        self._turns: dict[str, trio.Lock] = {}

    async def open(self, branch_id: str, io: str) -> BranchView:
        """Joins the connection of a branch, or makes it; *io* is heeded by who makes it.

        OSError or native.Unsupported when the kernel refuses; Refusal while processes go on using a connection that cannot be
        joined any more.
        """
        async with self._turns.setdefault(branch_id, trio.Lock()):
            run = await self._living(branch_id)
            joined = run is not None
            if run is None:
                run = await self._begin(branch_id, io)
            mount = await run.mount.copy()
            namespace = run.mount.user_namespace
            try:
                inherited = os.dup(namespace) if namespace is not None else None
            except OSError:
                os.close(mount)
                raise
            run.users += 1
            return BranchView(run.session.io, joined, mount, inherited, lambda: self._leave(run))

    async def _living(self, branch_id: str) -> _BranchConnection | None:
        run = self._by_branch.get(branch_id)
        if run is None:
            return None
        if run.mount.is_lost:
            await _ended_soon(run.session)
        if run.session.ended:
            self._forget(branch_id, run)
            return None
        if run.mount.is_lost:
            raise Refusal(
                errno.EBUSY, "view-lost", "processes of an earlier run still use a mount of that branch which nobody can join",
                "end them; until then a run sees the branch through the mount point",
            )  # fmt: skip
        return run

    async def _begin(self, branch_id: str, io: str) -> _BranchConnection:
        mount, connection = await self._mounts.mount(self._options())
        try:
            session = self._serve(connection, branch_id, io, mount.device)
        except BaseException:
            mount.close()
            raise
        mounts.read_far_ahead(mount.device)
        run = self._by_branch[branch_id] = _BranchConnection(session, mount)
        if session.io == "zero-message":  # any other connection hands its locks to us as well
            peer = BranchLocks(mount, lambda: session.ended or run.is_let_go, session.knows)
            await self._locks.attach_peer(branch_id, peer)
        return run

    @staticmethod
    def _leave(run: _BranchConnection) -> None:
        """A run has ended, though processes that it left behind may go on."""
        run.users -= 1
        run.used_s = time.monotonic()

    def is_idle(self) -> bool:
        """Whether nobody would miss any of these connections."""
        return not any(self._is_used(branch_id, run) for branch_id, run in self._by_branch.items())

    def _is_used(self, branch_id: str, run: _BranchConnection) -> bool:
        return run.users > 0 or self._is_in_use(branch_id)

    def sweep(self) -> None:
        """Call now and then: lets go of connections that no run has used for a while."""
        for branch_id, run in list(self._by_branch.items()):
            if run.session.ended:
                self._forget(branch_id, run)
            elif run.mount.is_lost and not run.is_let_go:
                self._mourn(branch_id, run)
            elif self._is_used(branch_id, run):
                run.used_s = time.monotonic()
            elif time.monotonic() - run.used_s > _KEPT_S:
                self._let_go(branch_id, run)

    def branch_gone(self, branch_id: str) -> None:
        """It was deleted; one of the same id may come back."""
        run = self._by_branch.get(branch_id)
        if run is not None:
            self._let_go(branch_id, run)

    def _mourn(self, branch_id: str, run: _BranchConnection) -> None:
        """Somebody has killed the holder. What it held for processes at the mount point is lost to those in runs, and until these
        have ended nothing can be locked at the mount point: to grant it unasked would be worse."""
        if not run.is_mourned:
            run.is_mourned = True
            log.warning("the process that held the mount and locks of branch %s has died; its runs go on", branch_id)

    def _let_go(self, branch_id: str, run: _BranchConnection) -> None:
        """The connection ends with the last run's mount, which is at once if there is none."""
        if not run.is_let_go:
            run.is_let_go = True
            self._locks.detach_peer(branch_id)
            run.mount.close()

    def _forget(self, branch_id: str, run: _BranchConnection) -> None:
        self._let_go(branch_id, run)
        del self._by_branch[branch_id]

    def close(self) -> None:
        for branch_id, run in list(self._by_branch.items()):
            self._forget(branch_id, run)
