"""The first screen: a table of all branches that follows what happens."""

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Input

from agentfsd.cli.terminal_review import key_tables
from agentfsd.cli.terminal_review.act_flow import ActFlow
from agentfsd.cli.terminal_review.board_model import ORDERS, BoardReader, BoardRow, chosen_rows
from agentfsd.cli.terminal_review.branch_screen import BranchScreen
from agentfsd.cli.terminal_review.compare_screen import CompareScreen
from agentfsd.cli.terminal_review.dialogues import KeyHelp
from agentfsd.cli.terminal_review.head_line import HeadLine, WarningLine
from agentfsd.cli.terminal_review.review_acts import Act, next_undo
from agentfsd.cli.terminal_review.review_app import Trouble, trouble_of
from agentfsd.control.status_text import plural
from agentfsd.escape import printable

if TYPE_CHECKING:
    from agentfsd.cli.terminal_review.review_app import ReviewApp

_LOOK_S = 1.0  # between two looks
_LATE_S = 3.0  # after which a look that has not come back is said
_COLUMNS = (("", 1), ("BRANCH", 12), ("CHANGES", 7), ("LINES", 11), ("COMMAND", 9), ("RESULT", 6), ("ALIVE", 7), ("NOTE", 10))
_SHARES = {1: 2, 4: 4, 6: 1, 7: 4}  # of what is left of the width, by column
_PADDING = 2


