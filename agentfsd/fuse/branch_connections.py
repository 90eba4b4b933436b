"""The connections for `agentfsd run`: one for each branch, which all runs of that branch share.

To the kernel two FUSE connections are two file systems, which share no page cache, mappings or locks. So all runs of a branch use
one connection. Other processes may use the same branch at the mount point, bound to it or below `.agentfs/branches/`;
fuse/page_owners.py keeps the pages of both sides consistent.
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
_KEPT_S = 30.0  # after the last run of a branch, so that the next one finds warm caches


log = logging.getLogger(__name__)


class BranchSession(Protocol):
    """The session of a branch's connection.

    Attributes:
        ended: The kernel has closed the connection, or the daemon has.
    """

    ended: bool

    @property
    def io(self) -> str:
        """How files get to processes: "zero-message", "passthrough" or "cached"."""

    def knows(self, inode: Inode) -> bool:
        """Return whether the kernel has a node of a file here."""


@dataclass(slots=True)
class _BranchConnection:
    session: BranchSession
    mount: BranchMount
    users: int = 0  # runs that use it
    is_released: bool = False
    loss_is_logged: bool = False
    used_s: float = field(default_factory=time.monotonic)


async def _ended_soon(session: BranchSession) -> None:
    """Wait half a second at most for the kernel to report that the last mount has gone."""
    for _ in range(_LOOKS):
        if session.ended:
            return
        await trio.sleep(_LOOK_S)


class BranchConnections:
    """Opens, shares and ends the connections of branches.

    Args:
        options: Returns the mount options in force.
        serve: ``serve(fd, branch id, io, st_dev)`` begins to answer requests on a connection.
        is_in_use: Tells whether a process is bound to a branch.
        locks: Gets a lock peer for each zero-message connection.
    """

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
        """Return one more mount of a branch's connection; make the connection if there is none.

        Args:
            io: How files get to processes. It takes effect only if this call makes the connection.

        Raises:
            OSError: The kernel refuses.
            Unsupported: This kernel's FUSE cannot be used.
            Refusal: The process that held the mount has died, and processes still use the connection.
        """
        async with self._turns.setdefault(branch_id, trio.Lock()):
            run = await self._usable(branch_id)
            joined = run is not None
            if run is None:
                run = await self._begin(branch_id, io)
            run.used_s = time.monotonic()  # or sweep() could end it while we wait
            mount = await run.mount.copy()
            namespace = run.mount.user_namespace
            try:
                inherited = os.dup(namespace) if namespace is not None else None
            except OSError:
                os.close(mount)
                raise
            run.users += 1
            return BranchView(run.session.io, joined, mount, inherited, lambda: self._leave(run))

    async def _usable(self, branch_id: str) -> _BranchConnection | None:
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
        mount, connection = await self._mounts.mount(branch_id, self._options())
        try:
            session = self._serve(connection, branch_id, io, mount.device)
        except BaseException:
            mount.close()
            raise
        mounts.read_far_ahead(mount.device)
        run = self._by_branch[branch_id] = _BranchConnection(session, mount)
        peer = self._peer(run)
        if peer is not None:
            await self._locks.attach_peer(branch_id, peer)
        return run

    @staticmethod
    def _leave(run: _BranchConnection) -> None:
        """Count one run less. Processes that it left behind may still use the connection."""
        run.users -= 1
        run.used_s = time.monotonic()

    def resume(self, branch_id: str, session: BranchSession, device: int) -> None:
        """Go on with a connection of the daemon before. Its runs count as ended: their processes are bound.

        Args:
            branch_id: The branch.
            session: The session.
            device: The st_dev of the file system.
        """
        mount = self._mounts.resume_mount(branch_id, device)
        if mount is None:
            log.warning("the mount of branch %s has no holder any more; its runs go on", branch_id)
        else:
            run = self._by_branch[branch_id] = _BranchConnection(session, mount)
            peer = self._peer(run, resumed=True)
            if peer is not None:  # before the first request: a lock that is granted without it is granted twice
                self._locks.add_peer(branch_id, peer)

    async def resume_locks(self) -> None:
        """Take the locks that are held through the connections of resumed branches, too. Call it when these are served."""
        for branch_id in list(self._by_branch):
            await self._locks.resume_peer(branch_id)

    @staticmethod
    def _peer(run: _BranchConnection, *, resumed: bool = False) -> BranchLocks | None:
        """Return the peer of a zero-message connection: its kernel keeps its locks, and other connections hand us theirs."""
        if run.session.io != "zero-message":
            return None
        return BranchLocks(run.mount, lambda: run.session.ended or run.is_released, run.session.knows, resumed=resumed)

    def is_idle(self) -> bool:
        """Return whether no run and no bound process uses any of these connections."""
        return not any(self._is_used(branch_id, run) for branch_id, run in self._by_branch.items())

    def _is_used(self, branch_id: str, run: _BranchConnection) -> bool:
        return run.users > 0 or self._is_in_use(branch_id)

    def is_in_use(self, branch_id: str) -> bool:
        """Return whether a run or a bound process uses the connection of a branch."""
        run = self._by_branch.get(branch_id)
        return run is not None and not run.session.ended and self._is_used(branch_id, run)

    def sweep(self) -> None:
        """End connections that no run has used for 30 s. Call periodically."""
        for branch_id, run in list(self._by_branch.items()):
            if run.session.ended:
                self._forget(branch_id, run)
            elif run.mount.is_lost and not run.is_released:
                self._log_loss(branch_id, run)
            elif self._is_used(branch_id, run):
                run.used_s = time.monotonic()
            elif time.monotonic() - run.used_s > _KEPT_S:
                self._release(branch_id, run)

    def branch_gone(self, branch_id: str) -> None:
        """End the connection of a branch that was deleted. A branch with the same id may be made again."""
        run = self._by_branch.get(branch_id)
        if run is not None:
            self._release(branch_id, run)

    def _log_loss(self, branch_id: str, run: _BranchConnection) -> None:
        """Log once that the holder of the mount was killed.

        Runs no longer see the locks that it held for processes at the mount point. The peer stays attached, so locks at the mount
        point are refused until these runs end: granting them would let both sides hold the same lock.
        """
        if not run.loss_is_logged:
            run.loss_is_logged = True
            log.warning("the process that held the mount and locks of branch %s has died; its runs go on", branch_id)

    def _release(self, branch_id: str, run: _BranchConnection) -> None:
        """Close the holder's mount. The connection ends with the last run's mount, or at once if there is none."""
        if not run.is_released:
            run.is_released = True
            self._locks.detach_peer(branch_id)
            run.mount.close()

    def _forget(self, branch_id: str, run: _BranchConnection) -> None:
        self._release(branch_id, run)
        del self._by_branch[branch_id]

    def close(self) -> None:
        """Close the mounts of all connections."""
        for branch_id, run in list(self._by_branch.items()):
            self._forget(branch_id, run)
