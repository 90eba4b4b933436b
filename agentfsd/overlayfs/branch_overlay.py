"""A branch that the kernel shows as an overlay: what lies on disk for it, and what comes back into the branch. It mounts nothing.

The directory of a run has ``upper`` and ``work`` for the kernel, and a record. As long as the directory is there, what the upper
holds is not yet all in the branch: whatever happened meanwhile, the next takeover brings it.
"""

import contextlib
import os
import stat
import time

import msgspec

from agentfs_host.descent import Descent
from agentfsd.core import inode_stat
from agentfsd.core.content_objects import clone_object
from agentfsd.core.inode_attributes import all_xattrs
from agentfsd.core.overlay import Overlay
from agentfsd.core.tree import Inode, Tree
from agentfsd.metadata import layer_rows
from agentfsd.metadata.row_store import GARBAGE
from agentfsd.metadata.transaction import Transaction
from agentfsd.overlayfs import on_disk
from agentfsd.overlayfs.layer_stack import LayerStack, remove
from agentfsd.overlayfs.new_entries import TakeoverReporter
from agentfsd.overlayfs.takeover import Takeover, UpperState
from agentfsd.overlayfs.upper_scan import Found, signature

_RECORD = "record.json"
_COARSE = 5  # CLOCK_REALTIME_COARSE: file systems take their time stamps from it
_LONGEST_CHAIN = 32


class RunRecord(msgspec.Struct, frozen=True):
    """What is stored of a run.

    Attributes:
        branch: The id of the branch.
        base: The sealed layer of the branch beneath the upper directory; 0 for the bare lower.
        layers: The names of the read-only layers, the newest first.
        since_ns: When the run began.
    """

    branch: str
    base: int
    layers: list[str]
    since_ns: int


