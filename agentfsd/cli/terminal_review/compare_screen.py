"""Branches side by side: what `agentfsd compare` prints, and the paths that several of them changed."""

from functools import partial
from typing import TYPE_CHECKING, ClassVar, cast

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Static

from agentfs_client import wire
from agentfs_client.control import ControlClient
from agentfs_client.errors import NotFoundError
from agentfsd.cli import compared_branches
from agentfsd.cli.terminal_review.branch_screen import BranchScreen
from agentfsd.cli.terminal_review.dialogues import KeyHelp
from agentfsd.cli.terminal_review.head_line import HeadLine
from agentfsd.control.status_text import plural
from agentfsd.escape import printable

if TYPE_CHECKING:
    from agentfsd.cli.terminal_review.review_app import ReviewApp

_TARGET = "main"
_KEYS = (("Enter", "open the branch"), ("r", "compare again"), ("Tab", "between the tables"), ("q, Esc", "back"))

Compared = tuple[list[wire.Branch], list[compared_branches.ComparedBranch], list[wire.PathOverlap]]


class CompareScreen(Screen[None]):
    """Some branches in a table.

    Args:
        ids: The branches.
    """

    CSS = "CompareScreen #rows { height: auto; max-height: 60%; } CompareScreen #paths { height: 1fr; }"
    AUTO_FOCUS: ClassVar[str] = "#rows"
    BINDINGS = [
        Binding("enter", "open", "open"),
        Binding("j", "app.simulate_key('down')", show=False),
        Binding("k", "app.simulate_key('up')", show=False),
        Binding("r", "reread", "again"),
        Binding("question_mark", "keys", "keys", key_display="?"),
        Binding("q,escape", "app.pop_screen", "back"),
    ]

    def __init__(self, ids: list[str]) -> None:
        super().__init__()
        self._ids, self._branches = ids, list[wire.Branch]()

    def compose(self) -> ComposeResult:
        """Build the screen."""
        yield HeadLine("comparing ...")
        yield DataTable[Text](id="rows", cursor_type="row")
        yield Static("", id="said")
        yield DataTable[Text](id="paths", cursor_type="row")
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        """Compare."""
        self.action_reread()

    def action_reread(self) -> None:
        """Compare again."""
        app = cast("ReviewApp", self.app)
        self.query_one(HeadLine).say("comparing ...")
        app.ask(partial(_compare, ids=self._ids), self._came)

    def _came(self, found: Compared) -> None:
        if not self.is_attached:
            return
        self._branches, rows, overlaps = found
        table = cast("DataTable[Text]", self.query_one("#rows", DataTable))
        table.clear(columns=True)
        table.add_columns(*(name.upper() for name in compared_branches.HEADERS))
        for row in rows:
            table.add_row(*(Text(printable(cell)) for cell in compared_branches.cells(row)))
        names = plural(len(rows), "branch").replace("branchs", "branches")
        self.query_one(HeadLine).say(f"{names} compared; conflicts: with {_TARGET}")
        paths = cast("DataTable[Text]", self.query_one("#paths", DataTable))
        paths.clear(columns=True)
        paths.add_columns("PATH THAT SEVERAL CHANGED", "A MERGE", "BY")
        compared = {branch.name for branch in self._branches}
        for each in overlaps:
            by = ", ".join(name for name in each.branches if name in compared)
            paths.add_row(*(Text(printable(cell)) for cell in (each.path, _end(each, compared), by)))
        self.query_one("#said", Static).update("" if overlaps else "No path was changed by several of them.")
        paths.display = bool(overlaps)

    def on_data_table_row_selected(self) -> None:
        """Open the branch on which Enter was pressed."""
        self.action_open()

    def action_open(self) -> None:
        """Open the branch."""
        at = self.query_one("#rows", DataTable).cursor_row
        if 0 <= at < len(self._branches):
            self.app.push_screen(BranchScreen(self._branches[at].id))

    def action_keys(self) -> None:
        """Show the keys."""
        self.app.push_screen(KeyHelp("Keys on the comparison", _KEYS))


def _end(overlap: wire.PathOverlap, compared: set[str]) -> str:
    """Say what merging the branches would meet at a path."""
    if not overlap.conflict:
        return "takes both"
    if compared >= set(overlap.between):
        return f"conflicts ({overlap.conflict}): {', '.join(overlap.between)}"
    return "may conflict"  # what is known is of other branches


def _compare(daemon: ControlClient, ids: list[str]) -> Compared:
    found = list[wire.Branch]()
    for each in ids:
        try:
            found.append(daemon.show_branch(each))
        except NotFoundError:  # deleted meanwhile
            continue
    rows = compared_branches.compared(daemon, found, daemon.show_branch(_TARGET))
    names = {branch.name for branch in found}
    return found, rows, [each for each in daemon.overlaps().overlaps if len(names & set(each.branches)) > 1]
