"""A branch that the kernel shows as an overlay: what lies on disk for it, and what comes back into the branch. It mounts nothing.

The directory of a run has ``upper`` and ``work`` for the kernel, and a record. As long as the directory is there, what the upper
holds is not yet all in the branch: whatever happened meanwhile, the next takeover brings it.
"""

import contextlib
import errno
import logging
import os
import stat
import time
from collections import defaultdict
from collections.abc import Iterable

from agentfs_host import syncing, syscalls
from agentfs_host.descent import Descent
from agentfsd.core import checked_out_refs, copyup, lent_branches, tree_diff
from agentfsd.core.overlay import Overlay
from agentfsd.core.tree import Inode, Tree
from agentfsd.domain_errors import DamagedContent
from agentfsd.metadata import layer_rows
from agentfsd.metadata.row_store import GARBAGE
from agentfsd.metadata.transaction import Transaction
from agentfsd.overlayfs import unlocking
from agentfsd.overlayfs.content_copy import ContentCopy
from agentfsd.overlayfs.layer_stack import LayerStack
from agentfsd.overlayfs.new_entries import TakeoverReporter
from agentfsd.overlayfs.run_record import NotOurs, RunRecord, remove_run
from agentfsd.overlayfs.state_writer import StateWriter
from agentfsd.overlayfs.takeover import Takeover
from agentfsd.overlayfs.upper_scan import Found, Known, Signature, signature
from agentfsd.overlayfs.upper_state import UpperState

log = logging.getLogger(__name__)

_LONGEST_CHAIN = 32
_NO_FILE = Signature(0, 0, 0, 0, 0)
_RECENTLY_NS = 50_000_000  # within which two changes may have one time
_IN_MEMORY = (0x01021994, 0x858458F6)  # f_type of tmpfs and ramfs: statfs(2)
_BLOCK_BYTES = 1 << 20


