"""Branches as overlays of the kernel, for `agentfsd run --io overlay`: one for each branch, which all runs of that branch share.

The kernel does all the work while a run lasts; nothing of it depends on the daemon. What the run writes comes into the branch
whenever somebody asks for the branch, now and then by itself, and when the run has ended.
"""

import errno
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

import trio

from agentfs_host.mount_table import is_within
from agentfs_host.tree_removal import remove_tree
from agentfsd.binding.table import Bindings
from agentfsd.core.branch_events import EventKind
from agentfsd.core.overlay import Overlay
from agentfsd.core.overlay_events import NamedPlace
from agentfsd.core.tree import Inode, Tree
from agentfsd.domain_errors import Refusal
from agentfsd.fuse.branch_mounts import BranchMount, BranchMounts
from agentfsd.linux import home_layers
from agentfsd.linux.branch_overlays import OverlayPlan
from agentfsd.linux.paused_processes import PausedProcesses, go_on_after_crash
from agentfsd.metadata import layer_rows
from agentfsd.overlayfs import branch_overlay
from agentfsd.overlayfs.branch_overlay import BranchOverlay
from agentfsd.overlayfs.layer_stack import LayerStack, remove
from agentfsd.overlayfs.layer_writer import CannotBeLayer
from agentfsd.process.kept_descriptors import KeptDescriptors
from agentfsd.state.state_directory import RUN_OVERLAY, StateDirectory, path_digest
from agentfsd.types import CONTROL_DIR, BranchView

log = logging.getLogger(__name__)

_PREPARED = ("overlay.user", "overlay.mounts")  # names of kept descriptors
_GRACE_S = 10.0  # after a daemon was killed while a run began
_LOOK_S = 1.0  # between two looks that nobody has asked for
_SHORT_S, _SHORT_BYTES = 0.004, 1 << 18  # what does not hold up others for long
_SHARE = 50  # such looks take at most one part in so many of the time
_RESTRICTIONS = ("nosuid", "nodev", "noexec", "noatime", "nodiratime")


@dataclass(slots=True)
class _Live:
    """An overlay that is mounted, or whose processes may have outlived the daemon that had mounted it."""

    overlay: BranchOverlay
    mount: BranchMount | None
    users: int = 0
    since_s: float = field(default_factory=time.monotonic)  # when this daemon got it
    is_resumed: bool = False
    root: int = -1  # a descriptor of one more mount of it, by which the daemon changes what programs see
    turn: trio.Lock = field(default_factory=trio.Lock)
    next_look_s: float = 0.0
    took_s: float = 1.0  # the last look


class _Report:
    """Tells of what a takeover brings. It is known which run did it, not which process."""

    def __init__(self, overlay: Overlay) -> None:
        self._events = overlay.events

    @property
    def is_heard(self) -> bool:
        return bool(self._events.listeners)

    def tell(self, kind: EventKind, inode: Inode, place: NamedPlace | None = None, before: NamedPlace | None = None) -> None:
        self._events.tell_change(kind, inode, 0, lambda _: 0, place, before)

    def tell_write(self, inode: Inode) -> None:
        self._events.tell_write(inode, 0, lambda _: 0)

    def names_changed(self, directory: Inode, *names: bytes) -> None:
        self._events.names_changed(directory, *names)

    def file_changed(self, inode: Inode, *, data: bool) -> None:
        self._events.file_changed(inode, data=data)


