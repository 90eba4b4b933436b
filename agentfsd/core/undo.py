"""Going back: restore, undo, discard, and what is kept for that and for how long."""

import errno
import time
from collections.abc import Iterable
from dataclasses import dataclass

from agentfsd.core import policy_settings
from agentfsd.core.copyup_policy import CopyUpRules
from agentfsd.core.overlay_branches import Branches
from agentfsd.core.overlay_snapshots import MERGE, NAMED, RUN, SAFETY, TAGGED, UNNAMED, Snapshots
from agentfsd.core.tree import Tree
from agentfsd.errors import Refusal, invalid
from agentfsd.metadata import layer_rows
from agentfsd.metadata.row_store import Store, Transaction
from agentfsd.metadata.rows import BranchRow, SnapshotRow
from agentfsd.types import Backstore, Lower, SnapshotInfo

_AUTOMATIC = (RUN, SAFETY, MERGE)


@dataclass(frozen=True, slots=True)
class Retention:
    """Which snapshots are kept. Source: SnapshotRetentionPolicy of the tool operations specification.

    ``max_count``: of each branch, the newest; ``max_age_s``; 0 for no limit. ``keep_named``: those with a name that somebody gave
    them stay, and do not count; ``keep_tagged``: those with a tag, too. What is KEPT or TEMPORARY always stays.
    """

    max_count: int = 0
    max_age_s: float = 0
    keep_tagged: bool = False
    keep_named: bool = True

    @property
    def kinds(self) -> tuple[str, ...]:
        """Those of snapshots that may go."""
        return (UNNAMED, *_AUTOMATIC, *([] if self.keep_tagged else [TAGGED]), *([] if self.keep_named else [NAMED]))


@dataclass(frozen=True, slots=True)
class UndoEntry:
    """Something that replaced a branch's state. ``snapshot`` is the one that holds what was before."""

    kind: str
    branch: str
    branch_id: str
    snapshot: str