class BranchOverlay:
    """One branch as an overlay.

    Args:
        overlay: All branches.
        stack: The read-only layers.
        place: The directory of the run.
        record: What is stored of it.
        by: Reports what comes into the branch.

    Raises:
        NotOurs: The record does not belong to the branch as it is.
    """

    def __init__(self, overlay: Overlay, stack: LayerStack, place: str, record: RunRecord, by: TakeoverReporter) -> None:
        self._overlay, self._stack, self.place, self.record, self._by = overlay, stack, place, record, by
        self._state = UpperState()
        loan = lent_branches.find(overlay.store, record.branch)
        if loan is None or (loan.base, loan.mark) != (record.base, record.mark):
            raise NotOurs("the branch was not lent to that run, or is a copy of an earlier state")
        self._upper = _open_upper(os.path.join(place, "upper"))
        self._open = contextlib.ExitStack()
        self._base = self._open.enter_context(overlay.trees.kept(record.base))
        self._released: dict[int, int] = {}  # numbers of objects that were the upper's files, by inode number of these
        self._copied: dict[int, int] = {}  # inode ids of what has got copies, by inode number of the upper's file
        self._is_lent, self._is_final = True, False
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
        tree = self._tree
        return Look(Takeover(tree, self._base, Descent(self._upper), self._state, self.record.since_ns, self._by), tree)

    def apply(self, look: "Look") -> bool:
        """Bring what a look has found into the branch; return whether it has changed. OSError changes nothing."""
        if look.tree is not self._tree:  # the branch has got another state since
            return self.take_over()
        with look.tree.taking_over():
            return look.takeover.apply(look.found)

    def take_over(self) -> bool:
        """Bring everything into the branch that the run has written until now. OSError changes nothing."""
        look = self.look()
        look.scan()
        return self.apply(look)

    # -- other states of the branch

    @property
    def is_replaced(self) -> bool:
        """Whether programs still see another state than the branch's: nothing may be taken over before push()."""
        loan = lent_branches.find(self._overlay.store, self.record.branch)
        return loan is not None and loan.shown != 0

    def push(self, root: int) -> None:
        """Make what programs see the branch's present state. *root*: a descriptor of the mount. OSError: try again."""
        store, layers = self._overlay.store, self._overlay.layers
        loan = lent_branches.find(store, self.record.branch)
        if loan is None or not loan.shown:
            return
        with self._overlay.trees.kept(loan.shown) as old:
            writer = StateWriter(root, self.record.mark)
            writer.write(tree_diff.pairs(self._overlay.parts, old, self._tree, times=True))
        if writer.has_left:
            self._state.known = None  # the branch gets back what programs go on seeing
        with store.transaction() as tx:
            lent_branches.put(store, self.record.branch, loan._replace(shown=0))
            layers.unpin(tx, loan.shown)
            layers.release(tx, loan.shown)

    # -- contents that the run may still write

    def copies(self) -> list[ContentCopy]:
        """Return copies to make, in any thread, of the contents that the run may still write; then call install()."""
        made = []
        for ino, number in list(self._state.files.items()):
            inode = self._tree.find_stored(number)
            if inode is not None and inode.content and inode.content_layer == self._tree.head:
                made.append(ContentCopy(inode, ino))
        return made

    def install(self, copies: list[ContentCopy]) -> None:
        """Give the branch the copies, so that nothing that the run writes changes what the branch has. OSError."""
        with self._overlay.store.transaction() as tx:
            for copy in copies:
                self._install(tx, copy, self._tree.head)
            tx.set(self._state, files={})

    def keep_originals(self, tx: Transaction, sealed: int) -> None:
        """Give a layer that is being sealed copies of the contents that the run may still write.

        Raises:
            OSError: There is no room, for example. EBUSY: nobody knows yet which these are.
        """
        if self._is_final:
            return
        if self._state.known is None and not self._state.files:
            raise OSError(errno.EBUSY, "what a run has written could not be brought into the branch yet")
        for ino, number in list(self._state.files.items()):
            inode = self._tree.find_stored(number)
            if inode is not None and inode.content and inode.content_layer == sealed:
                copy = ContentCopy(inode, ino)
                copy.run()
                self._install(tx, copy, sealed)
        tx.set(self._state, files={})

    def _install(self, tx: Transaction, copy: ContentCopy, layer: int) -> None:
        inode, tree = copy.inode, copy.inode.tree
        if not copy.is_made or inode.content != copy.of:
            copy.abandon()
            return
        tx.when_undone(copy.abandon)
        tx.put(self._released, copy.ino, copy.of)
        tx.put(self._copied, copy.ino, inode.id)
        tree.store.put_object(copy.number, layer)
        tree.store.replace_content(inode.id, copy.of, copy.number)
        tree.store.put_object(copy.of, GARBAGE)
        tx.set(inode, content=copy.number)
        if inode.file is not None:
            inode.release_files()
            if inode.opens:
                inode.file = tree.backstore.open(copy.number)

    def _forget_released(self) -> None:
        """Remove the links to files of the upper that are no objects any more, and note that only this has changed them."""
        if not self._released:
            return
        known = defaultdict[int, list[Known]](list)
        for _, each in self._state.all_known():
            known[each.signature.ino].append(each)
        recently_ns = time.time_ns() - (0 if _has_fine_times() else _RECENTLY_NS)
        while self._released:
            before, after = self._removed(self._released.popitem()[1])
            is_same = before[:-1] == after[:-1] and after.mtime_ns < recently_ns  # else a write may hide behind our own change
            for name in known[before.ino] if is_same else ():
                if name.signature == before:
                    name.signature = after

    def _removed(self, number: int) -> tuple[Signature, Signature]:
        """Remove an object that is a file of the upper. Return that file's signatures before and after."""
        backstore = self._overlay.backstore
        try:
            content = backstore.open(number)
        except DamagedContent:  # it has been removed already
            return _NO_FILE, _NO_FILE
        with contextlib.closing(content):
            before = signature(content.stat())
            backstore.remove(number)
            return before, signature(content.stat())

    def _doubt_mapped(self) -> None:
        """Have the next look take again the files that differ from their copies, though nothing says that they have changed.

        A write through a mapping moves no time in a file system in memory, nor, elsewhere, in a page that waits to be written.
        """
        if syscalls.filesystem_type(self._upper) not in _IN_MEMORY:
            return
        with Descent(self._upper) as descent:
            for path, known in self._state.all_known():
                number = self._copied.get(known.signature.ino) if known.signature.ino not in self._state.files else None
                inode = self._tree.find_stored(number) if number is not None else None
                if inode is not None and inode.content and not _has_content(descent, path, inode):
                    known.signature = known.signature._replace(ctime_ns=-1)

    # -- the end

    def finish(self) -> None:
        """Bring the rest into the branch when no process writes any more. The upper directory becomes a layer. OSError."""
        self._forget_released()
        self._doubt_mapped()
        self.take_over()
        is_written = self._keep_from_outside()
        store, layers = self._overlay.store, self._overlay.layers
        self._is_final = True
        try:
            with store.transaction() as tx:
                sealed = layers.seal(tx, self._overlay.refs.branch(self.record.branch))
            if sealed != self.record.base and not is_written:
                self._stack.add(os.path.join(self.place, "upper"), sealed, self.record.layers)
        finally:
            self._is_final = False
        indexes = [path for path, _ in self._state.all_known() if checked_out_refs.belongs_to_ref(path)]
        self.abandon()
        self._keep_refs(indexes)
        if len(layer_rows.chain(store, sealed)) > _LONGEST_CHAIN:
            with store.transaction() as tx:
                layers.release(tx, self.record.base)

    def _keep_refs(self, paths: Iterable[bytes]) -> None:
        """Give the branch its own refs to which the git indexes belong that the run has written, as in the other ways."""
        tree = self._overlay.trees.of_branch(self.record.branch)
        for path in paths:
            try:
                with tree.store.aside():
                    kept = checked_out_refs.keep(tree, tree.walk(path.rpartition(b"/")[0]))
            except OSError as exc:  # no room, for example: all that the run has written is in the branch
                log.warning("branch %s follows the real directory's ref of %r: %s", self.record.branch, path, exc)
                continue
            for directory, name in kept:
                self._by.names_changed(directory, name)

    def _keep_from_outside(self) -> bool:
        """Give the branch copies of what processes outside of it may still write, having got descriptors from the run.

        Return whether there are such files: then the upper directory cannot be a layer.
        """
        with Descent(self._upper) as descent:
            written = {
                known.signature.ino for path, known in self._state.all_known()
                if stat.S_ISREG(known.signature.mode) and _is_written(descent, path)
            }  # fmt: skip
        copies = [copy for copy in self.copies() if copy.ino in written] if written else []
        try:
            for copy in copies:
                copy.run()
        except BaseException:
            for copy in copies:
                copy.abandon()
            raise
        if copies:
            self.install(copies)
            self._forget_released()
        return bool(written)

    def abandon(self) -> None:
        """Forget the run with all that is not yet in the branch."""
        self._give_back()
        remove_run(self.place)

    def put_aside(self, aside: str) -> None:
        """Forget the run, but keep its files at *aside*. OSError."""
        self._give_back()
        os.rename(self.place, aside)

    def _give_back(self) -> None:
        store, loan = self._overlay.store, lent_branches.find(self._overlay.store, self.record.branch)
        with store.transaction() as tx:
            lent_branches.put(store, self.record.branch, None)
            for layer in loan.layers() if loan is not None else ():
                self._overlay.layers.unpin(tx, layer)
        self.close()

    def close(self) -> None:
        """Leave everything as it is for the next daemon."""
        if self._upper >= 0:
            os.close(self._upper)
            self._upper = -1
        self._released.clear()
        self._open.close()
        self._is_lent = False
        if self._overlay.refs.exists(self.record.branch):
            self._tree.lent = None


