"""Finds branches and snapshots by name, id, or a unique prefix of an id."""

import difflib
import errno
from collections.abc import Iterable
from typing import TypeVar

from agentfsd.core.ids import MIN_PREFIX
from agentfsd.core.overlay_state import OverlayState
from agentfsd.domain_errors import Refusal, not_found
from agentfsd.metadata.rows import BranchRow, SnapshotRow


class Refs:
    """The names of one overlay's branches and snapshots."""

    def __init__(self, state: OverlayState) -> None:
        self._state = state

    def branch_named(self, name: str) -> BranchRow | None:
        """Return the branch with exactly this name; None if there is none."""
        return next((row for row in self._state.branches.values() if row.name == name), None)

    def branch(self, ref: str) -> BranchRow:
        """Find a branch by name, id or unique prefix of its id.

        Raises:
            Refusal: ``no-such-branch``; ``ambiguous`` if several ids begin with *ref*.
        """
        row = self.branch_named(ref) or _by_id(self._state.branches, ref)
        if row is None:
            raise not_found("branch", ref, "`agentfsd branch list` shows them")
        return row

    def snapshot(self, ref: str) -> SnapshotRow:
        """Find a snapshot by name, id or unique prefix of its id.

        Raises:
            Refusal: ``no-such-snapshot``; ``ambiguous`` if several ids begin with *ref*.
        """
        rows = self._state.snapshots
        snapshot = next((row for row in rows.values() if row.name == ref), None) or _by_id(rows, ref)
        if snapshot is None:
            raise not_found("snapshot", ref, "`agentfsd snapshot list` shows them")
        return snapshot

    def find(self, ref: str) -> BranchRow | SnapshotRow:
        """Find the branch or snapshot that a ref names. If both match, the branch is returned.

        Raises:
            Refusal: ``no-such-branch or snapshot``; ``ambiguous`` if several ids of one kind begin with *ref*.
        """
        try:
            return self.branch(ref)
        except Refusal as exc:
            if exc.code == "ambiguous":
                raise
        try:
            return self.snapshot(ref)
        except Refusal as exc:
            if exc.code == "ambiguous":
                raise
        raise not_found("branch or snapshot", ref, "`agentfsd branch list` and `agentfsd snapshot list` show them")

    def resolve(self, ref: str) -> tuple[str, str]:
        """Return the kind ("branch" or "snapshot") and id of what a ref names; Refusal as find()."""
        row = self.find(ref)
        return ("branch" if isinstance(row, BranchRow) else "snapshot"), row.id

    def exists(self, ref_id: str) -> bool:
        """Return whether a branch or snapshot has this id."""
        return ref_id in self._state.branches or ref_id in self._state.snapshots

    def like(self, ref: str) -> str:
        """Return the name of a branch or snapshot that somebody may have meant by *ref*; "" if none is like it."""
        names = [name for branches in (True, False) for name, _ in self.names(branches=branches)]
        return next(iter(difflib.get_close_matches(ref, names, 1)), "")

    def names(self, *, branches: bool) -> list[tuple[str, str]]:
        """Return (name, id) of every branch, or of every snapshot if *branches* is false, in order of creation."""
        rows: Iterable[BranchRow | SnapshotRow] = (self._state.branches if branches else self._state.snapshots).values()
        return sorted(((row.name, row.id) for row in rows), key=lambda pair: pair[1])


_Row = TypeVar("_Row", BranchRow, SnapshotRow)


def _by_id(rows: dict[str, _Row], ref: str) -> _Row | None:
    """Find a row by id, or by a prefix of at least MIN_PREFIX characters that only one id begins with.

    Raises:
        Refusal: ``ambiguous`` if several ids begin with *ref*.
    """
    if ref in rows:
        return rows[ref]
    if len(ref) < MIN_PREFIX:
        return None
    matching = [row for ref_id, row in rows.items() if ref_id.startswith(ref.upper())]
    if len(matching) > 1:
        raise Refusal(errno.EINVAL, "ambiguous", f"{ref!r} could be {len(matching)} of them", "give more of the id")
    return matching[0] if matching else None
