"""Sees to it that another daemon goes on with the mount when this one is killed, or when somebody asks for one (an update)."""

import contextlib
import errno
import logging
import sqlite3
from collections.abc import Awaitable, Callable

import trio

from agentfsd.daemon.handover import Successor
from agentfsd.domain_errors import Refusal
from agentfsd.fuse.branch_mounts import BranchMounts
from agentfsd.fuse.keeper import KeeperPlace, silence_limit_s
from agentfsd.process.kept_descriptors import KeptDescriptors
from agentfsd.process.service_manager import ServiceManager

log = logging.getLogger("agentfsd")

_REPORTS = 6  # in the time after which the keeper would kill this daemon
_LAST_REQUESTS_S = 30.0


class Succession:
    """What a daemon does for the next one.

    Args:
        kept: The descriptors that the next one gets.
        holders: The process that keeps them, unless the service manager does.
        manager: The service manager.
        why_not: Why there can be no next one; "" if there can.
        be_answered: Returns when the mount and the socket have answered. Called in a thread. OSError.
        publish: Writes the daemon's record.
        commit: Commits what is in the journal. OSError or sqlite3.Error.
        idle: Returns when no request of a client is carried out.
        log_path: The file for the standard error of the next daemon; "" for ours.
    """

    def __init__(
        self, kept: KeptDescriptors, holders: BranchMounts, manager: ServiceManager, why_not: str, *,
        be_answered: Callable[[], None], publish: Callable[[], None], commit: Callable[[], None],
        idle: Callable[[], Awaitable[None]], log_path: str,
    ) -> None:  # fmt: skip
        self._kept, self._holders, self._manager, self.why_not = kept, holders, manager, why_not
        self._be_answered, self._publish, self._commit, self._idle = be_answered, publish, commit, idle
        self._log_path = log_path
        self._successor: Successor | None = None
        self._is_replacing = False
        self._is_ready = trio.Event()
        self._has_begun = False

    @property
    def is_settled(self) -> bool:
        """Whether another daemon goes on with the mount if this one just ends."""
        return self._holders.keeper is not None or (self._manager.listens and self._has_begun)

    def begin(self, place: KeeperPlace) -> None:
        """Have the service manager keep the descriptors, or the process that holds mounts. Call it when the mount has answered.

        Args:
            place: Where that process writes.
        """
        if self.why_not:
            return
        self._has_begun = True
        if self._manager.listens:
            with contextlib.suppress(OSError):  # tell_again() has more luck
                self._kept.held_by(self._manager)
        else:
            self._holders.keeper_place = place
            self._holders.serving()

    # -- in case this daemon is killed

    def tell_again(self) -> None:
        """Have the service manager keep what it could not be told of. Call it periodically."""
        if self._manager.listens and self._has_begun and not self._kept.is_told:
            with contextlib.suppress(OSError):
                self._kept.held_by(self._manager)

    async def watch_keeper(self, start: Callable[[], Awaitable[None]]) -> None:
        """Keep a process running that holds mounts and keeps descriptors. *start* starts it if it does not run."""
        while True:
            await start()
            self._publish()
            async with trio.open_nursery() as nursery:
                if self._holders.keeper is not None:
                    nursery.start_soon(self._report)
                await self._holders.keeper_ends()
                nursery.cancel_scope.cancel()
            log.warning("the process that would start the next daemon was killed: another one is started")

    async def _report(self) -> None:
        """Tell the keeper from time to time that we answer."""
        answering = trio.CapacityLimiter(1)  # its own: the others may all be copying
        while True:
            with contextlib.suppress(OSError):
                await trio.to_thread.run_sync(self._be_answered, abandon_on_cancel=True, limiter=answering)
                self._holders.alive()
            await trio.sleep(silence_limit_s() / _REPORTS)

    # -- on request

    async def restart(self) -> None:
        """Start the next daemon, which takes over after the answer to this request. Refusal if it cannot."""
        if self.why_not:
            message = f"this daemon cannot be replaced while it serves: {self.why_not}"
            raise Refusal(errno.EOPNOTSUPP, "not-restartable", message, "unmount, and mount again")
        if self._is_replacing:
            raise Refusal(errno.EBUSY, "being-replaced", "this daemon is being replaced already", "wait for that")
        try:
            self._commit()  # which comes again at the end, when whoever asks could not be told that the disk is full
        except (OSError, sqlite3.Error) as exc:
            hint = "this one goes on; it needs room for its state directory"
            raise Refusal(errno.EIO, "not-replaced", f"the metadata cannot be committed: {exc}", hint) from exc
        keeper_pid, log_path = self._holders.keeper_pid, self._log_path
        self._is_replacing = True
        try:
            self._successor = await trio.to_thread.run_sync(Successor.start, self._kept, keeper_pid, log_path)
        finally:
            self._is_replacing = self._successor is not None
        self._is_ready.set()

    async def hand_over(self) -> None:
        """Hand over between two requests, once the next daemon is ready."""
        while True:
            await self._is_ready.wait()
            self._is_ready = trio.Event()
            with trio.move_on_after(_LAST_REQUESTS_S) as waiting:
                await self._idle()
            if waiting.cancelled_caught:
                self._stay("a request of a client takes too long")
            else:
                self._hand_over_now()

    def _hand_over_now(self) -> None:
        assert self._successor is not None
        link = self._holders.keeper
        try:
            self._commit()
            next_pid = self._successor.pid
            self._holders.succeeded_by(next_pid)
            self._successor.take_over(
                self._kept, link.connection if link is not None else None, lambda: self._manager.succeeded_by(next_pid)
            )
        except (OSError, sqlite3.Error) as exc:
            self._stay(str(exc))

    def _stay(self, why: str) -> None:
        assert self._successor is not None
        log.error("this daemon is not replaced: %s", why)
        self._successor.give_up()
        self._successor, self._is_replacing = None, False
        self._holders.serving()