class Look:
    """One look at the upper directory. ``tree``: the branch's state that it is for."""

    def __init__(self, takeover: Takeover, tree: Tree) -> None:
        self.takeover, self.tree = takeover, tree
        self.found: Found

    def scan(self) -> None:
        """Find what has changed. OSError."""
        self.found = self.takeover.look()


def _open_upper(path: str) -> int:
    """Open the upper directory, which its owner may have closed to everybody."""
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:
        mode = stat.S_IMODE(os.stat(path).st_mode)
        os.chmod(path, mode | stat.S_IRWXU)
        try:
            return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        finally:
            os.chmod(path, mode)


def _has_fine_times() -> bool:
    """Return whether two changes of a file never have one time if somebody has looked in between (Linux 6.13)."""
    major, minor, *_ = os.uname().release.split(".")
    return (int(major), int(minor.split("-")[0])) >= (6, 13)


def _is_written(descent: Descent, path: bytes) -> bool:
    """Return whether a process may have a file of the upper open for writing."""
    parent, _, name = path.rpartition(b"/")
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=descent.fd(parent))
    except OSError:  # nobody can open what its owner has closed to everybody: we do not ask
        return True
    try:
        return syncing.is_written_elsewhere(fd)
    finally:
        os.close(fd)


def _has_content(descent: Descent, path: bytes, inode: Inode) -> bool:
    """Return whether a file of the upper has the content that the branch has for it."""
    parent, _, name = path.rpartition(b"/")
    try:
        with unlocking.opened(descent.fd(parent), name) as upper, open(copyup.content_fd(inode), "rb") as branch:
            if os.fstat(upper).st_size != os.fstat(branch.fileno()).st_size:
                return False
            with open(upper, "rb", closefd=False) as now:
                while block := now.read(_BLOCK_BYTES):
                    if block != branch.read(len(block)):
                        return False
    except OSError:
        return False
    return True
