"""Making, listing, renaming and deleting branches, and replacing the state of one."""

import errno
import time
from collections.abc import Callable, Iterable, Iterator

from agentfsd.core import frozen_layers
from agentfsd.core.ids import check_name
from agentfsd.core.layer_lifecycle import Layers
from agentfsd.core.merged_branches import MergedInto, merged_branches
from agentfsd.core.open_trees import OpenTrees
from agentfsd.core.overlay_rules import OverlayRules
from agentfsd.core.overlay_snapshots import MERGE, Snapshots
from agentfsd.core.overlay_state import WORKTREE, OverlayState
from agentfsd.core.refs import Refs
from agentfsd.core.retention import SnapshotRetention
from agentfsd.core.tree import Tree
from agentfsd.core.undo_log import UndoLog
from agentfsd.domain_errors import Refusal, invalid
from agentfsd.metadata import layer_rows
from agentfsd.metadata.rows import BranchRow
from agentfsd.metadata.transaction import Transaction
from agentfsd.types import DEFAULT_BRANCH, BranchInfo

_COMMITTED = "committed into the lower "  # and a branch id: the key of the time, in ns


class Branches:
    """The branches of one overlay.

    A *ref* is a name, an id or a unique prefix of an id. Methods that take one raise Refusal if there is no such branch.

    Attributes:
        default_id: Id of the default branch: processes that are bound to no other branch see this one.
    """

    def __init__(
        self, state: OverlayState, refs: Refs, layers: Layers, trees: OpenTrees, snapshots: Snapshots,
        retention: SnapshotRetention, undo_log: UndoLog, rules: OverlayRules,
    ) -> None:  # fmt: skip
        self._state, self._refs, self._layers, self._trees = state, refs, layers, trees
        self._snapshots, self._retention, self._undo_log, self._rules = snapshots, retention, undo_log, rules
        if refs.branch_named(DEFAULT_BRANCH) is None:
            with state.store.transaction() as tx:
                self._add(tx, DEFAULT_BRANCH, "", 0)
        self.default_id = refs.branch(DEFAULT_BRANCH).id

    # -- making, renaming, deleting

    def create(
        self, name: str, source: str | None = None, *, temporary: bool = False, shows_lower: bool = False, base: str = ""
    ) -> BranchInfo:  # fmt: skip
        """Make a branch from a snapshot, or from the present state of another branch. Takes constant time.

        Args:
            name: Name of the new branch.
            source: A branch or snapshot; None for the default branch.
            temporary: Whether it is removed with the conversation that made it, unless it is renamed: see TemporaryRefs.
            shows_lower: Whether the source shows what the lower does: then the branch counts as made from the lower.
            base: The frozen base that the branch shows; "" for what lies beneath the source.

        Raises:
            Refusal: ``bad-name``, ``branch-exists``, or as Refs.find() for the source.
        """
        self.check_new(name)
        origin = self._refs.find(source if source is not None else DEFAULT_BRANCH)
        made_from = origin.id if isinstance(origin, BranchRow) else origin.branch_id
        with self._state.store.transaction() as tx:
            layer = self._layers.seal(tx, origin)
            made_of = "" if shows_lower or self._layers.is_bare(layer) else origin.name
            if base:
                layer = frozen_layers.add(self._trees, self._state.lowers, layer, base)
            row = self._add(tx, name, made_of, layer, made_from)
            self._state.mark_temporary(tx, [row.id] if temporary else [])
            self._rules.branch_made(tx, row.id, made_from)
        return self._info(row)

    def check_new(self, name: str) -> None:
        """Refuse a name that no new branch can have: ``bad-name``, ``branch-exists``."""
        check_name("branch", name)
        if self._refs.branch_named(name) is not None:
            raise Refusal(errno.EEXIST, "branch-exists", f"there is a branch named {name!r} already", "choose another name")

    def _add(self, tx: Transaction, name: str, base: str, base_layer: int, base_id: str = "") -> BranchRow:
        store = self._state.store
        head = layer_rows.new_layer(store, base_layer)
        row = BranchRow(self._state.ids.make(), name, head, base, base_layer, time.time_ns(), base_id)
        layer_rows.put_branch(store, row)
        tx.put(self._state.branches, row.id, row)
        return row

    def rename(self, ref: str, new_name: str) -> BranchInfo:
        """Rename a branch. This makes a temporary branch permanent.

        Raises:
            Refusal: ``bad-name``, ``branch-exists``, ``default-branch``.
        """
        row = self._refs.branch(ref)
        check_name("branch", new_name)
        if row.id == self.default_id:
            raise Refusal(errno.EPERM, "default-branch", f"{DEFAULT_BRANCH!r} cannot be renamed")
        with self._state.store.transaction() as tx:
            layer_rows.rename_branch(self._state.store, row.id, new_name)
            self._state.unmark_temporary(tx, row.id)
        renamed = self._state.branches[row.id] = row._replace(name=new_name)
        return self._info(renamed)

    def delete(self, ref: str) -> None:
        """Delete a branch that holds no changes.

        Raises:
            Refusal: ``default-branch``, ``branch-has-changes``.
        """
        row = self._refs.branch(ref)
        if row.id == self.default_id:
            raise Refusal(errno.EPERM, "default-branch", f"{DEFAULT_BRANCH!r} cannot be deleted", "discard empties it")
        if not self._layers.holds_nothing(row):
            raise Refusal(
                errno.EBUSY,
                "branch-has-changes",
                f"branch {row.name!r} holds changes",
                f"`agentfsd discard {row.name}` throws them away with the branch",
            )
        with self._state.store.transaction() as tx:
            self._delete(tx, row)
        self._trees.detach(row.id)

    def _delete(self, tx: Transaction, row: BranchRow) -> None:
        """Delete a branch's row in the open transaction. The caller detaches its tree after the transaction."""
        layer_rows.delete_branch(self._state.store, row.id)
        self._state.store.drop_value(_COMMITTED + row.id)
        self._state.store.drop_value(WORKTREE + row.id)
        tx.put(self._state.worktrees, row.id, None)
        tx.put(self._state.branches, row.id, None)
        self._state.unmark_temporary(tx, row.id)
        self._layers.release(tx, row.head, row.base_layer)

    def note_commit(self, branch_id: str) -> None:
        """Note that a branch is committed into the lower now."""
        with self._state.store.transaction():
            self._state.store.put_value(_COMMITTED + branch_id, str(time.time_ns()))

    def committed_ns(self, branch_id: str) -> int:
        """Return when a branch was last committed into the lower, in ns; 0 if it never was."""
        return int(self._state.store.value(_COMMITTED + branch_id) or 0)

    def merged(self) -> dict[str, MergedInto]:
        """Return where each branch was merged, by its id."""
        return merged_branches(self._state, self._layers, self.default_id)

    def ids(self) -> list[str]:
        """Return the id of every branch, oldest first."""
        return [row.id for row in sorted(self._state.branches.values())]

    def ids_in_use(self) -> set[str]:
        """Return the id of every branch that exists, that a snapshot is of, or that undo may bring back."""
        state = self._state
        of_snapshots = {row.branch_id for row in state.snapshots.values()}
        return state.branches.keys() | of_snapshots | {row.branch_id for row in state.undo_rows.values()}

    # -- looking

    def all(self) -> list[BranchInfo]:
        """Describe every branch, oldest first."""
        return [self._info(row) for row in sorted(self._state.branches.values())]

    def info(self, ref: str) -> BranchInfo:
        """Describe a branch."""
        return self._info(self._refs.branch(ref))

    def _info(self, row: BranchRow) -> BranchInfo:
        last = next(iter(self._layers.snapshots_along(row.head, row.id, row.base_id)), None)
        return BranchInfo(row.name, row.id, row.base, row.created_ns, last.id if last else "")

    def stored_changes(self, ref: str) -> Iterator[int]:
        """Count the changes that a branch stores, some rows at a time. The caller adds up the numbers; some are negative.

        A file that was changed between two snapshots is stored twice.
        """
        own = self._layers.own(self._refs.branch(ref))
        yield from layer_rows.counting_entries(self._state.store, own)
        yield from (-len(copies) for copies in self._layers.unchanged_copies(own))

    def parent(self, ref: str) -> BranchRow | None:
        """Return the branch that a branch was made from; None for the lower.

        Raises:
            Refusal: ``no-parent`` if that branch was deleted.
        """
        row = self._refs.branch(ref)
        if not row.base:
            return None
        parent = self._state.branches.get(row.base_id)
        if parent is None:
            raise Refusal(
                errno.ENOENT, "no-parent", f"{row.base!r}, which branch {row.name!r} was made from, is gone",
                f"merge it into another one: agentfsd merge {row.name} BRANCH",
            )  # fmt: skip
        return parent

    # -- replacing a branch's state

    def restore(self, branch_ref: str, ref: str, author_pid: int = 0, author: str = "") -> None:
        """Replace a branch's state by a snapshot, or by the present state of another branch. Takes constant time.

        Files that are open keep their content. UndoLog.undo() brings the old state back.

        Args:
            branch_ref: The branch.
            ref: The snapshot or the other branch.
            author_pid: The process that asks; 0 for unknown.
            author: The command of that process.

        Raises:
            Refusal: ``invalid`` if both are the same branch, or as Refs.find().
        """
        source, branch = self._refs.find(ref), self._refs.branch(branch_ref)
        if source.id == branch.id:
            raise invalid(f"{branch.name!r} is that state already", "name a snapshot, or another branch")
        with self._state.store.transaction() as tx:
            self._undo_log.remember(tx, branch, "restore", author_pid, author)
            self._replace_head(tx, branch.id, self._layers.seal(tx, self._refs.find(source.id)))
        self._trees.detach(branch.id)
        self._retention.drop_automatic(branch.id)

    def take_over(
        self, branch_id: str, made: Tree, seen: int, kind: str, merged: Iterable[tuple[str, int]] = (), author_pid: int = 0,
        author: str = "", also: Callable[[Transaction], None] | None = None,
    ) -> bool:  # fmt: skip
        """Replace a branch's state by one that a merge, or a restore of some paths, has made. Open files move to the new state.

        Args:
            branch_id: The branch.
            made: The tree that holds the new state: a scratch tree, or a frozen view of another ref.
            seen: The layer that held the branch's state, sealed, when the work began.
            kind: The operation, for the undo log, such as merge or restore.
            merged: (id, sealed layer) of each branch or snapshot that was merged as a whole. Later merges start from that layer.
            author_pid: The process that asks; 0 for unknown.
            author: The command of that process.
            also: Stores more in the same transaction.

        Returns:
            Whether the state was replaced. If the branch has changed since *seen*, nothing happens.
        """
        branch, merged = self._refs.branch(branch_id), list(merged)
        if not self.is_still(branch_id, seen):
            return False
        state = self._state
        with state.store.transaction() as tx:
            self._undo_log.remember(tx, branch, kind, author_pid, author)
            self._replace_head(tx, branch_id, made.head)
            if also is not None:
                also(tx)
            for source, layer in merged:
                if made.head != layer:
                    layer_rows.put_merge(state.store, made.head, layer)
                self._keep_merged(tx, source, layer, branch.name, author_pid, author)
            if merged:
                self._snapshots.add(tx, state.branches[branch_id], None, "after merge", author_pid, author, MERGE)
        self._trees.detach(branch_id, carry=True)
        self._retention.drop_automatic(branch_id)
        return True

    def is_still(self, branch_id: str, seen: int) -> bool:
        """Return whether a branch has not changed since its state was sealed as layer *seen*."""
        store, head = self._state.store, self._state.branches[branch_id].head
        return layer_rows.parents(store).get(head) == seen and layer_rows.is_empty(store, head)

    def freeze(self, branch_id: str, base: str) -> None:
        """Have a branch show a frozen base beneath its changes, from now on."""
        with self._state.store.transaction() as tx:
            layer = self._layers.seal(tx, self._refs.branch(branch_id))
            self._replace_head(tx, branch_id, frozen_layers.add(self._trees, self._state.lowers, layer, base))
        self._trees.detach(branch_id, carry=True)

    def rebase(self, branch_id: str, made: Tree, seen: int, bottom: int, author_pid: int = 0, author: str = "") -> bool:
        """Replace a branch's state by one above another frozen base. Open files move to the new state.

        Args:
            branch_id: The branch.
            made: The tree that holds the new state.
            seen: The layer that held the branch's state, sealed, when the work began.
            bottom: The layer beneath *made* that has the base. The branch counts as made from it.
            author_pid: As for take_over().
            author: Likewise.

        Returns:
            Whether the state was replaced. If the branch has changed since *seen*, nothing happens.
        """

        def also(tx: Transaction) -> None:
            row = self._state.branches[branch_id]
            layer_rows.set_base_layer(self._state.store, branch_id, bottom)
            shared = self._layers.shared(branch_id, layer_rows.chain(self._state.store, seen))
            for included in {seen, shared or seen}:  # for later merges with others
                layer_rows.put_merge(self._state.store, made.head, included)
            tx.put(self._state.branches, branch_id, row._replace(base_layer=bottom))
            self._layers.release(tx, row.base_layer)

        return self.take_over(branch_id, made, seen, "rebase", (), author_pid, author, also)

    def become_bare(self, branch_id: str) -> None:
        """Make a branch show the lower as it is, after a commit has written all its changes there.

        Branches that were made from it before still merge with the right base: the new head counts the branch's old layers as
        merged: the newest, and the newest that others have, too, as the commit alone may keep the newest.
        """
        store = self._state.store
        with store.transaction() as tx:
            old, merges = layer_rows.chain(store, self._state.branches[branch_id].head), layer_rows.merges(store)
            self._replace_head(tx, branch_id, 0)
            known = layer_rows.parents(store)
            included = {other for layer in old for other in merges.get(layer, ())}
            included |= {next((at for at in old if at in known), 0), self._layers.shared(branch_id, old)}
            if included := included & known.keys():
                layer = layer_rows.new_layer(store, 0)
                for other in included:
                    layer_rows.put_merge(store, layer, other)
                self._replace_head(tx, branch_id, layer)
        self._trees.detach(branch_id)

    def discard(self, ref: str, *, keep: bool = True, even_bare: bool = False) -> str:
        """Delete a branch with its changes. The default branch is not deleted: it shows the bare lower again.

        Args:
            ref: The branch.
            keep: UndoLog.undo() can bring the branch back. Otherwise its layers are freed at once.
            even_bare: It can also where the branch shows the bare lower, because changes elsewhere belong to it.

        Returns:
            The name of the snapshot that keeps its state; "" for none.
        """
        row, kept = self._refs.branch(ref), ""
        with self._state.store.transaction() as tx:
            # A branch without changes of its own may hold the last copy of the state it was made from, or the last that has its
            # frozen base, unless that is the bare lower.
            base = self._state.lowers.name(row.head)
            if keep and (even_bare or base or not self._layers.is_bare(row.head)):
                kept = self._undo_log.remember(tx, row, "discard")
            if row.id == self.default_id:
                self._replace_head(tx, row.id, self._state.lowers.new_layer(0, base) if base else 0)
            else:
                self._delete(tx, self._state.branches[row.id])
        self._trees.detach(row.id)
        self._retention.drop_automatic(row.id)
        return kept

    def _replace_head(self, tx: Transaction, branch_id: str, layer: int) -> None:
        self._layers.replace_head(tx, self._state.branches[branch_id], layer)

    def _keep_merged(self, tx: Transaction, source: str, layer: int, target: str, author_pid: int, author: str) -> None:
        """Keep the merged state of a branch by a snapshot, because it is the base of the next merge of the two branches."""
        branch = self._state.branches.get(source)
        if branch is not None and all(row.layer != layer for row in self._state.snapshots.values()):
            self._snapshots.add(tx, branch, None, f"merged into {target}", author_pid, author, MERGE, layer)
