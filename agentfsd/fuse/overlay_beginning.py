"""How a branch becomes an overlay of the kernel for its runs: whether it can, what that needs, and its mount."""

import errno
import os
from collections.abc import Callable

import trio

from agentfs_host.mount_table import OVERLAY_SOURCE, is_within
from agentfsd.core.overlay import Overlay
from agentfsd.domain_errors import NO_ROOM, Refusal
from agentfsd.fuse.branch_mounts import BranchMounts
from agentfsd.fuse.run_overlay import RunOverlay, TakeoverReport
from agentfsd.linux import home_layers
from agentfsd.linux.branch_overlays import OverlayPlan
from agentfsd.lower.frozen_lower import FrozenLower
from agentfsd.overlayfs import run_beginning
from agentfsd.overlayfs.branch_overlay import BranchOverlay
from agentfsd.overlayfs.layer_stack import LayerStack
from agentfsd.overlayfs.layer_writer import CannotBeLayer
from agentfsd.overlayfs.run_record import RunRecord
from agentfsd.process.kept_descriptors import KeptDescriptors
from agentfsd.state.state_directory import RUN_OVERLAY, path_digest
from agentfsd.types import CONTROL_DIR

_PREPARED = ("overlay.user", "overlay.mounts")  # names of kept descriptors
_RESTRICTIONS = ("nosuid", "nodev", "noexec", "noatime", "nodiratime")


class OverlayBeginning:
    """Mounts branches as overlays, or goes on with those that the daemon before has mounted.

    Args:
        branch_mounts: Starts the processes that hold the mounts.
        overlay: All branches.
        stack: The read-only layers.
        place: The directory of layers and runs.
        lower: The path and a descriptor of the lower.
        has_writers: Tells whether a file of a branch is open for writing at the mount point.
        options: Returns the mount options in force.
        kept: What the next daemon gets.
    """

    def __init__(
        self, branch_mounts: BranchMounts, overlay: Overlay, stack: LayerStack, place: str, lower: tuple[str, int],
        has_writers: Callable[[str], bool], options: Callable[[], frozenset[str]], kept: KeptDescriptors,
    ) -> None:  # fmt: skip
        self._mounts, self._overlay, self._stack, self._place, self._kept = branch_mounts, overlay, stack, place, kept
        self._lower, self._lower_fd = lower
        self._has_writers, self._options = has_writers, options
        self._report = TakeoverReport(overlay)
        self._prepared: tuple[int, ...] = ()
        self._why = ""

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

    async def begin(self, branch_id: str) -> RunOverlay:
        """Mount a branch as an overlay.

        Raises:
            Refusal: ``no-overlay``: the kernel cannot show the branch, or there is no room.
        """
        why = self._why_not(branch_id)
        if why:
            raise refusal(why)
        place = os.path.join(self._place, RUN_OVERLAY + branch_id)
        try:
            made = run_beginning.begin(self._overlay, self._stack, place, branch_id, self._report)
        except CannotBeLayer as exc:
            raise refusal(str(exc)) from exc
        except OSError as exc:
            hint = "`agentfsd gc` frees what nothing refers to" if exc.errno in NO_ROOM else "leave out --io overlay"
            raise refusal(exc.strerror or str(exc), hint) from exc
        plan = OverlayPlan(
            RUN_OVERLAY + branch_id, made.record.layers, self._source(branch_id), os.fsdecode(CONTROL_DIR),
            [option for option in _RESTRICTIONS if option in self._options()],
        )  # fmt: skip
        try:
            self._overlay.store.commit()  # before: after a loss of power the run's record would be another's
            await trio.to_thread.run_sync(self._overlay.store.sync)
            mount = await self._mounts.mount_overlay(branch_id, plan, self._place, self._beneath(branch_id), self._prepared)
        except BaseException as exc:
            made.abandon()
            if isinstance(exc, OSError):
                raise refusal(f"the kernel refuses: {exc.strerror}") from exc
            raise
        return RunOverlay(made, mount, self._source(branch_id))

    def why_not_join(self, branch_id: str) -> str:
        """Return why no further run may see a branch as an overlay, whatever those see that are on; "" if it may."""
        if "ro" in self._options():
            return "the mount is read-only"
        if self._overlay.rules.for_branch(branch_id) is not None:
            return "there are rules by path, which the daemon has to check"
        return ""

    def _why_not(self, branch_id: str) -> str:
        """Return why a branch cannot be shown as an overlay now; "" if nothing is known against it."""
        if why := self._why or self.why_not_join(branch_id):
            return why
        if self._overlay.parts.copyup_settings.rules[:2] != ("clone", "clone"):
            return "the copyup settings ask for other modes than the lower's"
        tree = self._overlay.trees.of_branch(branch_id)
        if self._prepared and tree.lower.frozen:
            return "an ordinary user's overlay shows the real directory, and the branch has a frozen base"
        if tree.external_writers or self._has_writers(branch_id):
            return "files of the branch are open for writing elsewhere"
        return ""

    def _beneath(self, branch_id: str) -> int:
        """Return a descriptor of what lies beneath a branch."""
        lower = self._overlay.trees.of_branch(branch_id).lower
        return lower.root_fd if isinstance(lower, FrozenLower) else self._lower_fd

    def resume(self, place: str, record: RunRecord) -> RunOverlay:
        """Go on with an overlay that the daemon before has mounted. NotOurs: see BranchOverlay."""
        mount = self._mounts.resume_overlay(record.branch)
        made = BranchOverlay(self._overlay, self._stack, place, record, self._report)
        return RunOverlay(made, mount, self._source(record.branch), is_resumed=True)

    def _source(self, branch_id: str) -> str:
        """Return what the mount table shows as the source of a branch's overlay."""
        return f"{OVERLAY_SOURCE}{path_digest(self._place)}-{branch_id}"

    def close(self) -> None:
        """Let go of what was prepared."""
        for name, fd in zip(_PREPARED, self._prepared, strict=False):
            self._kept.drop(name)
            os.close(fd)
        self._prepared = ()


def refusal(why: str, hint: str = "leave out --io overlay") -> Refusal:
    """Return the refusal to show a branch as an overlay."""
    return Refusal(errno.EOPNOTSUPP, "no-overlay", f"the branch cannot be shown as an overlay: {why}", hint)
