"""Prepares the directory of a run as an overlay: everything that a mount needs. It mounts nothing."""

import contextlib
import os
import secrets
import stat

from agentfs_host import syncing
from agentfsd.core import copyup, inode_stat, lent_branches
from agentfsd.core.inode_attributes import all_xattrs
from agentfsd.core.lent_branches import Loan
from agentfsd.core.overlay import Overlay
from agentfsd.core.tree import Inode
from agentfsd.overlayfs import on_disk
from agentfsd.overlayfs.branch_overlay import BranchOverlay
from agentfsd.overlayfs.layer_stack import LayerStack, remove
from agentfsd.overlayfs.new_entries import TakeoverReporter
from agentfsd.overlayfs.run_record import RunRecord, remove_run, write_record


def begin(overlay: Overlay, stack: LayerStack, place: str, branch_id: str, by: TakeoverReporter) -> BranchOverlay:
    """Prepare the directory of a run: everything that a mount needs.

    Args:
        overlay: All branches.
        stack: The read-only layers.
        place: The directory of the run, which does not exist.
        branch_id: The branch.
        by: See BranchOverlay.

    Raises:
        CannotBeLayer: The kernel cannot show the branch.
        OSError: There is no room, for example.
    """
    remove_run(place)  # what a begin that failed has left
    unfinished, mark = place + ".new", secrets.token_hex(8)
    remove(unfinished)
    with overlay.store.transaction() as tx:
        base = overlay.layers.seal(tx, overlay.refs.branch(branch_id))
        lent_branches.put(overlay.store, branch_id, Loan(base, mark))
        overlay.layers.pin(tx, base)
    try:
        record = RunRecord(branch_id, base, stack.below(base), copyup.now_ns(), mark)
        for name in ("upper", "work", f"control/{os.fsdecode(on_disk.CONTROL_DIR)}"):
            os.makedirs(os.path.join(unfinished, name), mode=0o700)
        _copy_root(overlay.trees.of_branch(branch_id).root, os.path.join(unfinished, "upper"))
        write_record(unfinished, record)
        os.rename(unfinished, place)
        syncing.sync_directory(os.path.dirname(place))
        return BranchOverlay(overlay, stack, place, record, by)
    except BaseException:
        with overlay.store.transaction() as tx:
            lent_branches.put(overlay.store, branch_id, None)
            overlay.layers.unpin(tx, base)
        remove(unfinished)
        remove_run(place)
        raise


def _copy_root(root: Inode, upper: str) -> None:
    """Give the upper directory the attributes of the root, which the kernel shows as the overlay's own."""
    now = inode_stat.attributes(root)
    with contextlib.suppress(PermissionError):
        os.chown(upper, now.uid, now.gid)
    for name, value in all_xattrs(root.tree, root).items():
        with contextlib.suppress(OSError):
            os.setxattr(upper, name, value)
    os.chmod(upper, stat.S_IMODE(now.mode))
    os.utime(upper, ns=(now.atime_ns, now.mtime_ns))
