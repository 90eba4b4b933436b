"""The table of all branches: its rows, their order and the filter. It knows no terminal."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from agentfs_client import wire
from agentfs_client.control import ControlClient
from agentfs_client.errors import AgentFSError
from agentfsd.cli import compared_branches
from agentfsd.cli.output import run_lines
from agentfsd.control import status_text
from agentfsd.escape import printable
from agentfsd.review import branch_runs, branch_words

ORDERS = ("newest", "last change", "name", "result")
_COMMANDS = 2  # that are named of a branch
_UNKNOWN = (-1, -1)


@dataclass(frozen=True, slots=True)
class BoardRow:
    """A branch of the table.

    Attributes:
        lines: Added and removed lines; None while they are being counted.
        run: The last run of tests in it, or else the command that was run last.
        alive: The processes in it, for people; "" for none.
    """

    branch: wire.Branch
    lines: tuple[int, int] | None = None
    run: wire.RecordedRun | None = None
    alive: str = ""

    @property
    def has_passed(self) -> bool:
        return self.run is not None and self.run.exit_code == 0

    @property
    def changes(self) -> str:
        return f"{'' if self.branch.counted else '~'}{self.branch.changed}"

    @property
    def counts(self) -> str:
        if self.lines is None:
            return "..."
        return "?" if self.lines == _UNKNOWN else f"+{self.lines[0]} -{self.lines[1]}"

    @property
    def command(self) -> str:
        return printable(" ".join(branch_runs.inner_command(self.run.command).split())) if self.run is not None else ""

    @property
    def ended(self) -> str:
        return run_lines.status(self.run) if self.run is not None else ""

    @property
    def note(self) -> str:
        """What else is to be known, the most urgent first."""
        branch = self.branch
        left = f"{status_text.plural(branch.undecided, 'conflict')} left" if branch.undecided else ""
        merging = "merge not finished" if branch.merging and not left else ""
        shared = f"shares {branch.overlaps}" + (f", {branch.conflicts} in conflict" if branch.conflicts else "")
        notes = status_text.plural(branch.notes, "open note") if branch.notes else ""
        git = sum(repository.ahead for repository in branch.repositories)
        parts = [
            left,
            merging,
            shared if branch.overlaps else "",
            notes,
            status_text.plural(git, "git commit") if git else "",
            branch_words.kept(branch),
        ]
        return "; ".join(part for part in parts if part)


@dataclass(slots=True)
class BoardReader:
    """Reads the table again and again, and counts lines only of branches that have changed since."""

    _lines: dict[str, tuple[tuple[object, ...], tuple[int, int]]] = field(default_factory=dict)

    def read(self, daemon: ControlClient) -> list[BoardRow]:
        """Return all rows; lines that were not counted yet are missing."""
        branches = daemon.list_branches()
        runs = branch_runs.telling(daemon.list_runs(each_command=True))
        working: dict[str, Counter[str]] = {}
        for binding in daemon.bindings():
            working.setdefault(binding.branch, Counter())[binding.command or "?"] += 1
        self._lines = {branch.id: self._lines[branch.id] for branch in branches if branch.id in self._lines}
        return [
            BoardRow(branch, self._known(branch), runs.get(branch.id), _alive(branch, working.get(branch.name, Counter())))
            for branch in branches
        ]

    def count_one(self, daemon: ControlClient, rows: Sequence[BoardRow]) -> bool:
        """Count the lines of the first branch whose number is missing or old. Return whether there was one."""
        for row in rows:
            branch = row.branch
            known = self._lines.get(branch.id)
            if known is None or known[0] != _state(branch):
                try:
                    lines = compared_branches.lines_of(daemon, branch.id) if branch.changed else (0, 0)
                except AgentFSError as exc:
                    if not daemon.is_usable:
                        raise
                    del exc
                    lines = _UNKNOWN  # it was deleted meanwhile, or cannot be read: the next look says so
                self._lines[branch.id] = _state(branch), lines
                return True
        return False

    def _known(self, branch: wire.Branch) -> tuple[int, int] | None:
        known = self._lines.get(branch.id)
        return known[1] if known is not None else None


def _state(branch: wire.Branch) -> tuple[object, ...]:
    return branch.changed, branch.changed_ns, branch.committed_ns, branch.merging, branch.undecided, branch.last


def _alive(branch: wire.Branch, working: Counter[str]) -> str:
    if not branch.processes:
        return ""
    named = [f"{printable(name)}{f' x{count}' if count > 1 else ''}" for name, count in working.most_common(_COMMANDS)]
    more = [f"{len(working) - _COMMANDS} more"] if len(working) > _COMMANDS else []
    return ", ".join([*named, *more]) or status_text.plural(branch.processes, "process")


def chosen_rows(rows: Sequence[BoardRow], order: str, wanted: str, *, passed: bool) -> list[BoardRow]:
    """Return the rows to show.

    Args:
        rows: All rows.
        order: One of ORDERS. Branches without changes, processes or runs come last in each.
        wanted: Words that the name, the command, a process or the note contains, in any case.
        passed: Only branches whose last command ended with 0.
    """
    words = wanted.lower().split()
    shown = [row for row in rows if (row.has_passed or not passed) and all(word in _searched(row) for word in words)]
    if order == "name":
        shown.sort(key=lambda row: row.branch.name)
    elif order == "last change":
        shown.sort(key=lambda row: -row.branch.changed_ns)
    elif order == "result":
        shown.sort(key=lambda row: (row.run is None, row.run.exit_code if row.run else 0, -row.branch.created_ns))
    else:
        shown.sort(key=lambda row: (row.branch.name == "main", -row.branch.created_ns))
    return sorted(shown, key=lambda row: (not row.branch.merging, _is_idle(row)))


def _is_idle(row: BoardRow) -> bool:
    branch = row.branch
    return not (branch.changed or branch.processes or row.run or branch.repositories)


def _searched(row: BoardRow) -> str:
    note = row.note.replace(f"merged into {row.branch.merged_into}", "merged")  # the other branch is found by its own row
    return " ".join((row.branch.name, row.command, row.alive, note)).lower()
