"""The commands that `agentfsd run` has run in branches: how each ended, when, and how much the branch had changed by then."""

from agentfsd.core.overlay_state import OverlayState
from agentfsd.metadata import run_rows
from agentfsd.metadata.rows import RunRow

KEPT = 100  # runs of a branch


class RecordedRuns:
    """The runs of one overlay's branches."""

    def __init__(self, state: OverlayState) -> None:
        self._state = state

    def add(self, branch_id: str, command: str, exit_code: int, started_ns: int, ended_ns: int, changed: int) -> RunRow:
        """Record a run. The arguments are those of RunRow."""
        store = self._state.store
        row = RunRow(store.next_id("run"), branch_id, command, exit_code, started_ns, ended_ns, changed)
        with store.transaction():
            run_rows.put(store, row, KEPT)
        return row

    def of(self, branch_id: str | None = None, *, last_only: bool = False, each_command: bool = False) -> list[RunRow]:
        """Return the runs of a branch, or of all (None), oldest first. The arguments are those of run_rows.read()."""
        return run_rows.read(self._state.store, branch_id, last_only=last_only, each_command=each_command)
