"""Branches and snapshots as rows and trees: finding them by name, sealing their layers, freeing what nobody holds.

A snapshot seals the branch's head layer and puts an empty one above it; a branch is a new head above a sealed
layer. Neither looks at a single file.
"""

import errno
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar
from weakref import WeakSet

from agentfsd.core import copyup, reap
from agentfsd.core.branch_events import BranchEvent, Listener
from agentfsd.core.copyup_policy import CopyUpPolicy
from agentfsd.core.ids import MIN_PREFIX, IdMaker
from agentfsd.core.inode import Inode, LowerIdentity
from agentfsd.core.open_files import carry_over
from agentfsd.core.recovery import recover
from agentfsd.core.tree import Parts, Tree
from agentfsd.errors import DamagedContent, Refusal, not_found
from agentfsd.metadata import layer_rows
from agentfsd.metadata.row_store import Store, Transaction
from agentfsd.metadata.rows import BranchRow, SnapshotRow
from agentfsd.types import DEFAULT_BRANCH, Backstore, Lower

_READERS_COPY_BYTES = (
    1 << 16
)  # of a file that is only read past us: it follows its file across a snapshot if that costs next to nothing
_TEMPORARY = "temporary"  # the fact that names them


class Refs:
    """What everything else about branches and snapshots rests on."""

    def __init__(self, store: Store, lower: Lower, backstore: Backstore) -> None:
        self.parts = Parts(store, lower, backstore, lower.stat(b"").st_dev, CopyUpPolicy(store))
        self.store, self.backstore = store, backstore
        self._ids = IdMaker()
        self._branches = {row.id: row for row in layer_rows.branches(store)}
        self._snapshots = {row.id: row for row in layer_rows.snapshots(store)}
        self._undo_entries = {row.id: row for row in layer_rows.undo_rows(store)}  # what can be undone
        self._temporary: dict[str, bool] = dict.fromkeys(store.value(_TEMPORARY).split(), True)
        self._written: set[int] = set()  # objects that are known to be no mere copies of the lower's: not looked at again
        self._pins: Counter[int] = Counter()  # layers that work under way rests on
        self._numbers = itertools.count(1)
        self._trees: dict[str, Tree] = {}
        self._replaced: WeakSet[Tree] = WeakSet()  # what of them is still open, or known to the kernel
        self.listeners: list[Listener] = []  # whoever follows what happens in branches; those who make it happen tell()
        self.last_write: tuple[str, int, int] | None = None  # branch, file and process of one that a single listener has heard of
        self.on_replaced: list[Callable[[Tree], None]] = []  # called with each tree that has just been detached
        self.on_names: list[Callable[[Inode, tuple[bytes, ...]], object]] = []  # see names_changed()
        self.on_file: list[Callable[[Inode, bool], object]] = []  # see file_changed()
        self.on_external_writer: list[
            Callable[[Inode], object]
        ] = []  # called with a file that will be written past us from now on
        if self._branch_named(DEFAULT_BRANCH) is None:
            with store.transaction() as tx:
                self._add_branch(tx, DEFAULT_BRANCH, "", 0)
        self.default_id = self.branch_row(DEFAULT_BRANCH).id
        self._drop_unfinished()
        self.recovered = recover(store, backstore)

    # -- what is there for the time being

    def _mark_temporary(self, tx: Transaction, ids: Iterable[str]) -> None:
        marked = list(ids)
        for number in marked:
            tx.put(self._temporary, number, True)
        if marked:
            self.store.put_value(_TEMPORARY, " ".join(self._temporary))

    def _unmark_temporary(self, tx: Transaction, *ids: str) -> None:
        marked = [number for number in ids if number in self._temporary]
        for number in marked:
            tx.put(self._temporary, number, None)
        if marked:
            self.store.put_value(_TEMPORARY, " ".join(self._temporary))

    # -- trees

    def branch_tree(self, branch_id: str) -> Tree:
        """The live view of a branch, by id."""
        tree = self._trees.get(branch_id)
        if tree is None:
            row = self._branches.get(branch_id)
            if row is None:
                raise not_found("branch", branch_id)
            tree = self._trees[branch_id] = self._open_tree(branch_id, row.head, read_only=False)
        return tree

    def snapshot_tree(self, snapshot_id: str) -> Tree:
        """The read-only view of a snapshot, by id."""
        tree = self._trees.get(snapshot_id)
        if tree is None:
            row = self._snapshots.get(snapshot_id)
            if row is None:
                raise not_found("snapshot", snapshot_id)
            tree = self._trees[snapshot_id] = self._open_tree(snapshot_id, row.layer, read_only=True)
        return tree

    def any_tree(self, tree_id: str) -> Tree:
        """The view of a branch or snapshot, by id."""
        known = self._trees.get(tree_id)
        if known is not None:
            return known
        return self.branch_tree(tree_id) if tree_id in self._branches else self.snapshot_tree(tree_id)

    def has_tree(self, tree_id: str) -> bool:
        """Whether a branch or snapshot of that id exists."""
        return tree_id in self._branches or tree_id in self._snapshots

    def list_names(self, branches: bool) -> list[tuple[str, str]]:
        """(name, id) of every branch, or of every snapshot, in order of making."""
        rows: Iterable[BranchRow | SnapshotRow] = self._branches.values() if branches else self._snapshots.values()
        return sorted(((row.name, row.id) for row in rows), key=lambda pair: pair[1])

    def _open_tree(self, tree_id: str, head: int, *, read_only: bool) -> Tree:
        return Tree(self.parts, tree_id, head, layer_rows.chain(self.store, head), read_only=read_only)

    def _detach(self, tree_id: str, *, carry: bool = False) -> None:
        """After a state was replaced or removed; with *carry* open files go on in the branch's new one."""
        tree = self._trees.pop(tree_id, None)
        if tree is not None:
            tree.detached = True
            self._replaced.add(tree)
            if carry:
                carry_over(tree, self.branch_tree(tree_id))
            for listener in self.on_replaced:
                listener(tree)

    def tell(self, happening: BranchEvent) -> None:
        for listener in self.listeners:
            listener(happening)

    def is_news(self, write: tuple[str, int, int]) -> bool:
        """Whether somebody must hear of a write: see ``last_write``."""
        return write != self.last_write or len(self.listeners) > 1

    def names_changed(self, directory: Inode, *names: bytes) -> None:
        """After names in a directory changed other than through the kernel: whoever has cached them looks again."""
        for listener in self.on_names:
            listener(directory, names)

    def file_changed(self, inode: Inode, *, data: bool) -> None:
        """Likewise for a file's attributes, or its *data* as well."""
        for listener in self.on_file:
            listener(inode, data)

    def lower_moved(self, moved: dict[bytes, bytes], once: str) -> None:
        """After a commit: what the lower had at some paths it has at others. Whatever comes from there, in any tree, follows.

        *once* names the commit, which may be told again after a kill.
        """
        if self.store.value("lower moved") == once:
            return
        with self.store.transaction() as tx:
            self.store.put_value("lower moved", once)
            for tree in [*self._trees.values(), *self._replaced]:
                for inode in tree.from_lower() + tree.loaded():
                    if inode.lower_path in moved:
                        tx.set(inode, lower_path=moved[inode.lower_path])
            self.store.move_lower_paths(moved)

    def lower_touched(self, touched: dict[LowerIdentity, LowerIdentity]) -> None:
        """After a commit that was undone: objects that went out of the lower and came back are what they were."""
        with self.store.transaction() as tx:
            for tree in [*self._trees.values(), *self._replaced]:
                for inode in tree.loaded():
                    if inode.lower in touched:
                        tx.set(inode, lower=touched[inode.lower])
            for old, new in touched.items():
                self.store.change_lower_identity(old, new)

    # -- finding by name

    def _branch_named(self, name: str) -> BranchRow | None:
        return next((row for row in self._branches.values() if row.name == name), None)

    def branch_row(self, ref: str) -> BranchRow:
        """A branch by name, id or unique prefix of its id."""
        found = self._branch_named(ref) or _by_id(self._branches, ref)
        if found is None:
            raise not_found("branch", ref, "`agentfsd branch list` shows them")
        return found

    def snapshot_row(self, ref: str) -> SnapshotRow:
        found = next((row for row in self._snapshots.values() if row.name == ref), None) or _by_id(self._snapshots, ref)
        if found is None:
            raise not_found("snapshot", ref, "`agentfsd snapshot list` shows them")
        return found

    def find(self, ref: str) -> BranchRow | SnapshotRow:
        """Whatever a ref names; a branch goes before a snapshot of the same name."""
        try:
            return self.branch_row(ref)
        except Refusal as exc:
            if exc.code == "ambiguous":
                raise
        try:
            return self.snapshot_row(ref)
        except Refusal as exc:
            if exc.code == "ambiguous":
                raise
        raise not_found("branch or snapshot", ref, "`agentfsd branch list` and `agentfsd snapshot list` show them")

    def resolve(self, ref: str) -> tuple[str, str]:
        """("branch" or "snapshot", id)."""
        row = self.find(ref)
        return ("branch" if isinstance(row, BranchRow) else "snapshot"), row.id

    def tree(self, ref: str) -> Tree:
        row = self.find(ref)
        return self.branch_tree(row.id) if isinstance(row, BranchRow) else self.snapshot_tree(row.id)

    def _history(self, head: int, *branch_ids: str) -> list[SnapshotRow]:
        """The snapshots along a chain, newest first; of those of the bare lower, where all chains end, only these branches'."""
        chain = {layer: depth for depth, layer in enumerate(layer_rows.chain(self.store, head))}
        chain[0] = len(chain)
        along = [row for row in self._snapshots.values() if row.layer in chain and (row.layer or row.branch_id in branch_ids)]
        along.sort(key=lambda row: row.id, reverse=True)
        return sorted(along, key=lambda row: chain[row.layer])

    # -- states that hold still

    @contextmanager
    def frozen(self, ref: str | None, *, readers_follow: bool = True) -> Iterator[Tree]:
        """A read-only view of a ref as it is now (None: the bare lower), for work that takes longer than one step.

        Not *readers_follow*: to put something else in its place, which is only done to a branch that has not changed since.
        """
        layer = 0
        if ref is not None:
            with self.store.transaction() as tx:
                layer = self._sealed_layer(tx, self.find(ref), readers_follow=readers_follow)
        with self.pinned(layer, read_only=True) as tree:
            yield tree

    @contextmanager
    def made_from(self, branch_ref: str) -> Iterator[Tree]:
        """What a branch was when it was made."""
        with self.pinned(self.branch_row(branch_ref).base_layer, read_only=True) as tree:
            yield tree

    @contextmanager
    def pinned(self, layer: int, *, read_only: bool) -> Iterator[Tree]:
        """A view of a layer that nobody refers to, until the end of the block; then it goes unless it was taken into use."""
        tree_id = f"~{next(self._numbers)}"
        self._pins[layer] += 1
        tree = self._trees[tree_id] = self._open_tree(tree_id, layer, read_only=read_only)
        try:
            yield tree
        finally:
            self._trees.pop(tree_id, None)
            tree.detached = True
            self._pins -= Counter([layer])  # without it once nobody is left
            with self.store.transaction() as tx:
                self._let_go(tx, layer)

    @contextmanager
    def scratch(self, base: Tree) -> Iterator[Tree]:
        """A writable view above a frozen one, to be taken into use as a whole (or not at all)."""
        with self.store.transaction():
            layer = layer_rows.new_layer(self.store, base.head)
        with self.pinned(layer, read_only=False) as tree:
            yield tree

    def common_layer(self, ours: Iterable[int], theirs: int) -> int:
        """The newest layer whose state all those of *ours* together, and *theirs*, hold; merges count. 0: the bare lower."""
        parents, merges = layer_rows.parents(self.store), layer_rows.merges(self.store)
        return max(_ancestors(ours, parents, merges) & _ancestors([theirs], parents, merges), default=0)

    def _drop_unfinished(self) -> None:
        """After a start: what a killed daemon was building, and nothing refers to."""
        held, known = self._held(), layer_rows.parents(self.store)
        leaves = known.keys() - set(known.values()) - held
        if leaves:
            with self.store.transaction() as tx:
                self._let_go(tx, *leaves)

    # -- layers

    def _add_branch(self, tx: Transaction, name: str, base: str, base_layer: int, base_id: str = "") -> BranchRow:
        head = layer_rows.new_layer(self.store, base_layer)
        row = BranchRow(self._ids.make(), name, head, base, base_layer, time.time_ns(), base_id)
        layer_rows.put_branch(self.store, row)
        tx.put(self._branches, row.id, row)
        return row

    def _sealed_layer(self, tx: Transaction, origin: BranchRow | SnapshotRow, *, readers_follow: bool = True) -> int:
        """The layer that holds the state of a ref now; a branch gets a new head above it unless its head is empty.

        *readers_follow*: who reads a file past us goes on with the branch's where that is cheap; the new head is not empty then.
        """
        if isinstance(origin, SnapshotRow):
            return origin.layer
        head = origin.head
        if layer_rows.is_empty(self.store, head):
            return layer_rows.parents(self.store)[head]
        new_head = layer_rows.new_layer(self.store, head)
        layer_rows.set_head(self.store, origin.id, new_head)
        tx.put(self._branches, origin.id, origin._replace(head=new_head))
        tree = self._trees.get(origin.id)
        if tree is not None:
            tx.set(tree, head=new_head, chain=tree.chain | {new_head})
            if self.backstore.native_snapshots != "none":  # a reflink waits for what is dirty: let the disk have all at once
                for inode in tree.external_writers:
                    if inode.file is not None:
                        inode.file.start_writeback()
            for inode in list(tree.external_writers):
                copyup.keep_original(tx, inode, head)
            for inode in tree.external_readers.difference(tree.external_writers) if readers_follow else ():
                copyup.keep_original(tx, inode, head, _READERS_COPY_BYTES)
        return head

    def _replace_head(self, tx: Transaction, branch: BranchRow, layer: int) -> None:
        head = layer_rows.new_layer(self.store, layer)
        layer_rows.set_head(self.store, branch.id, head)
        tx.put(self._branches, branch.id, branch._replace(head=head))
        self._let_go(tx, branch.head)

    # -- counting

    def _copies(self, own: Iterable[int]) -> Iterator[set[int]]:
        """The objects in some layers that are the lower's content still, told by size and time: copied up, and not changed. Some
        at each step."""
        for layer in own:
            for page in layer_rows.possible_copies(self.store, layer):
                yield {
                    number
                    for number, size, mtime_ns in page
                    if number not in self._written and self._is_copy(number, size, mtime_ns)
                }

    def _is_copy(self, number: int, size: int, mtime_ns: int) -> bool:
        try:
            stat = self.backstore.stat(number)
        except DamagedContent:  # freed since the last step, or lost
            return False
        if (stat.st_size, stat.st_mtime_ns) == (size, mtime_ns):
            return True
        self._written.add(number)
        return False

    # -- freeing

    def _let_go(self, tx: Transaction, *released: int) -> None:
        """Frees the layers that nothing refers to any more, in the open transaction."""
        held = self._held()
        for layer in released:
            reap.let_go(tx, self.parts, layer, held, list(self._trees.values()))

    def _held(self) -> set[int]:
        """The layers that something refers to."""
        held = {row.head for row in self._branches.values()} | {row.base_layer for row in self._branches.values()}
        held |= {row.layer for row in self._snapshots.values()} | {row.branch.base_layer for row in self._undo_entries.values()}
        return held | self._pins.keys()

    def reap(self, limit: int = 500) -> bool:
        """Removes some of what is marked as garbage; True when more is left. For quiet moments."""
        read = {inode.content for tree in self._replaced for inode in tree.loaded()}
        return reap.step(self.store, self.backstore, limit, read)


def _ancestors(start: Iterable[int], parents: dict[int, int], merges: dict[int, list[int]]) -> set[int]:
    todo, seen = [layer for layer in start if layer in parents], set[int]()
    while todo:
        layer = todo.pop()
        if layer in seen:
            continue
        seen.add(layer)
        todo += [above for above in (parents[layer], *merges.get(layer, ())) if above in parents]
    return seen


_Row = TypeVar("_Row", BranchRow, SnapshotRow)


def _by_id(rows: dict[str, _Row], ref: str) -> _Row | None:
    """By id, or by a prefix of it that fits only one."""
    if ref in rows:
        return rows[ref]
    if len(ref) < MIN_PREFIX:
        return None
    found = [row for number, row in rows.items() if number.startswith(ref.upper())]
    if len(found) > 1:
        raise Refusal(errno.EINVAL, "ambiguous", f"{ref!r} could be {len(found)} of them", "give more of the id")
    return found[0] if found else None
