"""All branches and snapshots of one lower: making, naming, finding and deleting them. Synchronous and pure of any transport.

A snapshot seals the branch's head layer and puts an empty one above it; a branch is a new head above a sealed layer.
Neither looks at a single file.
"""

import errno
import time
from collections.abc import Callable, Iterable
from typing import TypeVar
from weakref import WeakSet

from agentfsd.core import copyup, diff, fsck, reap
from agentfsd.core.ids import MIN_PREFIX, IdMaker, check_name
from agentfsd.core.tree import Parts, Tree
from agentfsd.errors import Refusal, invalid, not_found
from agentfsd.metadata import layers
from agentfsd.metadata.rows import BranchRow, SnapshotRow
from agentfsd.metadata.store import Store, Transaction
from agentfsd.types import DEFAULT_BRANCH, Backstore, BranchInfo, Change, Lower, SnapshotInfo


class Overlay:
    """The daemon's whole state. Refusal (an OSError) for every request that cannot be met; nothing has changed then."""

    def __init__(self, store: Store, lower: Lower, backstore: Backstore) -> None:
        self.parts = Parts(store, lower, backstore, lower.stat(b"").st_dev)
        self.store, self.backstore = store, backstore
        self._ids = IdMaker()
        self._branches = {row.id: row for row in layers.branches(store)}
        self._snapshots = {row.id: row for row in layers.snapshots(store)}
        self._trees: dict[str, Tree] = {}
        self._replaced: WeakSet[Tree] = WeakSet()  # what of them is still open, or known to the kernel
        self.on_replaced: list[Callable[[Tree], None]] = []  # called with each tree that has just been detached
        if self._branch_named(DEFAULT_BRANCH) is None:
            with store.transaction() as tx:
                self._add_branch(tx, DEFAULT_BRANCH, "", 0)
        self.default_id = self.branch_row(DEFAULT_BRANCH).id
        reap.recover(store, backstore)

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
        return Tree(self.parts, tree_id, head, layers.chain(self.store, head), read_only=read_only)

    def _detach(self, tree_id: str) -> None:
        tree = self._trees.pop(tree_id, None)
        if tree is not None:
            tree.detached = True
            self._replaced.add(tree)
            for listener in self.on_replaced:
                listener(tree)

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

    # -- branches

    def create_branch(self, name: str, source: str | None = None) -> BranchInfo:
        """A new branch of a snapshot or of another branch's state now (None: the default branch's). O(1)."""
        check_name("branch", name)
        if self._branch_named(name) is not None:
            raise Refusal(errno.EEXIST, "branch-exists", f"there is a branch named {name!r} already", "choose another name")
        origin = self.find(source if source is not None else DEFAULT_BRANCH)
        with self.store.transaction() as tx:
            layer = self._sealed_layer(tx, origin)
            row = self._add_branch(tx, name, origin.name if layer else "", layer)
        return self._branch_info(row)

    def _add_branch(self, tx: Transaction, name: str, base: str, base_layer: int) -> BranchRow:
        head = layers.new_layer(self.store, base_layer)
        row = BranchRow(self._ids.make(), name, head, base, base_layer, time.time_ns())
        layers.put_branch(self.store, row)
        tx.put(self._branches, row.id, row)
        return row

    def _sealed_layer(self, tx: Transaction, origin: BranchRow | SnapshotRow) -> int:
        """The layer that holds the state of a ref now; a branch gets a new head above it unless its head is empty."""
        if isinstance(origin, SnapshotRow):
            return origin.layer
        head = origin.head
        if layers.is_empty(self.store, head):
            return layers.parents(self.store)[head]
        new_head = layers.new_layer(self.store, head)
        layers.set_head(self.store, origin.id, new_head)
        tx.put(self._branches, origin.id, origin._replace(head=new_head))
        tree = self._trees.get(origin.id)
        if tree is not None:
            tx.set(tree, head=new_head, chain=tree.chain | {new_head})
            for inode in list(tree.passed):
                copyup.keep_original(tx, inode)
        return head

    def list_branches(self) -> list[BranchInfo]:
        return [self._branch_info(row) for row in sorted(self._branches.values())]

    def branch_info(self, ref: str) -> BranchInfo:
        return self._branch_info(self.branch_row(ref))

    def _branch_info(self, row: BranchRow) -> BranchInfo:
        return BranchInfo(row.name, row.id, row.base, row.created_ns, self._count_changes(row))

    def _own_layers(self, row: BranchRow) -> list[int]:
        """The layers of a branch since what it was made from."""
        base = set(layers.chain(self.store, row.base_layer))
        return [layer for layer in layers.chain(self.store, row.head) if layer not in base]

    def _count_changes(self, row: BranchRow) -> int:
        return layers.count_entries(self.store, self._own_layers(row))

    def rename_branch(self, ref: str, new_name: str) -> BranchInfo:
        row = self.branch_row(ref)
        check_name("branch", new_name)
        if row.id == self.default_id:
            raise Refusal(errno.EPERM, "default-branch", f"{DEFAULT_BRANCH!r} cannot be renamed")
        with self.store.transaction():
            layers.rename_branch(self.store, row.id, new_name)
        self._branches[row.id] = row._replace(name=new_name)
        return self._branch_info(self._branches[row.id])

    def delete_branch(self, ref: str, discard: bool = False) -> None:
        """Removes a branch; one that holds changes only with *discard*."""
        row = self.branch_row(ref)
        if row.id == self.default_id:
            raise Refusal(errno.EPERM, "default-branch", f"{DEFAULT_BRANCH!r} cannot be deleted", "discard empties it")
        if not discard and not all(layers.is_empty(self.store, layer) for layer in self._own_layers(row)):
            raise Refusal(
                errno.EBUSY,
                "branch-has-changes",
                f"branch {row.name!r} holds changes",
                f"`agentfsd discard {row.name}` throws them away with the branch",
            )
        with self.store.transaction() as tx:
            layers.delete_branch(self.store, row.id)
            tx.put(self._branches, row.id, None)
            self._let_go(tx, row.head, row.base_layer)
        self._detach(row.id)

    def discard(self, ref: str) -> None:
        """Throws a branch away with what it holds; the default branch becomes the bare lower again."""
        row = self.branch_row(ref)
        if row.id == self.default_id:
            with self.store.transaction() as tx:
                self._replace_head(tx, row, 0)
            self._detach(row.id)
        else:
            self.delete_branch(row.id, discard=True)

    # -- snapshots

    def create_snapshot(self, branch_ref: str, name: str | None = None, tag: str = "", author_pid: int = 0) -> SnapshotInfo:
        """Fixes a branch's state as it is now. O(1)."""
        branch = self.branch_row(branch_ref)
        new_id = self._ids.make()
        name = self._free_name(branch.name) if name is None else name
        check_name("snapshot", name)
        parent = self._last_snapshot(branch)
        with self.store.transaction() as tx:
            layer = self._sealed_layer(tx, branch)
            row = SnapshotRow(
                new_id, name, branch.name, branch.id, layer, parent.id if parent else "", time.time_ns(), tag, author_pid,
                None, None,
            )  # fmt: skip
            layers.put_snapshot(self.store, row)
            tx.put(self._snapshots, row.id, row)
        return self._snapshot_info(row)

    def _free_name(self, branch: str) -> str:
        taken = {row.name for row in self._snapshots.values()}
        number = 1 + sum(row.branch == branch for row in self._snapshots.values())
        while f"{branch[:100]}-{number}" in taken:
            number += 1
        return f"{branch[:100]}-{number}"

    def _last_snapshot(self, branch: BranchRow) -> SnapshotRow | None:
        history = self._history(branch.head)
        return history[0] if history else None

    def _history(self, head: int) -> list[SnapshotRow]:
        """The snapshots along a chain, newest first."""
        chain = {layer: depth for depth, layer in enumerate(layers.chain(self.store, head))}
        chain[0] = len(chain)
        along = [row for row in self._snapshots.values() if row.layer in chain]
        along.sort(key=lambda row: row.id, reverse=True)
        return sorted(along, key=lambda row: chain[row.layer])

    def list_snapshots(self, branch: str | None = None) -> list[SnapshotInfo]:
        """Oldest first; those taken of one branch, or all."""
        rows = sorted(self._snapshots.values())
        if branch is not None:
            branch_id = self.branch_row(branch).id
            rows = [row for row in rows if row.branch_id == branch_id]
        return [self._snapshot_info(row) for row in rows]

    def snapshot_info(self, ref: str) -> SnapshotInfo:
        return self._snapshot_info(self.snapshot_row(ref))

    def _snapshot_info(self, row: SnapshotRow) -> SnapshotInfo:
        return SnapshotInfo(
            row.name, row.id, row.branch, row.parent, row.created_ns, row.tag, row.author_pid,
            row.file_count if row.file_count is not None else -1,
            row.bytes_changed if row.bytes_changed is not None else -1,
        )  # fmt: skip

    def count_snapshot(self, ref: str) -> SnapshotInfo:
        """Like snapshot_info, with the counts made now if nobody asked before: entries and bytes since its parent."""
        row = self.snapshot_row(ref)
        if row.file_count is None:
            parent = self._snapshots.get(row.parent)
            older = set(layers.chain(self.store, parent.layer)) if parent else set()
            mine = [layer for layer in layers.chain(self.store, row.layer) if layer not in older]
            files = layers.count_entries(self.store, mine)
            size = sum(self.backstore.stat(number).st_size for layer in mine for number in self.store.objects_of(layer))
            with self.store.transaction():
                layers.set_snapshot_counts(self.store, row.id, files, size)
            row = self._snapshots[row.id] = row._replace(file_count=files, bytes_changed=size)
        return self._snapshot_info(row)

    def delete_snapshot(self, ref: str) -> None:
        """Removes a snapshot and what only it held."""
        row = self.snapshot_row(ref)
        with self.store.transaction() as tx:
            layers.delete_snapshot(self.store, row.id, row.parent)
            tx.put(self._snapshots, row.id, None)
            for other in [other for other in self._snapshots.values() if other.parent == row.id]:
                tx.put(self._snapshots, other.id, other._replace(parent=row.parent))
            self._let_go(tx, row.layer)
        self._detach(row.id)

    def log(self, ref: str) -> list[SnapshotInfo]:
        """The snapshots in the history of a ref, newest first."""
        row = self.find(ref)
        return [self.count_snapshot(found.id) for found in self._history(row.head if isinstance(row, BranchRow) else row.layer)]

    def in_history(self, branch_id: str, snapshot_id: str) -> bool:
        """Whether a snapshot is part of a branch's own history (or was taken of that branch)."""
        branch, snapshot = self._branches.get(branch_id), self._snapshots.get(snapshot_id)
        if branch is None or snapshot is None:
            return False
        return snapshot.branch_id == branch_id or snapshot.layer in layers.chain(self.store, branch.head)

    def restore(self, branch_ref: str, ref: str) -> None:
        """Puts a branch back to a snapshot (or to another branch's state now). Open files keep what they had. O(1)."""
        origin, branch = self.find(ref), self.branch_row(branch_ref)
        if origin.id == branch.id:
            raise invalid(f"{branch.name!r} is that state already", "name a snapshot, or another branch")
        with self.store.transaction() as tx:
            self._replace_head(tx, branch, self._sealed_layer(tx, origin))
        self._detach(branch.id)

    def _replace_head(self, tx: Transaction, branch: BranchRow, layer: int) -> None:
        head = layers.new_layer(self.store, layer)
        layers.set_head(self.store, branch.id, head)
        tx.put(self._branches, branch.id, branch._replace(head=head))
        self._let_go(tx, branch.head)

    # -- freeing

    def _let_go(self, tx: Transaction, *released: int) -> None:
        """Frees the layers that nothing refers to any more, in the open transaction."""
        held = {row.head for row in self._branches.values()} | {row.base_layer for row in self._branches.values()}
        held |= {row.layer for row in self._snapshots.values()}
        for layer in released:
            reap.let_go(tx, self.parts, layer, held, list(self._trees.values()))

    def reap(self, limit: int = 500) -> bool:
        """Removes some of what is marked as garbage; True when more is left. For quiet moments."""
        read = {inode.content for tree in self._replaced for inode in tree.loaded()}
        return reap.step(self.store, self.backstore, limit, read)

    # -- looking

    def diff(self, a: str | None, b: str | None) -> list[Change]:
        """What leads from *a* to *b* (None: the lower), sorted by path; cost follows what changed."""
        return diff.between(self.parts, self._diff_side(a), self._diff_side(b))

    def _diff_side(self, ref: str | None) -> Tree:
        return self._open_tree("", 0, read_only=True) if ref is None else self.tree(ref)

    def fsck(self) -> list[str]:
        """Problems in the stored state, one sentence each; empty when it is sound."""
        return fsck.check(self)

    def heads(self) -> list[tuple[str, Tree]]:
        """Every branch and snapshot by name, for checks."""
        found = [(f"branch {row.name}", self.branch_tree(row.id)) for row in self._branches.values()]
        return found + [(f"snapshot {row.name}", self.snapshot_tree(row.id)) for row in self._snapshots.values()]

    def loaded(self) -> int:
        """Inodes that are in memory now."""
        return sum(len(tree.loaded()) for tree in self._trees.values())

    def usage(self) -> dict[str, int]:
        return {"branches": len(self._branches), "snapshots": len(self._snapshots), **self.backstore.usage()}


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
