"""The steps of agents' sessions: before each prompt and each call of a tool, a snapshot of the branch, if it has changed since.

A session is known by its harness's name for it. It may have steps in several branches. Nothing of it is kept in the workspace.

A session that is resumed goes on in its *home*: the branch of its first step, or of the last one that was made outside every
branch. An agent that knows the name of another session can make steps of that name in its own branch, but not move its home.
"""

import errno
import time

from agentfsd.core.layer_lifecycle import Layers
from agentfsd.core.overlay_snapshots import STEP, Snapshots
from agentfsd.core.overlay_state import OverlayState
from agentfsd.core.refs import Refs
from agentfsd.domain_errors import Refusal
from agentfsd.metadata import step_rows
from agentfsd.metadata.rows import BranchRow, SnapshotRow, StepRow
from agentfsd.types import StepSummary

_CALLS_OF_ONE_STATE = 64  # steps that are kept of calls in one turn between which nothing changed
_STEPS_OF_ONE_STATE = 500  # of all sessions and turns
_TWICE_NS = 2_000_000_000  # within which a harness that has the hooks twice has told an event twice
_RESTORE = "restore"  # the kind of such an operation in the undo log


class SessionSteps:
    """The steps of all sessions of one overlay."""

    def __init__(self, state: OverlayState, refs: Refs, layers: Layers, snapshots: Snapshots) -> None:
        self._state, self._refs, self._layers, self._snapshots = state, refs, layers, snapshots

    def take(
        self, branch_ref: str, session: str, *, is_prompt: bool, agent: str = "", key: str = "", title: str = "",
        author_pid: int = 0, author: str = "", is_bound: bool = False,
    ) -> tuple[StepSummary, bool]:  # fmt: skip
        """Note a step of a session, with the branch's newest snapshot, or a new one if the branch has changed since that.

        Args:
            branch_ref: The branch.
            session: The harness's name for the session.
            is_prompt: A new turn begins; else a tool is called.
            agent: The harness.
            key: The harness's name for the prompt or the call.
            title: What is asked, in a few words.
            author_pid: The process that asks; 0 for unknown.
            author: The command of that process.
            is_bound: That process is bound to the branch.

        Returns:
            The step, and whether its snapshot is new. An event that is told twice at once, as nothing changed, is one step.

        Raises:
            Refusal: As Refs.branch().
        """
        branch = self._refs.branch(branch_ref)
        last = self._last(session)
        turn, call = _place_after(last, is_prompt=is_prompt)
        restores = self._last_restore(branch)
        replaced = self._was_replaced(session, branch, restores)
        tag = f"turn {turn}" if is_prompt else f"turn {turn}, call {call}"
        with self._state.store.transaction() as tx:
            layer = self._layers.seal(tx, branch)
            snapshot = self._newest_of(branch, layer)
            is_new = snapshot is None
            state = (snapshot.id, restores) if snapshot is not None else None  # a snapshot is of one branch
            if last is not None and state == (last.snapshot, last.restores) and _is_told_again(last, is_prompt, key):
                return self._described(last), False
            if snapshot is None:
                now = self._state.branches[branch.id]
                snapshot = self._snapshots.add(tx, now, None, tag, author_pid, author, STEP, layer)
            row = StepRow(
                self._state.store.next_id("step"), session, agent, branch.id, turn, call, key, title, time.time_ns(),
                snapshot.id, restores, int(replaced), self._home(branch, last, is_bound=is_bound),
            )  # fmt: skip
            for old in self._surplus(row):
                self._snapshots.forget_step(tx, old)
            step_rows.put(self._state.store, row)
            tx.put(self._state.steps, row.id, row)
        return self._described(row), is_new

    def _home(self, branch: BranchRow, last: StepRow | None, *, is_bound: bool) -> str:
        """Return the id of the branch in which a session goes on after a step in *branch*. *last*: its step before.

        If its home is gone, and it has got a new branch since its last step, that one is its home.
        """
        if last is None or not is_bound:
            return branch.id
        is_successor = last.home not in self._state.branches and branch.created_ns > last.created_ns
        return branch.id if is_successor else last.home

    def _last(self, session: str) -> StepRow | None:
        return next((row for row in reversed(self._state.steps.values()) if row.session == session), None)

    def _newest_of(self, branch: BranchRow, layer: int) -> SnapshotRow | None:
        """Return the newest snapshot that was taken for a step and holds the state of a sealed layer of the branch.

        Others have rules of their own for how long they stay: an agent may delete those that it took itself.
        """
        rows = (row for row in self._state.snapshots.values() if row.layer == layer and row.branch_id == branch.id)
        return max((row for row in rows if row.kind == STEP), default=None)

    def _last_restore(self, branch: BranchRow) -> int:
        rows = self._state.undo_rows.values()
        return max((row.id for row in rows if row.branch_id == branch.id and row.kind == _RESTORE), default=0)

    def _was_replaced(self, session: str, branch: BranchRow, restores: int) -> bool:
        """Return whether the branch's files were restored, or a restore undone, since the session's last step."""
        own = (row for row in reversed(self._state.steps.values()) if row.session == session and row.branch_id == branch.id)
        last = next(own, None)
        if last is None or restores == last.restores:
            return False
        if restores > last.restores:
            return True
        oldest = min(self._state.undo_rows, default=0)
        return not oldest or oldest <= last.restores  # else that entry of the log is gone because it was old

    def _surplus(self, row: StepRow) -> list[StepRow]:
        """Return the oldest steps of the same state that are too many with a new one."""
        same = [old for old in self._state.steps.values() if old.snapshot == row.snapshot]
        calls = [old for old in same if old.session == row.session and old.turn == row.turn and old.call and row.call]
        return calls[: max(0, len(calls) + 1 - _CALLS_OF_ONE_STATE)] or same[: max(0, len(same) + 1 - _STEPS_OF_ONE_STATE)]

    # -- looking

    def all(self, branch_id: str | None = None, session: str = "") -> list[StepSummary]:
        """Describe the steps, oldest first: of one branch, and of one session, if those are given."""
        return [
            self._described(row)
            for row in self._state.steps.values()
            if branch_id in (None, row.branch_id) and session in ("", row.session)
        ]

    def find(self, branch_id: str, session: str, key: str) -> tuple[StepSummary, bool]:
        """Find the step before a call of a tool.

        Args:
            branch_id: The branch in which the session is.
            session: The session.
            key: The harness's name for the call. If no step has it, the session's last step counts.

        Returns:
            The step; and whether the branch's files were restored, or a restore undone, since the step before it.

        Raises:
            Refusal: ``no-such-step`` if the session has none in that branch.
        """
        rows = [row for row in self._state.steps.values() if row.branch_id == branch_id and row.session == session]
        with_key = [row for row in rows if row.key == key] if key else []
        if not rows:
            raise Refusal(
                errno.ENOENT,
                "no-such-step",
                f"session {session!r} has no step in that branch",
                "`agentfsd rewind --list` shows them",
            )
        found, branch = (with_key or rows)[-1], self._refs.branch(branch_id)
        return self._described(found), bool(found.replaced) or self._was_replaced(session, branch, self._last_restore(branch))

    def _described(self, row: StepRow) -> StepSummary:
        snapshot = self._state.snapshots[row.snapshot]
        branch = self._state.branches.get(row.branch_id)
        return StepSummary(
            row.id, row.session, row.agent, branch.name if branch is not None else snapshot.branch, row.branch_id, row.turn,
            row.call, row.key, row.title, row.created_ns, snapshot.name, snapshot.id, bool(row.replaced), row.home,
        )  # fmt: skip


def _place_after(last: StepRow | None, *, is_prompt: bool) -> tuple[int, int]:
    """Return the turn and the call of a session's next step."""
    if is_prompt:
        return (last.turn + 1 if last is not None else 1), 0
    return (last.turn, last.call + 1) if last is not None else (0, 1)


def _is_told_again(last: StepRow, is_prompt: bool, key: str) -> bool:
    """Return whether an event is that of the last step once more. A prompt or a call without a name is always new."""
    is_same = bool(key) and key == last.key and is_prompt == (not last.call)
    return is_same and abs(time.time_ns() - last.created_ns) < _TWICE_NS
