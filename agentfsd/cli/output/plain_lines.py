"""The lines that commands print where the output is no terminal.

It imports nothing that takes long: cli/quick_commands.py prints them, too.
"""

import time
from _collections_abc import Iterator, Sequence

from agentfsd.control import status_text
from agentfsd.escape import printable, quoted

TYPE_CHECKING = False  # typing takes as long to load as an answer does; checkers know the name
if TYPE_CHECKING:
    from agentfs_client import wire

_BRANCH_HEADERS = ("branch", "changes", "processes", "from", "created", "id")


def noted(text: str) -> str:
    """Return a line for the user on standard error."""
    return f"agentfsd: {printable(text)}"


def detailed(text: str) -> str:
    """Return a line below a note."""
    return f"  {printable(text)}"


def refusal(message: str, hint: str = "") -> list[str]:
    """Return an error as lines: one sentence, and a hint what to do."""
    return [noted(message), *([detailed(f"hint: {hint}")] if hint else [])]


def aligned(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table, its headers in upper case."""
    lines = [tuple(header.upper() for header in headers), *(tuple(map(printable, row)) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headers))]
    for line in lines:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


def branch_table(branches: "Sequence[wire.Branch]") -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the headers and rows of a table of branches; with a column of open notes if there are any."""
    rows: list[tuple[str, ...]] = [
        (b.name, status_text.amount(b), str(b.processes), _made_from(b), when(b.created_ns), b.id) for b in branches
    ]
    return with_notes(_BRANCH_HEADERS, rows, [b.notes for b in branches], at=2)


def _made_from(branch: "wire.Branch") -> str:
    frozen = f" of {when(branch.frozen_ns)}, frozen" if branch.frozen_ns else ""
    return f"{branch.base or '(the lower)'}{frozen}"


def with_notes(
    headers: tuple[str, ...], rows: list[tuple[str, ...]], notes: Sequence[int], at: int
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return a table with the column *at* more that has the number of open notes of each row; unchanged if there are none."""
    if not any(notes):
        return headers, rows
    wider = [(*row[:at], str(count or ""), *row[at:]) for row, count in zip(rows, notes, strict=True)]
    return (*headers[:at], "notes", *headers[at:]), wider


def branches(listed: "Sequence[wire.Branch]") -> list[str]:
    """Return the lines of a list of branches."""
    return [*aligned(*branch_table(listed)), *status_text.remarks(listed)]


def made_branch(made: "wire.Branch", source: str | None) -> str:
    """Say what a new branch was made from. *source*: the ref that the user named, if any; without changes it shows the lower."""
    beneath = f"the lower as it was at {when(made.frozen_ns)}" if made.frozen_ns else "the lower"
    if source and not made.base:
        return f"branch {made.name} made from {source}, which has no changes: it shows {beneath}"
    over = f", over {beneath}" if made.frozen_ns else ""
    return f"branch {made.name} made from {f'{made.base}{over}' if made.base else beneath}"


def took_snapshot(taken: "wire.BranchSnapshot") -> str:
    """Say which snapshot was taken."""
    return f"snapshot {taken.name} of {taken.branch}"


def bound(pid: object, branch: object) -> str:
    """Say which branch a process sees."""
    return f"process {pid} sees {branch} from now on"


def unbound(pid: object) -> str:
    """Say that a process has no binding."""
    return f"process {pid} is no longer bound"


def renamed(change: "wire.Renamed") -> str:
    """Return the path of a change, after its former path if it was renamed."""
    path = quoted(change.path_bytes) or "."
    return f"{quoted(change.old_path_bytes)} -> {path}" if change.old_path_bytes else path


def changed(change: "wire.Change") -> str:
    """Return the line of a change: its letter, its path, and what a person should know before a commit."""
    moved = "\t(the lower changed since)" if change.lower_moved else ""
    executed = f"\t(runs on your side: {change.executed})" if change.executed else ""
    return f"{change.status}\t{renamed(change)}{moved}{executed}"


def when(time_ns: int) -> str:
    """Format a point in time (nanoseconds since the epoch) as local date and time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_ns / 1e9))
