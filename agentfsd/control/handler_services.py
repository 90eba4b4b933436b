"""The parts of the daemon that handlers of control requests use, as one frozen record. This module sees no request."""

import errno
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol

import trio

from agentfs_client import facts
from agentfsd.asking.questions import Questions
from agentfsd.binding.table import IN_DOUBT, Bindings
from agentfsd.control.audit_notes import AuditNote
from agentfsd.control.change_counts import ChangeCounts
from agentfsd.control.daemon_info import DaemonInfo
from agentfsd.control.overlap_watch import OverlapWatch
from agentfsd.control.request_context import RequestContext
from agentfsd.core.branch_events import BranchEvent, EventKind
from agentfsd.core.overlay import Overlay
from agentfsd.core.tree import Inode
from agentfsd.domain_errors import Refusal
from agentfsd.handoff.descriptor_forwarding import Forwarding
from agentfsd.history.lower_commits import LowerCommits
from agentfsd.telemetry.audit_trail import AuditTrail
from agentfsd.telemetry.process_identity import ProcessIdentifier
from agentfsd.telemetry.request_counters import RequestCounters
from agentfsd.types import DEFAULT_BRANCH, BranchView, HomeView

log = logging.getLogger(__name__)

_LOGGED_AT_INFO = ("restore", "merge", "commit", "undo", "discard", "branch-renamed", "branch-deleted")  # somebody may ask later
_GONE = "(deleted)"


class Flush(Protocol):
    """Has the kernel write back dirty pages of one branch (None: of all), so that a snapshot contains them."""

    async def __call__(self, branch_id: str | None = None) -> None: ...


class HomeLayers(Protocol):
    """The changes of branches to the home directory."""

    async def open(self, branch_id: str, home: str) -> HomeView:
        """Return a mount of *home* with a branch's changes. Refusal if there is none to be had."""

    def has_changes(self, branch_id: str) -> bool:
        """Return whether a branch has any."""

    def discard(self, branch_id: str, kept: str = "") -> None:
        """Discard a branch's changes; with *kept*, the name of a snapshot, bring_back() brings them back."""

    def bring_back(self, branch_id: str, kept: str) -> None:
        """Bring back what discard() has kept with that snapshot, if anything. Refusal if newer changes would be lost."""


class RunsBesideUs(Protocol):
    """Runs that change branches without the daemon. ``live``: the ids of the branches."""

    @property
    def live(self) -> Collection[str]: ...

    async def look(self, branch_ids: Collection[str] | None = None, *, own: bool = False) -> None:
        """Bring into these branches, or into all, what their runs have written until now. OSError.

        *own*: give the branches contents of their own, too.
        """

    async def push(self) -> None:
        """Show runs the states that their branches have got by a restore, a merge or an undo. OSError."""

    def standing_still(self, branch_id: str, spared: int, *, changes: bool = False) -> AbstractAsyncContextManager[str]:
        """Stop the processes of a branch's run, but *spared* and those above it, for the time of the block. Yield why not all.

        *changes*: the branch gets another state. OSError if the run could not be shown that.
        """


class BaseMaker(Protocol):
    """Makes frozen bases of the real directory, and removes them."""

    def made(self, progress: Callable[[int, int, str], None]) -> AbstractAsyncContextManager[str]:
        """Freeze the real directory and yield the base's id. If no layer has it after the block, it is removed. Refusal."""

    async def sweep(self) -> None:
        """Remove the bases that nothing needs."""


class CommitTurn:
    """Permits one commit into the real directory at a time, and none while the directory is frozen.

    ``is_taken`` is true while a commit is under way.
    """

    def __init__(self) -> None:
        self.is_taken = False
        self._freezing = 0
        self._has_changed = trio.Event()

    @asynccontextmanager
    async def left_alone(self) -> AsyncIterator[None]:
        """Wait for the commit that is under way, and let none begin during the block."""
        while self.is_taken:
            await self._has_changed.wait()
        self._freezing += 1
        try:
            yield
        finally:
            self._freezing -= 1
            self._tell()

    async def thawed(self) -> None:
        """Wait until nobody freezes the real directory."""
        while self._freezing:
            await self._has_changed.wait()

    def _tell(self) -> None:
        self._has_changed.set()
        self._has_changed = trio.Event()

    @contextmanager
    def take(self) -> Iterator[None]:
        """Hold the turn during the block.

        Raises:
            Refusal: Another commit is under way.
        """
        if self.is_taken:
            raise Refusal(errno.EBUSY, "commit-under-way", "another commit into the real directory is under way", "wait for it")
        self.is_taken = True
        try:
            yield
        finally:
            self.is_taken = False
            self._tell()


async def _do_nothing(branch_id: str | None = None) -> None:
    return


async def _stay(force: bool) -> None:
    return


