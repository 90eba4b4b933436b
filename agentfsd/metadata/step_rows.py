"""The queries of the steps of agents' sessions."""

from agentfsd.metadata.row_store import Store
from agentfsd.metadata.rows import StepRow

_COLUMNS = ", ".join(StepRow._fields)
_INSERT = f"INSERT INTO step ({_COLUMNS}) VALUES ({', '.join('?' * len(StepRow._fields))})"


def read(store: Store) -> list[StepRow]:
    """Return every step, oldest first."""
    return list(map(StepRow._make, store.db.execute(f"SELECT {_COLUMNS} FROM step ORDER BY id")))


def put(store: Store, row: StepRow) -> None:
    """Store a new step, in the open transaction."""
    store.db.execute(_INSERT, row)


def delete(store: Store, step_id: int) -> None:
    """Delete a step, in the open transaction."""
    store.db.execute("DELETE FROM step WHERE id = ?", (step_id,))