class Past(Snapshots, Branches):
    """Everything that puts another state in place of a branch's own; what was there is kept for undo()."""

    kept_undo_entries = 20
    kept_automatic = Retention(max_count=100)

    def __init__(self, store: Store, lower: Lower, backstore: Backstore) -> None:
        super().__init__(store, lower, backstore)
        self.drop_temporary(list(self._temporary))  # whoever made them has no conversation with us any more

    # -- the policy

    @property
    def retention(self) -> Retention:
        found = policy_settings.read(self.store)
        count, age = int(found["retention.max_count"]), policy_settings.parse_age(found["retention.max_age"])
        return Retention(count, age, found["retention.keep_tagged"] == "yes", found["retention.keep_named"] == "yes")

    def policy(self) -> dict[str, str]:
        """Every setting by name."""
        return policy_settings.read(self.store)

    def set_policy(self, name: str, value: str) -> None:
        """Refusal for an unknown name or a value that makes no sense."""
        with self.store.transaction() as tx:
            self.put_policy(tx, name, value)

    def put_policy(self, tx: Transaction, name: str, value: str) -> None:
        """Likewise, with what else the transaction changes."""
        policy_settings.write(self.store, name, value)
        tx.set(self.parts.copyup_policy, rules=CopyUpRules.stored(self.store))

    # -- replacing a state

    def restore(self, branch_ref: str, ref: str, author_pid: int = 0, author: str = "") -> None:
        """Puts a branch back to a snapshot (or to another branch's state now). Open files keep what they had. O(1)."""
        found, branch = self.find(ref), self.branch_row(branch_ref)
        if found.id == branch.id:
            raise invalid(f"{branch.name!r} is that state already", "name a snapshot, or another branch")
        with self.store.transaction() as tx:
            self._remember(tx, branch, "restore", author_pid, author)
            self._put_in_place(tx, branch.id, self._sealed_layer(tx, self.find(found.id)))
        self._detach(branch.id)
        self._drop_old(branch.id)

    def take_over(
        self, branch_id: str, made: Tree, seen: int, kind: str, merged: Iterable[tuple[str, int]] = (), author_pid: int = 0,
        author: str = "",
    ) -> bool:  # fmt: skip
        """Puts what was made in a scratch tree in place of a branch's state, which was sealed as layer *seen*.

        False, and nothing has changed, when the branch has moved on since. *merged*: (branch or snapshot id, its sealed layer).
        """
        branch, merged = self.branch_row(branch_id), list(merged)
        if not self.is_still(branch_id, seen):
            return False
        with self.store.transaction() as tx:
            self._remember(tx, branch, kind, author_pid, author)
            self._put_in_place(tx, branch_id, made.head)
            for source, layer in merged:
                if made.head != layer:
                    layer_rows.put_merge(self.store, made.head, layer)
                self._keep_merged(tx, source, layer, branch.name, author_pid, author)
            if merged:
                self._add_snapshot(tx, self._branches[branch_id], None, "after merge", author_pid, author, MERGE)
        self._detach(branch_id, carry=True)
        self._drop_old(branch_id)
        return True

    def is_still(self, branch_id: str, seen: int) -> bool:
        """Whether a branch is what it was when its state was sealed as layer *seen*."""
        head = self._branches[branch_id].head
        return layer_rows.parents(self.store).get(head) == seen and layer_rows.is_empty(self.store, head)

    def become_bare(self, branch_id: str) -> None:
        """After a commit: the branch is the lower as it is now. Merges of what was branched off before still start from there."""
        with self.store.transaction() as tx:
            old, merges = layer_rows.chain(self.store, self._branches[branch_id].head), layer_rows.merges(self.store)
            self._put_in_place(tx, branch_id, 0)
            known = layer_rows.parents(self.store)
            included = {other for layer in old for other in merges.get(layer, ())} | {next((at for at in old if at in known), 0)}
            if included := included & known.keys():
                layer = layer_rows.new_layer(self.store, 0)
                for other in included:
                    layer_rows.put_merge(self.store, layer, other)
                self._put_in_place(tx, branch_id, layer)
        self._detach(branch_id)

    def _keep_merged(self, tx: Transaction, source: str, layer: int, target: str, author_pid: int, author: str) -> None:
        """A state that was merged stays known: it is the base of the next merge of the two."""
        branch = self._branches.get(source)
        if branch is not None and all(row.layer != layer for row in self._snapshots.values()):
            self._add_snapshot(tx, branch, None, f"merged into {target}", author_pid, author, MERGE, layer)

    def _put_in_place(self, tx: Transaction, branch_id: str, layer: int) -> None:
        self._replace_head(tx, self._branches[branch_id], layer)

    def _remember(self, tx: Transaction, branch: BranchRow, kind: str, author_pid: int = 0, author: str = "") -> None:
        """Keeps a branch's state as it is, before it is replaced."""
        layer = self._sealed_layer(tx, branch)
        kept = next((row for row in self._snapshots.values() if row.layer == layer and row.branch_id == branch.id), None)
        if kept is None:
            now = self._branches[branch.id]
            kept = self._add_snapshot(tx, now, None, f"before {kind}", author_pid, author, SAFETY, layer)
        entry = layer_rows.put_undo_entry(self.store, kind, branch, kept.id)
        tx.put(self._undo_entries, entry.id, entry)

    def discard(self, ref: str, *, keep: bool = True) -> None:
        """Throws a branch away with what it holds; the default branch becomes the bare lower again.

        With *keep* undo() brings it back; else its room is free at once.
        """
        row = self.branch_row(ref)
        with self.store.transaction() as tx:
            if keep and not self._is_bare(row.head):  # a branch of a branch holds what that was, which may be gone by now
                self._remember(tx, row, "discard")
            if row.id == self.default_id:
                self._put_in_place(tx, row.id, 0)
            else:
                self._delete_branch(tx, self._branches[row.id])
        self._detach(row.id)
        self._drop_old(row.id)

    # -- undo

    def undo_entries(self) -> list[UndoEntry]:
        """What can be undone, the last first."""
        rows = sorted(self._undo_entries.values(), reverse=True)
        return [UndoEntry(row.kind, row.branch.name, row.branch_id, self._snapshots[row.snapshot].name) for row in rows]

    def undo(self, author_pid: int = 0, author: str = "") -> UndoEntry:
        """Takes back the last restore, merge or discard that was not taken back yet. What was done since is in a snapshot."""
        if not self._undo_entries:
            raise Refusal(errno.ENOENT, "nothing-to-undo", "there is no restore, merge or discard that could be undone")
        row = max(self._undo_entries.values())
        snapshot = self._snapshots[row.snapshot]
        branch = self._branches.get(row.branch_id)
        if branch is None and row.kind != "discard":
            raise Refusal(
                errno.ENOENT, "no-such-branch", f"branch {row.branch.name!r}, whose {row.kind} would be undone, is gone",
                f"`agentfsd branch create NAME --from {snapshot.name}` makes a branch of what it was",
            )  # fmt: skip
        with self.store.transaction() as tx:
            if branch is None:
                self._bring_back(tx, row.branch, snapshot)
            else:
                if not self.holds_nothing(branch):
                    self._add_snapshot(tx, branch, None, f"before undo of {row.kind}", author_pid, author, SAFETY)
                self._put_in_place(tx, branch.id, snapshot.layer)
            self._forget_undo_entry(tx, row)  # not before: until then it holds what the branch was made from
        self._detach(row.branch_id)
        return UndoEntry(row.kind, row.branch.name, row.branch_id, snapshot.name)

    def _bring_back(self, tx: Transaction, old: BranchRow, snapshot: SnapshotRow) -> None:
        if self._branch_named(old.name) is not None:
            raise Refusal(
                errno.EEXIST, "branch-exists", f"there is another branch named {old.name!r} now",
                f"rename that one first: agentfsd branch rename {old.name} OTHER",
            )  # fmt: skip
        row = old._replace(head=layer_rows.new_layer(self.store, snapshot.layer))
        layer_rows.put_branch(self.store, row)
        tx.put(self._branches, row.id, row)

    # -- how long things are kept

    def prune(self, retention: Retention, branch: str | None = None, *, dry_run: bool = False) -> list[SnapshotInfo]:
        """Deletes what *retention* does not keep, of one branch or all; those that are (or would be) deleted."""
        branch_id = None if branch is None else self.branch_row(branch).id
        rows = [row for row in self._snapshots.values() if branch_id in (None, row.branch_id) and row.id not in self._temporary]
        found = _superfluous(rows, retention, retention.kinds)
        infos = [self.count_snapshot(row.id) for row in found]
        if not dry_run:
            self._delete_snapshots(found)
        return infos

    def _drop_old(self, branch_id: str) -> None:
        """After something was kept: what is older than anybody would want goes."""
        rows = [row for row in self._snapshots.values() if row.branch_id == branch_id]
        old = {row.id: row for row in _superfluous(rows, self.kept_automatic, _AUTOMATIC)}
        entries = sorted(self._undo_entries.values())
        wanted = {entry.snapshot for entry in entries[-self.kept_undo_entries :]}
        for entry in entries[: -self.kept_undo_entries]:
            row = self._snapshots[entry.snapshot]
            if row.kind == SAFETY and row.id not in wanted:
                old[row.id] = row
        self._delete_snapshots(old.values())

    def apply_retention(self, branch_id: str) -> None:
        """After a snapshot was taken: deletes those of the branch that the policy does not keep."""
        self._drop_old(branch_id)
        policy = self.retention
        if policy.max_count or policy.max_age_s:
            self.prune(policy, branch_id)

    def drop_temporary(self, ids: Iterable[str]) -> list[BranchRow | SnapshotRow]:
        """Removes those of *ids* that are still there for the time being; what went. Nothing of it can be undone."""
        dropped: list[BranchRow | SnapshotRow] = []
        for number in sorted(self._temporary.keys() & set(ids), reverse=True):
            row = self._branches.get(number) or self._snapshots.get(number)
            if isinstance(row, BranchRow):
                self.discard(number, keep=False)
            elif row is not None:
                self.delete_snapshot(number)
            dropped += [] if row is None else [row]
        return dropped

    def keep_temporary(self, ids: Iterable[str]) -> None:
        """They stay, as if they had been made so."""
        with self.store.transaction() as tx:
            self._unmark_temporary(tx, *ids)

    def forget_undo(self) -> None:
        """Frees what is kept for undo() alone; nothing can be undone any more."""
        kept = [row for row in self._snapshots.values() if row.kind == SAFETY]
        for entry in list(self._undo_entries.values()):
            with self.store.transaction() as tx:
                self._forget_undo_entry(tx, entry)
        self._delete_snapshots(kept)

    def _delete_snapshots(self, rows: Iterable[SnapshotRow]) -> None:
        for row in list(rows):
            with self.store.transaction() as tx:
                self._delete_snapshot(tx, row)
            self._detach(row.id)


def _superfluous(rows: Iterable[SnapshotRow], retention: Retention, kinds: Iterable[str]) -> list[SnapshotRow]:
    """Oldest first."""
    oldest_ns = time.time_ns() - int(retention.max_age_s * 1e9) if retention.max_age_s else 0
    counts: dict[str, int] = {}
    found = []
    for row in sorted(rows, reverse=True):
        if row.kind not in kinds:
            continue
        counts[row.branch_id] = counts.get(row.branch_id, 0) + 1
        if row.created_ns < oldest_ns or (retention.max_count and counts[row.branch_id] > retention.max_count):
            found.append(row)
    return found[::-1]
