"""Opens one branch for a run, in the way that was asked for or, for `--io auto`, in the best one there is."""

import errno
import logging

from agentfsd.domain_errors import Refusal
from agentfsd.fuse.branch_connections import BranchConnections
from agentfsd.fuse.mount import IO_MODES, OVERLAY
from agentfsd.fuse.native.handshake import Unsupported
from agentfsd.fuse.run_overlays import RunOverlays
from agentfsd.types import BranchView

log = logging.getLogger("agentfsd")


class RunViews:
    """Chooses between the two ways to show a branch, and keeps a branch from being shown in both at once.

    Args:
        connections: Shows branches through connections of their own.
        overlays: Shows them as overlays of the kernel.
        prefers_overlays: `--io auto` takes an overlay. For one-step runs, where nobody else looks at the branch meanwhile; not
            for an ordinary user: there the kernel cannot rename directories of the lower, and git mv, for one, would fail.
    """

    def __init__(self, connections: BranchConnections, overlays: RunOverlays, *, prefers_overlays: bool) -> None:
        self._connections, self._overlays, self._prefers_overlays = connections, overlays, prefers_overlays

    async def open(self, branch_id: str, io: str) -> BranchView:
        """Mount one branch for a run. Refusal when the kernel does not support the requested mode."""
        if io not in IO_MODES:
            raise Refusal(errno.EINVAL, "bad-io", f"there is no way {io!r} to carry data", f"there are {', '.join(IO_MODES)}")
        if io == OVERLAY and self._connections.is_in_use(branch_id):
            raise Refusal(
                errno.EBUSY, "no-overlay", "another run uses the branch in another way", "wait for it, or leave out --io overlay"
            )
        if self._overlays.has(branch_id) and io not in ("auto", OVERLAY):
            hint = "wait for it, or leave out --io"
            raise Refusal(errno.EBUSY, "branch-as-overlay", "another run uses the branch as an overlay", hint)
        if io == OVERLAY or (io == "auto" and self._overlays.has(branch_id)):
            return await self._overlays.open(branch_id)
        if io == "auto" and self._prefers_overlays and not self._connections.is_in_use(branch_id):
            try:
                return await self._overlays.open(branch_id)
            except Refusal as exc:
                log.info("branch %s is not shown as an overlay: %s", branch_id, exc.strerror)
        try:
            return await self._connections.open(branch_id, io)
        except Unsupported as exc:
            raise Refusal(errno.EPROTO, "no-native-session", str(exc), "--io is for kernels that can do this") from exc
