"""A branch that the kernel shows as an overlay: what lies on disk for it, and what comes back into the branch. It mounts nothing.

The directory of a run has ``upper`` and ``work`` for the kernel, and a record. As long as the directory is there, what the upper
holds is not yet all in the branch: whatever happened meanwhile, the next takeover brings it.
"""

import contextlib
import errno
import os
import stat
import time
from collections import defaultdict

import msgspec

from agentfs_host import syscalls
from agentfs_host.descent import Descent
from agentfsd.core import copyup, inode_stat, tree_diff
from agentfsd.core.content_objects import clone_object
from agentfsd.core.inode_attributes import all_xattrs
from agentfsd.core.overlay import Overlay
from agentfsd.core.tree import Inode, Tree
from agentfsd.metadata import layer_rows
from agentfsd.metadata.row_store import GARBAGE
from agentfsd.metadata.transaction import Transaction
from agentfsd.overlayfs import on_disk, unlocking
from agentfsd.overlayfs.layer_stack import LayerStack, remove
from agentfsd.overlayfs.new_entries import TakeoverReporter
from agentfsd.overlayfs.state_writer import StateWriter
from agentfsd.overlayfs.takeover import Takeover
from agentfsd.overlayfs.upper_scan import Found, Known, signature
from agentfsd.overlayfs.upper_state import UpperState

_RECORD = "record.json"
_COARSE = 5  # CLOCK_REALTIME_COARSE: file systems take their time stamps from it
_LONGEST_CHAIN = 32
_IN_MEMORY = (0x01021994, 0x858458F6)  # f_type of tmpfs and ramfs: statfs(2)
_BLOCK_BYTES = 1 << 20


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
        self._replaced: Tree | None = None  # the state that programs see, if the branch has got another one
        self._released: list[tuple[int, int]] = []  # descriptors and numbers of objects that were the upper's files
        self._copied: dict[int, int] = {}  # inode ids of what has got copies, by inode number of the upper's file
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

    # -- other states of the branch

    def replaced(self, old: Tree) -> None:
        """Take note that the branch has got another state than *old*, which programs still see: push() shows it to them."""
        self._replaced = self._replaced or old
        assert self._tree.lent is self

    @property
    def is_replaced(self) -> bool:
        """Whether there is a state that programs do not see yet."""
        return self._replaced is not None

    def push(self, root: int) -> None:
        """Make what programs see the branch's present state. *root*: a descriptor of the mount. OSError."""
        old, self._replaced = self._replaced, None
        if old is not None:
            StateWriter(root).write(tree_diff.pairs(self._overlay.parts, old, self._tree, times=True))

    # -- contents that the run may still write

    def copies(self) -> list["ContentCopy"]:
        """Return copies to make, in any thread, of the contents that the run may still write; then call install()."""
        made = []
        for ino, number in list(self._state.files.items()):
            inode = self._tree.find_stored(number)
            if inode is not None and inode.content and inode.content_layer == self._tree.head:
                made.append(ContentCopy(inode, ino))
        return made

    def install(self, copies: list["ContentCopy"]) -> None:
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
        if self._state.known is None and not self._state.files:
            raise OSError(errno.EBUSY, "what a run has written could not be brought into the branch yet")
        for ino, number in list(self._state.files.items()):
            inode = self._tree.find_stored(number)
            if inode is not None and inode.content and inode.content_layer == sealed:
                copy = ContentCopy(inode, ino)
                copy.run()
                self._install(tx, copy, sealed)
        tx.set(self._state, files={})

    def _install(self, tx: Transaction, copy: "ContentCopy", layer: int) -> None:
        inode, tree = copy.inode, copy.inode.tree
        if not copy.is_made or inode.content != copy.of:
            copy.abandon()
            return
        tx.when_undone(copy.abandon)
        released = (os.dup(copy.source), copy.of)
        self._released.append(released)
        tx.when_undone(lambda: self._released.remove(released))
        tx.put(self._copied, copy.ino, inode.id)
        tree.store.put_object(copy.number, layer)
        tree.store.replace_content(inode.id, copy.of, copy.number)
        tree.store.put_object(copy.of, GARBAGE)
        tx.set(inode, content=copy.number)
        copy.close()
        if inode.file is not None:
            inode.release_files()
            if inode.opens:
                inode.file = tree.backstore.open(copy.number)

    def _forget_released(self) -> None:
        """Remove the links to files of the upper that are no objects any more, and note that only this has changed them."""
        known = defaultdict[int, list[Known]](list)
        for _, each in self._state.all_known() if self._released else ():
            known[each.signature.ino].append(each)
        for fd, number in self._released:
            before = signature(os.fstat(fd))
            self._overlay.backstore.remove(number)
            after = signature(os.fstat(fd))
            for name in known[before.ino]:
                if name.signature == before:
                    name.signature = after
            os.close(fd)
        self._released.clear()

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


class ContentCopy:
    """A copy of a content object that is a file of the upper.

    Attributes:
        inode: The file.
        ino: The inode number of the upper's file.
        of: The number of the object.
        number: The number of the copy.
        source: A descriptor of the object.
        is_made: Whether run() has made it.
        size_bytes: The size of the file.
    """

    def __init__(self, inode: Inode, ino: int) -> None:
        tree = inode.tree
        self.inode, self.of, self.number, self.is_made = inode, inode.content, tree.store.next_id("object"), False
        with contextlib.closing(tree.backstore.open(self.of)) as content:
            self.source = os.dup(content.fileno())
        status = os.fstat(self.source)
        self.ino, self.size_bytes, self._is_of_upper = ino, status.st_size, status.st_ino == ino

    def run(self) -> None:
        """Make the copy. OSError leaves nothing behind."""
        if not self._is_of_upper:
            return
        syscalls.start_writeback(self.source)  # before: from now on also a write through a mapping moves the change time
        status = os.fstat(self.source)
        clone = clone_object(self.inode.tree, self.source, self.number)
        clone.utime(status.st_atime_ns, status.st_mtime_ns)
        clone.close()
        self.is_made = True

    def abandon(self) -> None:
        """Remove the copy, if there is one."""
        self.close()
        if self.is_made:
            self.inode.tree.backstore.remove(self.number)

    def close(self) -> None:
        """Close the source."""
        if self.source >= 0:
            os.close(self.source)
            self.source = -1


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