def _no_connections() -> list[tuple[str, str, str]]:
    return []


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The parts of a daemon that handlers use. The defaults are those of a daemon without a mount.

    Attributes:
        overlay: The branches and snapshots.
        bindings: Which process is bound to which branch.
        info: What the daemon says of itself.
        flush: See Flush.
        settle: Returns when the kernel has dropped what a request made stale.
        write_back: Likewise, and the kernel has written back what was dirty.
        shutdown: Asks the daemon to unmount and end; True also while the mount is in use.
        restart: Has the next daemon take over after the reply.
        measure: The daemon's own use of resources: see wire.StatusReply.
        open_for_writing: The files of a branch (its id) that processes at the mount point have open for writing.
        open_view: Makes a mount that shows one branch (its id), with that way to carry data. None: there are no such mounts.
        runs: Runs that change branches without the daemon; None without a mount.
        homes: Has the changes of branches to the home directory; None without a mount.
        bases: Makes frozen bases; None: this daemon does not.
        connections: Branch id, session and io of each connection of the kernel.
        traffic: Counters of requests.
        identify: Command and user of a process.
        questions: Where processes wait for answers about paths.
        audit: The audit trail; None: there is none.
        apply_settings: Applies a setting that has changed.
        forwarding: Gives out real descriptors; None: this daemon does not.
        interpose_path: The socket of the preloaded library; "" for none.
        descriptor_ioctl: The ioctl by which a descriptor of the mount says which file it is.
        commit_turn: Who may commit into the real directory now.
        counts: How much each branch has changed.
        overlaps: Which paths several branches have changed; None without a mount.
    """

    overlay: Overlay
    bindings: Bindings
    info: DaemonInfo
    flush: Flush = _do_nothing
    settle: Callable[[], Awaitable[None]] = _do_nothing
    write_back: Callable[[], Awaitable[None]] = _do_nothing
    shutdown: Callable[[bool], Awaitable[None]] = _stay
    restart: Callable[[], Awaitable[None]] = _do_nothing
    measure: Callable[[], dict[str, int]] = dict
    open_for_writing: Callable[[str], Collection[Inode]] = lambda branch_id: ()
    open_view: Callable[[str, str], Awaitable[BranchView]] | None = None
    homes: HomeLayers | None = None
    runs: RunsBesideUs | None = None
    connections: Callable[[], list[tuple[str, str, str]]] = _no_connections
    traffic: RequestCounters = field(default_factory=RequestCounters)
    identify: ProcessIdentifier
    questions: Questions
    audit: AuditTrail | None = None
    apply_settings: Callable[[], None] = lambda: None
    forwarding: Forwarding | None = None
    interpose_path: str = ""
    descriptor_ioctl: int = 0
    bases: BaseMaker | None = None
    commit_turn: CommitTurn = field(default_factory=CommitTurn)
    counts: ChangeCounts = field(default_factory=ChangeCounts)
    overlaps: OverlapWatch | None = None

    def standing_still(
        self, branch_id: str, context: RequestContext, *, changes: bool = False
    ) -> AbstractAsyncContextManager[str]:
        """Stop the processes of a run that changes a branch without us: see RunsBesideUs."""
        if self.runs is None:
            return nullcontext("")
        return self.runs.standing_still(branch_id, context.caller.pid, changes=changes)

    def lower_commits(self) -> LowerCommits:
        """Return what commits branches into the real directory."""
        return LowerCommits(self.overlay, self.info.state, self.info.lower)

    @asynccontextmanager
    async def frozen_base(self, context: RequestContext) -> AsyncIterator[str]:
        """Freeze the real directory for a request, and yield the base's id. No commit begins before the end of the block.

        Raises:
            Refusal: This daemon keeps no frozen bases, a commit was interrupted, or as BaseMaker.made().
        """
        if self.bases is None:
            raise Refusal(errno.EOPNOTSUPP, "no-frozen-base", "the real directory cannot be frozen without a mount")
        async with self.commit_turn.left_alone():
            self.lower_commits().check()
            async with self.bases.made(context.progress) as base:
                yield base

    async def push(self) -> None:
        """Show such runs the states that their branches have got. OSError."""
        if self.runs is not None and self.runs.live:
            await self.runs.push()

    def branch_name(self, branch_id: str | None) -> str:
        """Return the name of a branch by its id; None means the default branch.

        A process can outlive its branch. It then sees nothing, and never another branch.
        """
        if branch_id is None:
            return DEFAULT_BRANCH
        if branch_id == IN_DOUBT:
            return facts.IN_DOUBT
        return self.identify.branch_name(branch_id) or _GONE

    def pin(self, ref: str | None) -> str | None:
        """Return the id of *ref*.

        A handler that waits uses the id, so that it acts on what was authorized even if a name changes meanwhile.
        """
        return None if ref is None else self.overlay.refs.find(ref).id

    def tell(self, kind: EventKind, branch_id: str, pid: int, *, branch: str = "", name: str = "", by: int = 0) -> None:
        """Report a change of a branch to the listeners and the log. Call it before the handler awaits anything.

        Args:
            kind: What has happened.
            branch_id: The branch.
            pid: The process that did it, or that was bound.
            branch: The branch's name, needed if the branch is gone.
            name: See BranchEvent.
            by: Likewise.
        """
        self.overlay.events.publish(BranchEvent(kind, branch_id, pid, branch=branch, name=name, by=by))
        level = logging.INFO if kind in _LOGGED_AT_INFO else logging.DEBUG
        if log.isEnabledFor(level):
            of = branch or (self.overlay.refs.branch(branch_id).name if self.overlay.refs.exists(branch_id) else branch_id)
            log.log(level, "%s: %s%s, by process %d", of, kind, f" {name}" if name else "", pid, extra={"branch": of})

    def note(self, note: AuditNote | None, context: RequestContext) -> None:
        """Add an entry to the audit trail, if there is a trail. None adds nothing."""
        if note is None or self.audit is None:
            return
        branch_id = context.bound_to or "" if note.branch is None else self.overlay.refs.branch(note.branch).id
        self.audit.note(note.kind, context.caller, branch_id, note.name)
