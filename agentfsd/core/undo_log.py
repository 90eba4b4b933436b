"""The undo log: a snapshot keeps each state of a branch that a restore, merge, commit or discard has replaced."""

import errno
from dataclasses import dataclass

from agentfsd.core.layer_lifecycle import Layers
from agentfsd.core.open_trees import OpenTrees
from agentfsd.core.overlay_snapshots import SAFETY, Snapshots
from agentfsd.core.overlay_state import OverlayState
from agentfsd.core.refs import Refs
from agentfsd.domain_errors import Refusal
from agentfsd.metadata import layer_rows
from agentfsd.metadata.rows import BranchRow, SnapshotRow, UndoRow
from agentfsd.metadata.transaction import Transaction

_LAST_COMMIT = "last commit into the lower"  # the key of: the last undoable operation before it, and the branch

_WHAT_CAN_BE_UNDONE = "a restore, merge, discard, or commit into a branch can be undone; a commit into the real directory cannot"


@dataclass(frozen=True, slots=True)
class UndoStep:
    """An operation that replaced a branch's state.

    Attributes:
        kind: restore, merge, commit or discard.
        branch: Name that the branch had at that time.
        branch_id: Id of the branch.
        snapshot: Name of the snapshot that keeps the state before the operation.
        committed: Name of a branch that was committed into the lower later; "" if none was. Undoing does not change the lower.
    """

    kind: str
    branch: str
    branch_id: str
    snapshot: str
    committed: str = ""


class UndoLog:
    """The operations that can be undone in one overlay."""

    def __init__(self, state: OverlayState, refs: Refs, layers: Layers, trees: OpenTrees, snapshots: Snapshots) -> None:
        self._state, self._refs, self._layers, self._trees, self._snapshots = state, refs, layers, trees, snapshots

    def entries(self) -> list[UndoStep]:
        """Return the operations that can be undone, the last first."""
        rows = sorted(self._state.undo_rows.values(), reverse=True)
        return [self._step(row) for row in rows]

    def _step(self, row: UndoRow) -> UndoStep:
        last, _, committed = self._state.store.value(_LAST_COMMIT).partition(" ")
        later = committed if last and row.id <= int(last) else ""
        return UndoStep(row.kind, row.branch.name, row.branch_id, self._state.snapshots[row.snapshot].name, later)

    def note_commit(self, branch: str) -> None:
        """Note that *branch* was committed into the lower, which cannot be undone."""
        last = max((row.id for row in self._state.undo_rows.values()), default=0)
        with self._state.store.transaction():
            self._state.store.put_value(_LAST_COMMIT, f"{last} {branch}")

    def remember(self, tx: Transaction, branch: BranchRow, kind: str, author_pid: int = 0, author: str = "") -> str:
        """Keep a branch's state in a snapshot and log *kind* as undoable, in the transaction that replaces the state.

        Returns:
            The snapshot's name.
        """
        state = self._state
        layer = self._layers.seal(tx, branch)
        kept = next((row for row in state.snapshots.values() if row.layer == layer and row.branch_id == branch.id), None)
        if kept is None:
            now = state.branches[branch.id]
            kept = self._snapshots.add(tx, now, None, f"before {kind}", author_pid, author, SAFETY, layer)
        row = layer_rows.put_undo_entry(state.store, kind, branch, kept.id)
        tx.put(state.undo_rows, row.id, row)
        return kept.name

    def undo(self, author_pid: int = 0, author: str = "") -> UndoStep:
        """Undo the last restore, merge, commit into another branch, or discard. A snapshot keeps what was changed since.

        Raises:
            Refusal: ``nothing-to-undo``, ``no-such-branch`` when the branch is gone, ``branch-exists`` when a discarded branch's
                name is taken.
        """
        state = self._state
        if not state.undo_rows:
            raise Refusal(errno.ENOENT, "nothing-to-undo", "there is nothing to undo", _WHAT_CAN_BE_UNDONE)
        row = max(state.undo_rows.values())
        snapshot, step = state.snapshots[row.snapshot], self._step(row)
        branch = state.branches.get(row.branch_id)
        if branch is None and row.kind != "discard":
            raise Refusal(
                errno.ENOENT, "no-such-branch", f"branch {row.branch.name!r}, whose {row.kind} would be undone, is gone",
                f"`agentfsd branch create NAME --from {snapshot.name}` makes a branch of what it was",
            )  # fmt: skip
        with state.store.transaction() as tx:
            if branch is None:
                self._bring_back(tx, row.branch, snapshot)
            else:
                if not self._layers.holds_nothing(branch):
                    self._snapshots.add(tx, branch, None, f"before undo of {row.kind}", author_pid, author, SAFETY)
                self._layers.replace_head(tx, state.branches[branch.id], snapshot.layer)
                if row.kind == "rebase":
                    self._take_old_base(tx, row.branch)
            self._snapshots.forget_undo(tx, row)  # last: until then the entry keeps the layer that the branch was made from
        self._trees.detach(row.branch_id)
        return step

    def _take_old_base(self, tx: Transaction, old: BranchRow) -> None:
        """Have a branch count as made from the layer that it was made from before its rebase."""
        state, now = self._state, self._state.branches[old.id]
        layer_rows.set_base_layer(state.store, old.id, old.base_layer)
        tx.put(state.branches, old.id, now._replace(base_layer=old.base_layer))
        self._layers.release(tx, now.base_layer)

    def _bring_back(self, tx: Transaction, old: BranchRow, snapshot: SnapshotRow) -> None:
        """Create a discarded branch again, with its old name and id, from the snapshot of its state."""
        if self._refs.branch_named(old.name) is not None:
            raise Refusal(
                errno.EEXIST, "branch-exists", f"there is another branch named {old.name!r} now",
                f"rename that one first: agentfsd branch rename {old.name} OTHER",
            )  # fmt: skip
        row = old._replace(head=layer_rows.new_layer(self._state.store, snapshot.layer))
        layer_rows.put_branch(self._state.store, row)
        tx.put(self._state.branches, row.id, row)

    def forget_all(self) -> None:
        """Delete the undo log and the snapshots that exist only for it."""
        kept = [row for row in self._state.snapshots.values() if row.kind == SAFETY]
        for row in list(self._state.undo_rows.values()):
            with self._state.store.transaction() as tx:
                self._snapshots.forget_undo(tx, row)
        self._snapshots.delete_rows(kept)
