"""The turns of agents' sessions, as `agentfsd rewind` shows them and goes back to them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from agentfs_client import wire
from agentfs_client.control import ControlClient
from agentfs_client.errors import NotFoundError
from agentfsd.cli.command_base import Failure
from agentfsd.cli.output import printing

_STATUSES = {"D": "deleted", "M": "modified", "A": "added", "R": "renamed"}


@dataclass(frozen=True, slots=True)
class SteppedSession:
    """A session with its steps, oldest first."""

    name: str
    steps: tuple[wire.SessionStep, ...]

    @property
    def last(self) -> wire.SessionStep:
        """The session's last step."""
        return self.steps[-1]

    @property
    def prompts(self) -> list[wire.SessionStep]:
        """The steps at which a turn begins."""
        return [step for step in self.steps if not step.call]

    def at(self, place: str) -> wire.SessionStep:
        """Return the step before a turn ("3") or before a call of a turn ("3.2").

        Raises:
            Failure: There is none.
        """
        turn, _, call = place.partition(".")
        for step in self.steps:
            if (str(step.turn), str(step.call)) == (turn, call or "0"):
                return step
        kept = [str(step.turn) for step in self.prompts]
        hint = f"there are turns {kept[0]} to {kept[-1]}" if kept else "`agentfsd rewind --list` shows what there is"
        raise Failure(f"session {self.name} has no turn {place}", f"{hint}; 3.2 means before the second call of turn 3")


def sessions(daemon: ControlClient) -> list[SteppedSession]:
    """Return the sessions that the caller may see, the one that was active last at the end."""
    by_name: dict[str, list[wire.SessionStep]] = {}
    for step in daemon.list_steps():
        by_name.setdefault(step.session, []).append(step)
    return sorted((SteppedSession(name, tuple(steps)) for name, steps in by_name.items()), key=lambda each: each.last.id)


def choose(found: Sequence[SteppedSession], named: str | None) -> SteppedSession:
    """Return the session whose name begins with *named*; with None the only one.

    Raises:
        Failure: There is none, or there are several.
    """
    if not found:
        raise Failure(
            "no session of an agent has a turn here", "`agentfsd agent install` has a harness take snapshots of its turns"
        )
    fitting = [each for each in found if each.name == named] or [each for each in found if each.name.startswith(named or "")]
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        raise Failure(f"there is no session {named}", "`agentfsd rewind --list` shows them")
    names = ", ".join(f"{each.name} (branch {each.last.branch})" for each in fitting[-5:])
    begin = f" that begin with {named}" if named else ""
    raise Failure(f"there are {len(fitting)} sessions{begin}", f"name one with --session: {names}")


def since(daemon: ControlClient, step: wire.SessionStep) -> Counter[str] | None:
    """Count what has changed in a branch since a step, by status. None if the branch is gone."""
    try:
        return Counter(change.status for change in daemon.changes(step.branch_id, step.snapshot_id).changes)
    except NotFoundError:
        return None


def place(daemon: ControlClient, step: wire.SessionStep) -> str:
    """Describe for people the branch of a step. Another branch may have the name of one that is gone."""
    try:
        return daemon.show_branch(step.branch_id).name
    except NotFoundError:
        return f"{step.branch}, which is gone"


def counted(counts: Counter[str] | None) -> str:
    """Describe counts for people; None: there is no branch to count in."""
    if counts is None:
        return "its branch is gone"
    if not counts:
        return "nothing"
    parts = [f"{counts[status]} {word}" for status, word in _STATUSES.items() if counts[status]]
    other = sum(number for status, number in counts.items() if status not in _STATUSES)
    return ", ".join([*parts, *([f"{printing.plural(other, 'attribute')}"] if other else [])])
