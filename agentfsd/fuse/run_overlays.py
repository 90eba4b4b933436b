"""Branches as overlays of the kernel, for `agentfsd run --io overlay`: one for each branch, which all runs of that branch share.

The kernel does all the work while a run lasts; nothing of it depends on the daemon. What the run writes comes into the branch
whenever somebody asks for the branch, now and then by itself, and when the run has ended.
"""

import errno
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from functools import partial

import trio

from agentfsd.binding.table import Bindings
from agentfsd.core.overlay import Overlay
from agentfsd.core.tree import Tree
from agentfsd.fuse import paused_runs
from agentfsd.fuse.branch_mounts import BranchMounts
from agentfsd.fuse.overlay_beginning import OverlayBeginning, refusal
from agentfsd.fuse.run_overlay import RunOverlay
from agentfsd.linux.paused_processes import PausedProcesses
from agentfsd.metadata import layer_rows
from agentfsd.overlayfs import run_record
from agentfsd.overlayfs.layer_stack import LayerStack, remove
from agentfsd.overlayfs.run_record import NotOurs
from agentfsd.process.kept_descriptors import KeptDescriptors
from agentfsd.state.state_directory import StateDirectory
from agentfsd.types import BranchView

log = logging.getLogger(__name__)

_REFRESH_S = 0.5
_LOOK_S = 1.0  # between two looks that nobody has asked for
_SHARE = 50  # such looks take at most one part in so many of the time
_ASIDE = ".aside-"