class RunOverlays:
    """Mounts, shares and ends overlays.

    Args:
        branch_mounts: Starts the processes that hold the mounts.
        overlay: All branches.
        volume: Where the content objects lie, and layers and runs beside them.
        lower: The path and a descriptor of the lower.
        bindings: Tells which processes are bound to a branch.
        options: Returns the mount options in force.
        kept: What the next daemon gets.
    """

    def __init__(
        self, branch_mounts: BranchMounts, overlay: Overlay, volume: StateDirectory, lower: tuple[str, int], bindings: Bindings,
        options: Callable[[], frozenset[str]], kept: KeptDescriptors,
    ) -> None:  # fmt: skip
        self._mounts, self._overlay, self._volume, self._kept = branch_mounts, overlay, volume, kept
        self._place = volume.overlays
        self._lower, self._lower_fd = lower
        self._bindings, self._options = bindings, options
        self._stack = LayerStack(self._place, overlay.backstore.place, overlay.trees)
        self._report = _Report(overlay)
        self._by_branch: dict[str, _Live] = {}
        self._turns: dict[str, trio.Lock] = {}
        self._prepared: tuple[int, ...] = ()
        self._why = ""
        self._has_spare_layers = True  # perhaps
        overlay.events.on_replaced.append(self._tree_replaced)

    # -- beginning

    def prepare(self) -> None:
        """Prepare for an ordinary user. Call it before this daemon mounts anything, and before threads start."""
        self._why = self._why_never()
        if self._why:
            return
        try:
            os.makedirs(self._place, mode=0o700, exist_ok=True)
            if os.geteuid() != 0:
                self._prepare_namespaces()
        except OSError as exc:
            self._why = f"the kernel refuses: {exc.strerror}"

    def _prepare_namespaces(self) -> None:
        if self._kept.is_resumed:
            kept = [self._kept.take(name) for name in _PREPARED]
            self._prepared = tuple(fd for fd in kept if fd is not None)
            if len(self._prepared) != len(_PREPARED):
                self._why = "the daemon before had prepared none"
            return
        self._prepared = home_layers.kept_by_child(self._lower, self._place)
        for name, fd in zip(_PREPARED, self._prepared, strict=True):
            self._kept.keep(name, fd)

    def _why_never(self) -> str:
        """Return why no branch can be an overlay; "" if one can."""
        if not self._overlay.backstore.persistent:
            return "contents are in memory"
        if is_within(self._place, self._lower):
            return "the state directory lies in the workspace"
        return ""

    def why_not(self, branch_id: str) -> str:
        """Return why a branch cannot be shown as an overlay now; "" if nothing is known against it."""
        options = self._options()
        if self._why:
            return self._why
        if "ro" in options:
            return "the mount is read-only"
        if self._overlay.rules.for_branch(branch_id) is not None:
            return "there are rules by path, which the daemon has to check"
        if self._overlay.parts.copyup_settings.rules[:2] != ("clone", "clone"):
            return "the copyup settings ask for other modes than the lower's"
        return ""

    def resume(self) -> None:
        """Go on with the runs of the daemon before, or take over what they have left. Call it before anybody asks anything."""
        for name in self._names():
            place = os.path.join(self._place, name)
            record = branch_overlay.read_record(place) if name.startswith(RUN_OVERLAY) else None
            if record is None or not self._overlay.refs.exists(record.branch):
                if not name.startswith("layer-"):
                    _remove(place)
                continue
            _let_go_on(self._volume.paused_run(record.branch))
            mount = self._mounts.resume_overlay(record.branch)
            live = _Live(BranchOverlay(self._overlay, self._stack, place, record, self._report), mount, is_resumed=True)
            try:
                live.overlay.take_over()
            except OSError as exc:
                log.error("what a run wrote in branch %s is still in %s: %s", record.branch, place, exc)
            self._by_branch[record.branch] = live

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
                live = await self._begin(branch_id)
            if live.mount is None or live.mount.is_lost:
                raise _refusal("processes of an earlier run still use an overlay of that branch, which nobody can join; end them")
            live.users += 1  # before waiting: else sweep() could end it meanwhile
            try:
                mount = await live.mount.copy()
            except BaseException as exc:
                live.users -= 1
                if isinstance(exc, OSError):
                    raise _refusal(exc.strerror or str(exc)) from exc
                raise
            namespace = live.mount.user_namespace
            own = os.dup(namespace) if namespace is not None else None
            return BranchView("overlay", joined, mount, own, self._leaver(branch_id, live))

    def _leaver(self, branch_id: str, live: _Live) -> Callable[[], None]:
        has_left = False

        def leave() -> None:
            nonlocal has_left
            live.users -= not has_left
            has_left = True

        return leave

    async def _begin(self, branch_id: str) -> _Live:
        why = self.why_not(branch_id)
        if why:
            raise _refusal(why)
        place = os.path.join(self._place, RUN_OVERLAY + branch_id)
        try:
            made = branch_overlay.begin(self._overlay, self._stack, place, branch_id, self._report)
        except CannotBeLayer as exc:
            raise _refusal(str(exc)) from exc
        plan = OverlayPlan(
            RUN_OVERLAY + branch_id, made.record.layers, self._source(branch_id), os.fsdecode(CONTROL_DIR),
            [option for option in _RESTRICTIONS if option in self._options()],
        )  # fmt: skip
        try:
            mount = await self._mounts.mount_overlay(branch_id, plan, self._place, self._lower_fd, self._prepared)
        except OSError as exc:
            made.abandon()
            raise _refusal(f"the kernel refuses: {exc.strerror}") from exc
        live = self._by_branch[branch_id] = _Live(made, mount)
        return live

    def _is_used(self, branch_id: str, live: _Live) -> bool:
        return live.users > 0 or self._bindings.is_in(branch_id) or self._may_begin(live)

    @staticmethod
    def _may_begin(live: _Live) -> bool:
        """Return whether a run may be about to use an overlay of the daemon before: that knew of it, and we do not."""
        has_holder = live.mount is not None and not live.mount.is_lost
        return live.is_resumed and has_holder and time.monotonic() - live.since_s < _GRACE_S

    async def _is_mounted(self, branch_id: str, live: _Live) -> bool:
        """Return whether a process has an overlay mounted, whatever it is bound to."""
        if live.mount is not None and not live.mount.is_lost and not live.mount.holder_pid:
            os.close(await live.mount.copy())  # which says who the holder is
        holder = live.mount.holder_pid if live.mount is not None else 0
        return await trio.to_thread.run_sync(home_layers.is_mounted_anywhere, self._source(branch_id), holder)

    def _source(self, branch_id: str) -> str:
        """Return what the mount table shows as the source of a branch's overlay."""
        return f"agentfsd-{path_digest(self._place)}-{branch_id}"

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
    async def standing_still(self, branch_id: str, spared: int) -> AsyncIterator[str]:
        """Stop the processes of a run for the time of the block, after which what they have written is in the branch.

        Contents are the branch's own then: nothing that they write later changes them.

        Args:
            branch_id: The branch.
            spared: A process that is not stopped, as are those above it.

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
                    await trio.to_thread.run_sync(paused.stop, partial(_note, noted))
                await self._look(branch_id, live)
                if self._by_branch.get(branch_id) is live:
                    await self._own_contents(live.overlay)
                yield paused.left
            finally:
                paused.go_on()
                with suppress(FileNotFoundError):
                    os.unlink(noted)

    def _pids(self, branch_id: str) -> list[int]:
        return [bound.pid for bound in self._bindings.bindings() if bound.branch_id == branch_id]

    @staticmethod
    async def _own_contents(overlay: BranchOverlay) -> None:
        copies = overlay.copies()
        try:
            for copy in copies:
                await _somewhere(copy.run, is_short=copy.size_bytes < _SHORT_BYTES)
        except BaseException:
            for copy in copies:
                copy.abandon()
            raise
        overlay.install(copies)

    def _tree_replaced(self, tree: Tree) -> None:
        self._has_spare_layers = True
        live = self._by_branch.get(tree.id)
        if live is not None and self._overlay.refs.exists(tree.id):
            live.overlay.replaced(tree)

    async def push(self) -> None:
        """Show runs the state that their branches have got: by a restore, a merge or an undo. OSError."""
        for live in list(self._by_branch.values()):
            await self._push(live)

    @staticmethod
    async def _push(live: _Live) -> None:
        if live.overlay.is_replaced:
            if live.root < 0 and live.mount is not None:
                live.root = await live.mount.copy()
            live.overlay.push(live.root)

    async def refresh(self) -> None:
        """Have the kernel look up again what it remembers of the lower, which has changed."""
        for branch_id, live in list(self._by_branch.items()):
            if live.mount is not None and not live.mount.is_lost:
                try:
                    await live.mount.refresh()
                except OSError as exc:
                    log.warning("a run of branch %s may see an older state of the real directory: %s", branch_id, exc.strerror)

    # -- what runs have written

    async def look(self, branch_ids: Collection[str] | None = None) -> None:
        """Bring into the branches what their runs have written until now.

        Args:
            branch_ids: The branches; None for all.

        Raises:
            OSError: There is no room, for example. The branch is as it was.
        """
        for branch_id, live in list(self._by_branch.items()):
            if branch_ids is None or branch_id in branch_ids:
                async with live.turn:
                    if self._by_branch.get(branch_id) is live:
                        await self._look(branch_id, live)

    async def _look(self, branch_id: str, live: _Live) -> None:
        if not self._is_used(branch_id, live) and not await self._is_mounted(branch_id, live) and not live.users:
            self._end(branch_id, live)
            return
        await self._push(live)
        began_s = time.monotonic()
        look = live.overlay.look()
        await _somewhere(look.scan, is_short=live.took_s < _SHORT_S)
        live.took_s = time.monotonic() - began_s
        if self._by_branch.get(branch_id) is live:
            live.overlay.apply(look)
        now_s = time.monotonic()
        live.next_look_s = now_s + max(_LOOK_S, (now_s - began_s) * _SHARE)

    def _end(self, branch_id: str, live: _Live) -> None:
        """End an overlay that nobody uses. OSError leaves what is not yet in the branch where it is."""
        live.overlay.finish()
        self._has_spare_layers = True
        del self._by_branch[branch_id]
        _unmount(live)

    async def sweep(self) -> None:
        """Take over what runs that have ended have left, and look at the others now and then. Call periodically."""
        for branch_id, live in list(self._by_branch.items()):
            if not self._overlay.refs.exists(branch_id):
                self._drop(branch_id, live)
            elif not self._is_used(branch_id, live) or time.monotonic() >= live.next_look_s:
                try:
                    await self.look([branch_id])
                except OSError as exc:
                    live.next_look_s = time.monotonic() + 10 * _LOOK_S
                    log.warning("what a run has written is not yet in branch %s: %s", branch_id, exc)
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

    def _drop(self, branch_id: str, live: _Live) -> None:
        del self._by_branch[branch_id]
        _unmount(live)
        live.overlay.abandon()

    def close(self) -> None:
        """End: take over what there is. Runs that still have an overlay keep their mounts."""
        for branch_id, live in list(self._by_branch.items()):
            try:
                if self._is_used(branch_id, live):
                    live.overlay.take_over()
                    live.overlay.close()
                else:
                    live.overlay.finish()
            except OSError as exc:
                log.error("what a run wrote in branch %s is still in %s: %s", branch_id, live.overlay.place, exc)
            _unmount(live)
        self._by_branch.clear()
        for name, fd in zip(_PREPARED, self._prepared, strict=False):
            self._kept.drop(name)
            os.close(fd)
        self._prepared = ()


async def _somewhere(work: Callable[[], object], *, is_short: bool) -> None:
    """Do some work here if it is short, else in a thread."""
    if is_short:
        work()
    else:
        await trio.to_thread.run_sync(work)


def _unmount(live: _Live) -> None:
    if live.root >= 0:
        os.close(live.root)
        live.root = -1
    if live.mount is not None:
        live.mount.close()


def _note(path: str, pids: Iterable[int]) -> None:
    """Note which processes are stopped, for the next daemon if this one is killed."""
    with open(path + ".new", "w") as file:
        file.write(" ".join(map(str, pids)))
    os.rename(path + ".new", path)


def _let_go_on(path: str) -> None:
    """Let processes go on that the daemon before had stopped."""
    with suppress(FileNotFoundError, ValueError):
        with open(path) as file:
            go_on_after_crash(list(map(int, file.read().split())))
        os.unlink(path)


def _refusal(why: str) -> Refusal:
    return Refusal(errno.EOPNOTSUPP, "no-overlay", f"the branch cannot be shown as an overlay: {why}", "leave out --io overlay")


def _remove(place: str) -> None:
    try:
        remove_tree(place)
    except OSError as exc:
        log.warning("%s cannot be removed: %s", place, exc.strerror)
