"""Making, listing, renaming and deleting branches."""

import errno
from collections.abc import Generator, Iterator

from agentfsd.core.ids import check_name
from agentfsd.core.refs import Refs
from agentfsd.errors import Refusal
from agentfsd.metadata import layer_rows
from agentfsd.metadata.row_store import Transaction
from agentfsd.metadata.rows import BranchRow
from agentfsd.types import DEFAULT_BRANCH, BranchInfo


class Branches(Refs):
    """What can be done with branches as such."""

    def create_branch(self, name: str, source: str | None = None, *, temporary: bool = False) -> BranchInfo:
        """A new branch of a snapshot or of another branch's state now (None: the default branch's). O(1).

        *temporary*: until it is renamed, see drop_temporary().
        """
        check_name("branch", name)
        if self._branch_named(name) is not None:
            raise Refusal(errno.EEXIST, "branch-exists", f"there is a branch named {name!r} already", "choose another name")
        origin = self.find(source if source is not None else DEFAULT_BRANCH)
        made_from = origin.id if isinstance(origin, BranchRow) else origin.branch_id
        with self.store.transaction() as tx:
            layer = self._sealed_layer(tx, origin)
            row = self._add_branch(tx, name, "" if self._is_bare(layer) else origin.name, layer, made_from)
            self._mark_temporary(tx, [row.id] if temporary else [])
        return self._branch_info(row)

    def list_branches(self) -> list[BranchInfo]:
        return [self._branch_info(row) for row in sorted(self._branches.values())]

    def branch_info(self, ref: str) -> BranchInfo:
        return self._branch_info(self.branch_row(ref))

    def _branch_info(self, row: BranchRow) -> BranchInfo:
        return self._described(row, sum(self._counting_changes(row)))

    def _described(self, row: BranchRow, changed: int) -> BranchInfo:
        last = next(iter(self._history(row.head, row.id, row.base_id)), None)
        return BranchInfo(row.name, row.id, row.base, row.created_ns, changed, last.id if last else "")

    def describing(self) -> Generator[tuple[int, int, str], None, list[BranchInfo]]:
        """Every branch that there still is at the end; some changes are counted at each step."""
        found: list[BranchInfo] = []
        for row in sorted(self._branches.values()):
            changed = 0
            for count in self._counting_changes(row):
                changed += count
                yield len(found), len(self._branches), "branches"
            if row.id in self._branches:
                found.append(self._described(self._branches[row.id], changed))
        return found

    def _own_layers(self, row: BranchRow) -> list[int]:
        """The layers of a branch since what it was made from."""
        base = set(layer_rows.chain(self.store, row.base_layer))
        return [layer for layer in layer_rows.chain(self.store, row.head) if layer not in base]

    def _counting_changes(self, row: BranchRow) -> Iterator[int]:
        """To be added up."""
        own = self._own_layers(row)
        yield from layer_rows.counting_entries(self.store, own)
        yield from (-len(copies) for copies in self._copies(own))

    def rename_branch(self, ref: str, new_name: str) -> BranchInfo:
        row = self.branch_row(ref)
        check_name("branch", new_name)
        if row.id == self.default_id:
            raise Refusal(errno.EPERM, "default-branch", f"{DEFAULT_BRANCH!r} cannot be renamed")
        with self.store.transaction() as tx:
            layer_rows.rename_branch(self.store, row.id, new_name)
            self._unmark_temporary(tx, row.id)
        self._branches[row.id] = row._replace(name=new_name)
        return self._branch_info(self._branches[row.id])

    def delete_branch(self, ref: str) -> None:
        """Removes a branch that holds no changes."""
        row = self.branch_row(ref)
        if row.id == self.default_id:
            raise Refusal(errno.EPERM, "default-branch", f"{DEFAULT_BRANCH!r} cannot be deleted", "discard empties it")
        if not self.holds_nothing(row):
            raise Refusal(
                errno.EBUSY,
                "branch-has-changes",
                f"branch {row.name!r} holds changes",
                f"`agentfsd discard {row.name}` throws them away with the branch",
            )
        with self.store.transaction() as tx:
            self._delete_branch(tx, row)
        self._detach(row.id)

    def holds_nothing(self, row: BranchRow) -> bool:
        """Whether a branch is still what it was made from."""
        return all(layer_rows.is_empty(self.store, layer) for layer in self._own_layers(row))

    def _is_bare(self, layer: int) -> bool:
        """Whether a state is the lower's."""
        return all(layer_rows.is_empty(self.store, number) for number in layer_rows.chain(self.store, layer))

    def _delete_branch(self, tx: Transaction, row: BranchRow) -> None:
        """Call _detach() after the commit."""
        layer_rows.delete_branch(self.store, row.id)
        tx.put(self._branches, row.id, None)
        self._unmark_temporary(tx, row.id)
        self._let_go(tx, row.head, row.base_layer)

    def parent_of(self, ref: str) -> BranchRow | None:
        """The branch that one was made from; None for the lower."""
        row = self.branch_row(ref)
        if not row.base:
            return None
        parent = self._branches.get(row.base_id)
        if parent is None:
            raise Refusal(
                errno.ENOENT, "no-parent", f"{row.base!r}, which branch {row.name!r} was made from, is gone",
                f"merge it into another one: agentfsd merge {row.name} BRANCH",
            )  # fmt: skip
        return parent