class RunOverlays:
    """Mounts, shares and ends overlays.

    Args:
        branch_mounts: Starts the processes that hold the mounts.
        overlay: All branches.
        volume: Where the content objects lie, and layers and runs beside them.
        lower: The path and a descriptor of the lower.
        bindings: Tells which processes are bound to a branch.
        has_writers: Tells whether a file of a branch is open for writing at the mount point.
        options: Returns the mount options in force.
        kept: What the next daemon gets.
    """

    def __init__(
        self, branch_mounts: BranchMounts, overlay: Overlay, volume: StateDirectory, lower: tuple[str, int], bindings: Bindings,
        has_writers: Callable[[str], bool], options: Callable[[], frozenset[str]], kept: KeptDescriptors,
    ) -> None:  # fmt: skip
        self._overlay, self._volume, self._bindings = overlay, volume, bindings
        self._place = volume.overlays
        self._stack = LayerStack(self._place, overlay.backstore.place, overlay.trees)
        self._beginning = OverlayBeginning(branch_mounts, overlay, self._stack, self._place, lower, has_writers, options, kept)
        self._by_branch: dict[str, RunOverlay] = {}
        self._turns: dict[str, trio.Lock] = {}
        self._has_spare_layers = True  # perhaps
        self._lower_has_changed = trio.Event()
        overlay.events.on_replaced.append(self._tree_replaced)

    # -- beginning

    def prepare(self) -> None:
        """Prepare for an ordinary user. Call it before this daemon mounts anything, and before threads start."""
        self._beginning.prepare()

    def resume(self) -> None:
        """Go on with the runs of the daemon before, or take over what they have left. Call it before anybody asks anything.

        What goes wrong with one run holds up no other.
        """
        names = [name for name in self._names() if not name.startswith("layer-")]
        for name in names:
            paused_runs.let_go_on(os.path.join(self._place, name))
        for name in names:
            place = os.path.join(self._place, name)
            try:
                self._resume(place)
            except (NotOurs, OSError) as exc:
                aside = f"{place}{_ASIDE}{time.time_ns()}"
                log.error("what a run has left cannot be brought into its branch (%s): it is in %s", exc, aside)
                with suppress(OSError):
                    os.rename(place, aside)
            except Exception:
                log.exception("what a run has left in %s cannot be brought into its branch", place)

    def _resume(self, place: str) -> None:
        if _ASIDE in os.path.basename(place):
            return
        record = run_record.read_record(place)
        if record is None or not os.path.isdir(os.path.join(place, "upper")):  # it has ended, or has not begun
            run_record.remove_run(place)
            return
        if not self._overlay.refs.exists(record.branch):
            raise NotOurs("the branch is gone")
        live = self._by_branch[record.branch] = self._beginning.resume(place, record)
        try:
            if not live.overlay.is_replaced:  # else programs are shown the branch's state first
                live.overlay.take_over()
        except OSError as exc:
            log.error("what a run wrote in branch %s is still in %s: %s", record.branch, place, exc)

    def _names(self) -> list[str]:
        with suppress(FileNotFoundError):
            return os.listdir(self._place)
        return []

    # -- runs

    async def open(self, branch_id: str) -> BranchView:
        """Return one more mount of a branch's overlay; mount it if there is none.

        Raises:
            Refusal: ``no-overlay`` if the kernel cannot show the branch, or processes of an earlier run still use it.
        """
        async with self._turns.setdefault(branch_id, trio.Lock()):
            live = self._by_branch.get(branch_id)
            if live is not None and not self._is_used(branch_id, live):
                await self.look([branch_id])
                live = self._by_branch.get(branch_id)
            joined = live is not None
            if live is None:
                live = self._by_branch[branch_id] = await self._beginning.begin(branch_id)
            if why := self._beginning.why_not_join(branch_id):  # also after beginning: somebody may have added rules meanwhile
                raise refusal(why)
            if live.mount is None or not live.has_holder:
                raise refusal("processes of an earlier run still use an overlay of that branch, which nobody can join; end them")
            live.users += 1  # before waiting: else sweep() could end it meanwhile
            try:
                mount = await live.mount.copy()
            except BaseException as exc:
                live.users -= 1
                if isinstance(exc, OSError):
                    raise refusal(exc.strerror or str(exc)) from exc
                raise
            namespace = live.mount.user_namespace
            own = os.dup(namespace) if namespace is not None else None
            return BranchView("overlay", joined, mount, own, self._leaver(branch_id, live))

    def _leaver(self, branch_id: str, live: RunOverlay) -> Callable[[], None]:
        has_left = False

        def leave() -> None:
            nonlocal has_left
            live.users -= not has_left
            has_left = True

        return leave

    def _is_used(self, branch_id: str, live: RunOverlay) -> bool:
        return live.users > 0 or self._bindings.is_in(branch_id) or live.may_begin

    def is_idle(self) -> bool:
        """Return whether no run uses any of the overlays."""
        return not any(self._is_used(branch_id, live) for branch_id, live in self._by_branch.items())

    @property
    def live(self) -> Collection[str]:
        """The ids of the branches that runs have as overlays, or of which something is not yet in the branch."""
        return self._by_branch.keys()

    def sessions(self) -> list[tuple[str, str, str]]:
        """Return (branch id, kind of session, io) of each overlay."""
        return [(branch_id, "kernel", "overlay") for branch_id in self._by_branch]

    def has(self, branch_id: str) -> bool:
        """Return whether a run has the branch as an overlay, or has left something that is not yet in the branch."""
        return branch_id in self._by_branch

    # -- states and snapshots while runs go on

    @asynccontextmanager
    async def standing_still(self, branch_id: str, spared: int, *, changes: bool = False) -> AsyncIterator[str]:
        """Stop the processes of a run for the time of the block, after which what they have written is in the branch.

        Contents are the branch's own then: nothing that they write later changes them.

        Args:
            branch_id: The branch.
            spared: A process that is not stopped, as are those above it.
            changes: Whether the branch gets another state in the block.

        Yields:
            Why not all of them stand still; "" if they do, or if there is no such run.

        Raises:
            OSError: There is no room, for example.
        """
        live = self._by_branch.get(branch_id)
        if live is None:
            yield ""
            return
        async with live.turn:
            paused = PausedProcesses(lambda: self._pids(branch_id), spared)
            noted = self._volume.paused_run(branch_id)
            try:
                if paused.has_any():
                    await trio.to_thread.run_sync(paused.stop, partial(paused_runs.note, noted))
                await self._look(branch_id, live)
                if self._by_branch.get(branch_id) is live:
                    await live.own_contents()
                    if changes:
                        await live.reach()
                yield paused.left
            finally:
                paused.go_on()
                with suppress(FileNotFoundError):
                    os.unlink(noted)

    def _pids(self, branch_id: str) -> list[int]:
        return [bound.pid for bound in self._bindings.bindings() if bound.branch_id == branch_id]

    def _tree_replaced(self, tree: Tree) -> None:
        self._has_spare_layers = True

    async def push(self) -> None:
        """Show runs the states that their branches have got: by a restore, a merge or an undo. What fails is tried again."""
        for branch_id, live in list(self._by_branch.items()):
            try:
                await live.push()
            except OSError as exc:
                log.warning("the run of branch %s does not see the branch's new state yet: %s", branch_id, exc)

    def lower_changed(self) -> None:
        """Have the kernel look up again, soon, what it remembers of the lower."""
        if self._by_branch:
            self._lower_has_changed.set()

    async def follow_lower(self) -> None:
        """Do what lower_changed() asks for, until cancelled."""
        while True:
            await self._lower_has_changed.wait()
            self._lower_has_changed = trio.Event()
            for branch_id, live in list(self._by_branch.items()):
                try:
                    if live.mount is not None and live.has_holder:
                        await live.mount.refresh()
                except OSError as exc:
                    log.warning("a run of branch %s may see an older state of the real directory: %s", branch_id, exc.strerror)
            await trio.sleep(_REFRESH_S)

    # -- what runs have written

    async def look(self, branch_ids: Collection[str] | None = None, *, own: bool = False) -> None:
        """Bring into the branches what their runs have written until now.

        Args:
            branch_ids: The branches; None for all.
            own: Whether the branches get contents of their own, because they are about to be sealed.

        Raises:
            OSError: There is no room, for example. The branch is as it was. If all branches were asked for, it is only logged.
        """
        for branch_id, live in list(self._by_branch.items()):
            if branch_ids is not None and branch_id not in branch_ids:
                continue
            try:
                async with live.turn:
                    if self._by_branch.get(branch_id) is live:
                        await self._look(branch_id, live)
                    if own and self._by_branch.get(branch_id) is live:
                        await live.own_contents()
            except OSError as exc:
                if branch_ids is not None:
                    raise
                log.warning("what a run has written is not yet in branch %s: %s", branch_id, exc)

    async def _look(self, branch_id: str, live: RunOverlay) -> None:
        if not self._is_used(branch_id, live) and not await live.is_mounted():
            if not live.has_holder:
                self._check_shown(branch_id, live)
            await live.push()
            if not self._is_used(branch_id, live):  # last, and nothing waits from here on: a run may have joined meanwhile
                self._end(branch_id, live)
                return
        began_s = time.monotonic()
        await live.take_over()
        now_s = time.monotonic()
        live.next_look_s = now_s + max(_LOOK_S, (now_s - began_s) * _SHARE)

    def _check_shown(self, branch_id: str, live: RunOverlay) -> None:
        """Without its mount, put aside what a run has written if programs saw another state than the branch has now."""
        if live.overlay.is_replaced:
            aside = f"{live.overlay.place}{_ASIDE}{time.time_ns()}"
            log.error("branch %s has got another state while a run used it: what that wrote since is in %s", branch_id, aside)
            live.overlay.put_aside(aside)
            del self._by_branch[branch_id]
            live.unmount()
            raise OSError(errno.EBUSY, f"what the run of an earlier daemon wrote last is in {aside}")

    def _end(self, branch_id: str, live: RunOverlay) -> None:
        """End an overlay that nobody uses. OSError leaves what is not yet in the branch where it is."""
        live.overlay.finish()
        self._has_spare_layers = True
        del self._by_branch[branch_id]
        live.unmount()

    async def sweep(self) -> None:
        """Take over what runs that have ended have left, and look at the others now and then. Call periodically."""
        for branch_id, live in list(self._by_branch.items()):
            if not self._overlay.refs.exists(branch_id):
                await self._drop(branch_id, live)
            elif time.monotonic() >= (live.next_look_s if self._is_used(branch_id, live) else live.retry_s):
                try:
                    await self.look([branch_id])
                except OSError as exc:
                    live.next_look_s = live.retry_s = time.monotonic() + 10 * _LOOK_S
                    log.warning("what a run has written is not yet in branch %s: %s", branch_id, exc)
                except Exception:  # a fault in what one run has left must not end the daemon
                    live.next_look_s = live.retry_s = time.monotonic() + 60 * _LOOK_S
                    log.exception("what a run has written is not yet in branch %s", branch_id)
        if self._has_spare_layers:
            await self._sweep_layers()

    async def _sweep_layers(self) -> None:
        """Remove layers that no branch needs any more."""
        self._has_spare_layers = False
        store = self._overlay.store
        parents = layer_rows.parents(store)
        heads = [parents.get(row.head, 0) for row in layer_rows.branches(store)]
        in_use = {name for live in self._by_branch.values() for name in live.overlay.record.layers}
        try:
            for path in self._stack.put_aside_unneeded(heads, in_use):
                await trio.to_thread.run_sync(remove, path)
        except OSError as exc:
            log.warning("layers that no branch needs are still in %s: %s", self._place, exc.strerror)

    async def _drop(self, branch_id: str, live: RunOverlay) -> None:
        """Forget what a run has written in a branch that is gone."""
        async with live.turn:
            if live.users == 0 and not await live.is_mounted():
                del self._by_branch[branch_id]
                live.unmount()
                live.overlay.abandon()

    def close(self) -> None:
        """End: take over what there is. Runs that still have an overlay keep their mounts."""
        for branch_id, live in list(self._by_branch.items()):
            try:
                if not live.overlay.is_replaced:
                    live.overlay.take_over()
                live.overlay.close()  # the next daemon finds out whether a process still has it mounted
            except Exception:
                log.exception("what a run wrote in branch %s is still in %s", branch_id, live.overlay.place)
            live.unmount()
        self._by_branch.clear()
        self._beginning.close()
