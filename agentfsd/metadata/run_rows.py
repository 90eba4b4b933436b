"""The queries of the commands that were run in branches."""

from agentfsd.metadata.row_store import Store
from agentfsd.metadata.rows import RunRow

_COLUMNS = ", ".join(RunRow._fields)
_INSERT = f"INSERT INTO run ({_COLUMNS}) VALUES ({', '.join('?' * len(RunRow._fields))})"
_OLD = "DELETE FROM run WHERE branch_id = ? AND id NOT IN (SELECT id FROM run WHERE branch_id = ? ORDER BY id DESC LIMIT ?)"
_OF_NOBODY = """
DELETE FROM run WHERE branch_id NOT IN (SELECT id FROM branch) AND branch_id NOT IN (SELECT branch_id FROM deed)
"""

_LAST = "id IN (SELECT max(id) FROM run GROUP BY branch_id)"
_EACH = "id IN (SELECT max(id) FROM run GROUP BY branch_id, command)"


def read(
    store: Store, branch_id: str | None = None, *, last_only: bool = False, each_command: bool = False
) -> list[RunRow]:  # fmt: skip
    """Return the runs of one branch, or of all (None), oldest first.

    *last_only*: of each branch only the last. *each_command*: of each branch the last of each command.
    """
    values = () if branch_id is None else (branch_id,)
    conditions = ["branch_id = ?"] * len(values) + [_LAST] * last_only + [_EACH] * each_command
    which = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    return list(map(RunRow._make, store.db.execute(f"SELECT {_COLUMNS} FROM run {which} ORDER BY id", values)))


def put(store: Store, row: RunRow, keep: int) -> None:
    """Store a new run, in the open transaction. The branch keeps its last *keep*; runs of branches that are gone for good go."""
    store.db.execute(_INSERT, row)
    store.db.execute(_OLD, (row.branch_id, row.branch_id, keep))
    store.db.execute(_OF_NOBODY)