class BranchOverlay:
    """One branch as an overlay.

    Args:
        overlay: All branches.
        stack: The read-only layers.
        place: The directory of the run.
        record: What is stored of it.
        by: Reports what comes into the branch.
    """

    def __init__(self, overlay: Overlay, stack: LayerStack, place: str, record: RunRecord, by: TakeoverReporter) -> None:
        self._overlay, self._stack, self.place, self.record, self._by = overlay, stack, place, record, by
        self._state = UpperState()
        self._upper = os.open(os.path.join(place, "upper"), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._open = contextlib.ExitStack()
        self._base = self._open.enter_context(overlay.trees.kept(record.base))
        self._released: list[tuple[int, int]] = []  # descriptors and numbers of objects that were the upper's files
        self._is_lent = True
        self._tree.lent = self

    @property
    def branch_id(self) -> str:
        return self.record.branch

    @property
    def _tree(self) -> Tree:
        tree = self._overlay.trees.of_branch(self.record.branch)
        if self._is_lent:
            tree.lent = self  # it is another tree when the branch's state was replaced
        return tree

    # -- what the run has written

    def look(self) -> "Look":
        """Prepare to find what has changed. Call scan() of the result in any thread, then apply()."""
        self._forget_released()
        return Look(Takeover(self._tree, self._base, Descent(self._upper), self._state, self.record.since_ns, self._by))

    def apply(self, look: "Look") -> bool:
        """Bring what a look has found into the branch; return whether it has changed. OSError changes nothing."""
        tree = self._tree
        with tree.taking_over():
            return look.takeover.apply(look.found)

    def take_over(self) -> bool:
        """Bring everything into the branch that the run has written until now. OSError changes nothing."""
        look = self.look()
        look.scan()
        return self.apply(look)

    # -- contents that the run may still write

    def keep_originals(self, tx: Transaction, sealed: int) -> None:
        """Give a layer that is being sealed copies of the contents that the run may still write."""
        tree = self._tree
        for ino, number in list(self._state.files.items()):
            inode = tree.find_stored(number)
            if inode is not None and inode.content and inode.content_layer == sealed:
                self._keep_original(tx, inode, ino, sealed)
        tx.set(self._state, files={})

    def _keep_original(self, tx: Transaction, inode: Inode, ino: int, sealed: int) -> None:
        tree, live = inode.tree, inode.content
        with contextlib.closing(tree.backstore.open(live)) as content:
            status = content.stat()
            if status.st_ino != ino:
                return
            number = tree.store.next_id("object")
            clone = clone_object(tree, content.fileno(), number)
            tx.when_undone(lambda: tree.backstore.remove(number))
            clone.utime(status.st_atime_ns, status.st_mtime_ns)
            clone.close()
            self._released.append((os.dup(content.fileno()), live))
        tree.store.put_object(number, sealed)
        tree.store.replace_content(inode.id, live, number)
        tree.store.put_object(live, GARBAGE)
        tx.set(inode, content=number)
        if inode.file is not None:
            inode.release_files()
            if inode.opens:
                inode.file = tree.backstore.open(number)

    def _forget_released(self) -> None:
        """Remove the links to files of the upper that are no objects any more, and note that only this has changed them."""
        known = {each.signature.ino: each for each in self._state.all_known()} if self._released else {}
        for fd, number in self._released:
            before = os.fstat(fd)
            self._overlay.backstore.remove(number)
            name = known.get(before.st_ino)
            if name is not None and name.signature == signature(before):
                name.signature = signature(os.fstat(fd))
            os.close(fd)
        self._released.clear()

    # -- the end

    def finish(self) -> None:
        """Bring the rest into the branch when no process writes any more. The upper directory becomes a layer. OSError."""
        self.take_over()
        branch = self._overlay.refs.branch(self.record.branch)
        self._is_lent, self._tree.lent = False, None
        with self._overlay.store.transaction() as tx:
            sealed = self._overlay.layers.seal(tx, branch)
        if sealed != self.record.base:
            self._stack.add(os.path.join(self.place, "upper"), sealed, self.record.layers)
        self.abandon()
        if len(layer_rows.chain(self._overlay.store, sealed)) > _LONGEST_CHAIN:
            with self._overlay.store.transaction() as tx:
                self._overlay.layers.release(tx, self.record.base)

    def abandon(self) -> None:
        """Forget the run with all that is not yet in the branch."""
        self.close()
        remove(self.place)

    def close(self) -> None:
        """Leave everything as it is for the next daemon."""
        if self._upper >= 0:
            os.close(self._upper)
            self._upper = -1
        for fd, _ in self._released:
            os.close(fd)
        self._released.clear()
        self._open.close()
        self._is_lent = False
        if self._overlay.refs.exists(self.record.branch):
            self._tree.lent = None


class Look:
    """One look at the upper directory."""

    def __init__(self, takeover: Takeover) -> None:
        self.takeover = takeover
        self.found: Found

    def scan(self) -> None:
        """Find what has changed. OSError."""
        self.found = self.takeover.look()


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
    with overlay.store.transaction() as tx:
        base = overlay.layers.seal(tx, overlay.refs.branch(branch_id))
    record = RunRecord(branch_id, base, stack.below(base), time.clock_gettime_ns(_COARSE))
    unfinished = place + ".new"
    remove(unfinished)
    for name in ("upper", "work", f"control/{os.fsdecode(on_disk.CONTROL_DIR)}"):
        os.makedirs(os.path.join(unfinished, name), mode=0o700)
    _copy_root(overlay.trees.of_branch(branch_id).root, os.path.join(unfinished, "upper"))
    with open(os.path.join(unfinished, _RECORD), "wb") as file:
        file.write(msgspec.json.encode(record))
    os.rename(unfinished, place)
    return BranchOverlay(overlay, stack, place, record, by)


def read_record(place: str) -> RunRecord | None:
    """Return what is stored of the run in a directory; None if nothing is."""
    try:
        with open(os.path.join(place, _RECORD), "rb") as file:
            return msgspec.json.decode(file.read(), type=RunRecord)
    except (OSError, msgspec.DecodeError):
        return None


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