class BoardScreen(Screen[None]):
    """All branches."""

    CSS = "BoardScreen Input { height: 1; border: none; display: none; }"
    AUTO_FOCUS: ClassVar[str] = "DataTable"
    BINDINGS = [
        Binding("enter", "open", "open"),
        Binding("space", "mark", "mark"),
        Binding("c", "compare", "compare"),
        Binding("slash", "filter", "filter", key_display="/", priority=True),  # what is typed behind it goes to the field
        Binding("p", "passed", "passed only"),
        Binding("s", "order", "order"),
        Binding("D", "discard", show=False),
        Binding("u", "undo", "undo"),
        Binding("j", "cursor(1)", show=False),
        Binding("k", "cursor(-1)", show=False),
        Binding("question_mark", "keys", "keys", key_display="?"),
        Binding("q", "app.leave", "quit"),
        Binding("escape", "all", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._rows: list[BoardRow] = []
        self._shown: list[BoardRow] = []
        self._cells: list[list[Text]] = []
        self._marked: set[str] = set()  # ids
        self._order, self._wanted, self._passed = ORDERS[0], "", False
        self._over, self._is_seen = threading.Event(), threading.Event()
        self._is_seen.set()
        self._came = False
        self._silent_s = 0.0

    @property
    def _app(self) -> "ReviewApp":
        return cast("ReviewApp", self.app)

    def compose(self) -> ComposeResult:
        """Build the screen."""
        yield HeadLine("reading ...")
        yield WarningLine()
        yield DataTable[Text](cursor_type="row", zebra_stripes=False)
        yield Input(placeholder="words of a name, command, process or note", compact=True)
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        """Begin to look."""
        self._table = cast("DataTable[Text]", self.query_one(DataTable))
        self._columns()
        self._say()
        threading.Thread(target=self._look, args=(self._app,), daemon=True).start()
        self.set_interval(_LOOK_S, self._count_silence)

    def on_unmount(self) -> None:
        """End the look."""
        self._over.set()
        self._is_seen.set()

    def on_screen_suspend(self) -> None:
        """Look no more while another screen is shown."""
        self._is_seen.clear()

    def on_screen_resume(self) -> None:
        """Look again."""
        self._silent_s = 0.0
        self._is_seen.set()

    def on_resize(self) -> None:
        """Fit the columns to the width."""
        self._columns()

    # -- looking, in a thread of its own

    def _look(self, app: "ReviewApp") -> None:
        """Look until the end. *app*: a screen that has gone does not know it any more."""
        reader = BoardReader()
        while not self._over.is_set():
            try:
                with app.connect() as daemon:
                    while self._is_seen.wait() and not self._over.is_set():
                        rows = reader.read(daemon)
                        self._deliver(app, partial(self._read, rows))
                        if not reader.count_one(daemon, rows):
                            self._over.wait(_LOOK_S)
            except Exception as exc:  # noqa: BLE001 - told on the screen
                self._deliver(app, partial(self._failed, trouble_of(exc)))
                self._over.wait(_LOOK_S)

    def _deliver(self, app: "ReviewApp", what: Callable[[], Any]) -> None:
        app.deliver(lambda: what() if self.is_attached else None)

    def _read(self, rows: list[BoardRow]) -> None:
        self._rows, self._came, self._silent_s = rows, True, 0.0
        self._marked &= {row.branch.id for row in rows}
        self._warn("")
        self._fill()

    def _failed(self, trouble: Trouble) -> None:
        self._silent_s = 0.0
        self._warn(f"{printable(trouble.message)}; trying again")

    def _count_silence(self) -> None:
        self._silent_s += _LOOK_S * self._is_seen.is_set()
        if self._silent_s > _LATE_S:
            self._warn("the daemon does not answer; waiting")

    # -- the table

    def _columns(self) -> None:
        spare = self.app.size.width - sum(width + _PADDING for _, width in _COLUMNS) - 1
        shares = sum(_SHARES.values())
        self._table.clear(columns=True)
        for number, (name, width) in enumerate(_COLUMNS):
            self._table.add_column(name, width=width + max(0, spare) * _SHARES.get(number, 0) // shares)
        self._cells, kept = [], [row.branch.id for row in self._shown]
        self._fill(force=bool(kept))

    def _fill(self, *, force: bool = False) -> None:
        before = self._current
        self._shown = chosen_rows(self._rows, self._order, self._wanted, passed=self._passed)
        cells = [self._cells_of(row) for row in self._shown]
        if force or len(cells) != len(self._cells):
            self._table.clear()
            for row in cells:
                self._table.add_row(*row)
        else:
            for number, (old, new) in enumerate(zip(self._cells, cells, strict=True)):
                for column, (was, now) in enumerate(zip(old, new, strict=True)):
                    if was != now:
                        self._table.update_cell_at((number, column), now)  # type: ignore[arg-type]
        self._cells = cells
        if before is not None:
            at = next((number for number, row in enumerate(self._shown) if row.branch.id == before.branch.id), None)
            if at is not None and at != self._table.cursor_row:
                self._table.move_cursor(row=at, animate=False)
        self._say()

    def _cells_of(self, row: BoardRow) -> list[Text]:
        passed = "" if row.run is None else "green" if row.has_passed else "red"
        note = "red" if row.branch.undecided or row.branch.conflicts else ""
        texts = (
            ("\u2713" if row.branch.id in self._marked else "", "bold"), (printable(row.branch.name), "bold"),
            (row.changes, ""), (row.counts, ""),
            (row.command, ""), (row.ended, passed), (row.alive, "cyan"), (row.note, note),
        )  # fmt: skip
        return [Text(text, style=style, no_wrap=True, overflow="ellipsis") for text, style in texts]

    @property
    def _current(self) -> BoardRow | None:
        at = self._table.cursor_row
        return self._shown[at] if 0 <= at < len(self._shown) else None

    def _say(self) -> None:
        parts = [f"{len(self._shown)} of {plural(len(self._rows), 'branch')}".replace("branchs", "branches")]
        parts += ["only passed"] if self._passed else []
        parts += [f"with {printable(self._wanted)!r}"] if self._wanted else []
        parts += [f"{len(self._marked)} marked"] if self._marked else []
        parts += [f"by {self._order}", printable(self._app.place)]
        self.query_one(HeadLine).say("  ".join(parts) if self._came else "reading ...")

    def _warn(self, text: str) -> None:
        self.query_one(WarningLine).say(text)

    # -- keys

    def on_data_table_row_selected(self) -> None:
        """Open the branch on which Enter was pressed."""
        self.action_open()

    def action_open(self) -> None:
        """Open the branch."""
        if self._current is not None:
            self.app.push_screen(BranchScreen(self._current.branch.id))

    def action_mark(self) -> None:
        """Mark the branch, or not, and go on."""
        if self._current is not None:
            self._marked ^= {self._current.branch.id}
            self._fill()
            self.action_cursor(1)

    def action_cursor(self, step: int) -> None:
        """Go to another branch."""
        self._table.move_cursor(row=self._table.cursor_row + step, animate=False)

    def action_compare(self) -> None:
        """Compare branches."""
        chosen = [row for row in self._rows if row.branch.id in self._marked] or [
            row for row in self._shown if row.branch.changed
        ]
        if chosen:
            self.app.push_screen(CompareScreen([row.branch.id for row in chosen]))
        else:
            self.notify("No branch has changes.", timeout=2)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool:
        """Let a field have the key that begins a search."""
        return action != "filter" or not isinstance(self.focused, Input)

    def action_filter(self) -> None:
        """Ask for words."""
        field = self.query_one(Input)
        field.display = True
        field.value = self._wanted
        self.set_focus(field)  # at once: the next key may be there already

    def on_input_changed(self, event: Input.Changed) -> None:
        """Show only what has the words."""
        self._wanted = event.value
        self._fill()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep the filter, and go back to the table."""
        event.input.display = bool(event.value)
        self._table.focus()

    def action_all(self) -> None:
        """Show all branches again."""
        field = self.query_one(Input)
        field.value = ""
        field.display = False
        self._wanted, self._passed = "", False
        self._table.focus()
        self._fill()

    def action_passed(self) -> None:
        """Show only branches whose last command passed, or all."""
        self._passed = not self._passed
        self._fill()

    def action_order(self) -> None:
        """Change the order."""
        self._order = ORDERS[(ORDERS.index(self._order) + 1) % len(ORDERS)]
        self._fill()

    def action_discard(self) -> None:
        """Discard the branch."""
        if self._current is not None:
            ActFlow(self._app, lambda _: None).begin(Act("discard", self._current.branch))

    def action_undo(self) -> None:
        """Undo the last act."""
        if self._current is not None:
            branch = self._current.branch
            self._app.ask(next_undo, lambda entry: ActFlow(self._app, lambda _: None).begin(Act("undo", branch, entry=entry)))

    def action_keys(self) -> None:
        """Show the keys."""
        self.app.push_screen(KeyHelp("Keys on the table of branches", key_tables.BOARD))
