"""The windows about notes: the list of all notes of a branch, and the field in which one is written."""

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Label, Static
from textual.widgets.option_list import Option

from agentfs_client import wire
from agentfsd.cli.output import note_lines
from agentfsd.cli.terminal_review.choice_list import ChoiceList
from agentfsd.cli.terminal_review.noted_rows import head, note_rows
from agentfsd.escape import printable

_LINES = re.compile(r"([1-9][0-9]{0,8})(?:-([1-9][0-9]{0,8}))?")
_EDGES = 8  # columns of a window's border and space


class ChosenNote(NamedTuple):
    """What to do with which note; a note about the branch has the id 0."""

    verb: Literal["show", "answer", "settle", "add"]
    id: int


class NotesWindow(ModalScreen[ChosenNote]):
    """The list of notes, with their answers.

    Args:
        title: What it says above.
        notes: The notes.
        at: The id of the one that is chosen first.
    """

    DEFAULT_CSS = """
    NotesWindow { align: center middle; background: transparent; }
    NotesWindow > Vertical { width: 96%; max-width: 110; height: auto; max-height: 92%; border: solid $primary; padding: 0 1; }
    NotesWindow ChoiceList { height: auto; max-height: 100%; }
    """
    BINDINGS = [
        Binding("escape,q", "leave", show=False),
        Binding("j", "app.simulate_key('down')", show=False),
        Binding("k", "app.simulate_key('up')", show=False),
        Binding("a", "choose('answer')", show=False),
        Binding("x", "choose('settle')", show=False),
        Binding("w", "branch", show=False),
    ]

    def __init__(self, title: str, notes: Sequence[wire.BranchNote], at: int) -> None:
        super().__init__()
        self._heading, self._notes, self._first = title, notes, at

    def compose(self) -> ComposeResult:
        """Build the window."""
        with Vertical():
            yield Label(Text(printable(self._heading), style="bold"))
            yield Static(Text("Enter goes there, a answers, x resolves or reopens, w notes the branch, q back", style="dim"))
            yield ChoiceList(*(Option(self._told(note)) for note in self._notes))

    def on_mount(self) -> None:
        """Begin at a note."""
        ids = [note.id for note in self._notes]
        options = self.query_one(ChoiceList)
        options.highlighted = ids.index(self._first) if self._first in ids else 0 if ids else None
        options.focus()

    def _told(self, note: wire.BranchNote) -> Content:
        width = min(self.app.size.width * 96 // 100, 110) - _EDGES
        rows = note_rows(note, width)[1:]
        about = f"{printable(note_lines.place(note))}  {head(note)}"
        said = ((f"\n  {row.text}", "dim" if row.is_head or note.resolved_ns else "") for row in rows)
        return Content.assemble((about, "dim" if note.resolved_ns else "bold"), *said, "\n")

    def on_option_list_option_selected(self, event: ChoiceList.OptionSelected) -> None:
        """Go to a note."""
        self.dismiss(ChosenNote("show", self._notes[event.option_index].id))

    def action_choose(self, verb: Literal["answer", "settle"]) -> None:
        """Do something with the note at the cursor."""
        at = self.query_one(ChoiceList).highlighted
        if at is not None:
            self.dismiss(ChosenNote(verb, self._notes[at].id))

    def action_branch(self) -> None:
        """Write a note on the branch."""
        self.dismiss(ChosenNote("add", 0))

    def action_leave(self) -> None:
        """Leave the window."""
        self.dismiss(None)


class WrittenNote(NamedTuple):
    """What was written. ``line`` is 0 for no line."""

    text: str
    line: int
    last_line: int


class NoteWriting(ModalScreen[WrittenNote]):
    """A field for a note or an answer.

    Args:
        title: What it says above.
        lines: The lines that it is about, such as 12-15, to be changed; "" for all of a file; None where there are none.
        said: What is answered.
    """

    DEFAULT_CSS = """
    NoteWriting { align: center middle; background: transparent; }
    NoteWriting > Vertical { width: 96%; max-width: 100; height: auto; max-height: 92%; border: solid $primary; padding: 0 1; }
    NoteWriting VerticalScroll { height: auto; max-height: 10; }
    NoteWriting Input { height: 1; border: none; padding: 0; background: ansi_default; color: ansi_default; }
    NoteWriting .trouble { color: ansi_red; display: none; }
    """
    BINDINGS = [Binding("escape", "leave", show=False)]

    def __init__(self, title: str, lines: str | None = None, said: Sequence[str] = ()) -> None:
        super().__init__()
        self._heading, self._on, self._said = title, lines, said

    def compose(self) -> ComposeResult:
        """Build the window."""
        with Vertical():
            yield Label(Text(printable(self._heading), style="bold"))
            if self._said:
                with VerticalScroll(can_focus=False):
                    yield Static(Text("\n".join(self._said), style="dim"))
            yield Input(placeholder="the text; Enter stores it, Esc does not", id="text", compact=True)
            if self._on is not None:
                yield Label(Text("lines, such as 12 or 12-15; none: all of the file (Tab)", style="dim"))
                yield Input(value=self._on, id="lines", compact=True)
            yield Static("", classes="trouble")

    def on_mount(self) -> None:
        """Begin with the text."""
        self.query_one("#text", Input).focus()

    def on_input_submitted(self) -> None:
        """Return what was written, if it is something."""
        text = self.query_one("#text", Input).value
        lines = self.query_one("#lines", Input).value.strip() if self._on is not None else ""
        match = _LINES.fullmatch(lines)
        if not text.strip():
            self._tell("A note needs a text.")
        elif lines and match is None:
            self._tell(f"{printable(lines)} is no line: give a number such as 12, or two such as 12-15.")
        else:
            first, last = (int(match[1]), int(match[2] or match[1])) if match is not None else (0, 0)
            self.dismiss(WrittenNote(text, first, last))

    def _tell(self, text: str) -> None:
        trouble = self.query_one(".trouble", Static)
        trouble.update(Text(text))
        trouble.display = True

    def action_leave(self) -> None:
        """Write nothing."""
        self.dismiss(None)
