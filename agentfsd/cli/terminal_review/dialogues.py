"""The windows that ask or tell something: a confirmation, a result, a list of branches, the keys."""

from collections.abc import Sequence

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Button, Label, OptionList, Static
from textual.widgets.option_list import Option

from agentfsd.escape import printable


class Answer(tuple[str, str, str]):
    """A button: what it returns, its words, its key."""

    __slots__ = ()

    def __new__(cls, value: str, words: str, key: str) -> "Answer":
        """Make a button."""
        return super().__new__(cls, (value, words, key))


class Dialogue(ModalScreen[str]):
    """A window with sentences and buttons. It returns the value of the button, "" for none."""

    DEFAULT_CSS = """
    Dialogue { align: center middle; background: transparent; }
    Dialogue > Vertical { width: 90%; max-width: 100; height: auto; max-height: 90%; border: solid $primary; padding: 0 1; }
    Dialogue .title { text-style: bold; width: 100%; }
    Dialogue VerticalScroll { height: auto; max-height: 14; margin-top: 1; }
    Dialogue .answers { height: auto; margin-top: 1; }
    Dialogue Button { margin-right: 2; min-width: 8; }
    Dialogue Button:focus { text-style: reverse bold; }
    """
    BINDINGS = [
        Binding("escape", "answer('')", "no", show=False),
        Binding("left,up", "app.focus_previous", show=False),
        Binding("right,down", "app.focus_next", show=False),
    ]

    def __init__(self, title: str, lines: Sequence[str | Text], answers: Sequence[Answer]) -> None:
        """Make the window; the last answer has the focus."""
        super().__init__()
        self._heading, self._lines, self._answers = title, lines, answers
        for value, _, key in answers:
            self._bindings.bind(key, f"answer('{value}')", show=False)

    def compose(self) -> ComposeResult:
        """Build the window."""
        with Vertical():
            yield Label(Text(printable(self._heading)), classes="title")
            if self._lines:
                with VerticalScroll(can_focus=False):
                    for line in self._lines:
                        yield Static(line if isinstance(line, Text) else Text(printable(line)))
            with Vertical(classes="answers") if self._is_long else Horizontal(classes="answers"):
                for value, words, key in self._answers:
                    yield Button(Text(f"[{key}] {printable(words)}"), id=f"answer-{value or 'none'}", compact=True)

    @property
    def _is_long(self) -> bool:
        return sum(len(words) + len(key) + 7 for _, words, key in self._answers) > min(self.app.size.width * 9 // 10, 100) - 4

    def on_mount(self) -> None:
        """Put the focus on the answer that changes nothing."""
        self.query(Button).last().focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Return the value of a button."""
        self.dismiss((event.button.id or "").removeprefix("answer-").removesuffix("none"))

    def action_answer(self, value: str) -> None:
        """Return a value."""
        self.dismiss(value)


class BranchChoice(ModalScreen[str]):
    """A list of branches to choose one of. It returns its name, "" for none."""

    DEFAULT_CSS = """
    BranchChoice { align: center middle; background: transparent; }
    BranchChoice > Vertical { width: 60; max-width: 90%; height: auto; max-height: 80%; border: solid $primary; padding: 0 1; }
    BranchChoice OptionList { height: auto; max-height: 12; border: none; }
    """
    BINDINGS = [
        Binding("escape,q", "none", "back", show=False),
        Binding("j", "app.simulate_key('down')", show=False),
        Binding("k", "app.simulate_key('up')", show=False),
    ]

    def __init__(self, title: str, names: Sequence[str]) -> None:
        super().__init__()
        self._heading, self._names = title, names

    def compose(self) -> ComposeResult:
        """Build the window."""
        with Vertical():
            yield Label(Text(printable(self._heading)))
            yield OptionList(*(Option(Text(printable(name))) for name in self._names))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Return the chosen name."""
        self.dismiss(self._names[event.option_index])

    def action_none(self) -> None:
        """Return that none was chosen."""
        self.dismiss("")


class KeyHelp(ModalScreen[None]):
    """The list of keys."""

    DEFAULT_CSS = """
    KeyHelp { align: center middle; background: transparent; }
    KeyHelp > VerticalScroll { width: 76; max-width: 96%; height: auto; max-height: 96%; border: solid $primary; padding: 0 1; }
    KeyHelp Static { width: 100%; }
    """
    BINDINGS = [Binding("escape,q,question_mark,enter", "app.pop_screen", "back", show=False)]

    def __init__(self, title: str, keys: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self._heading, self._keys = title, keys

    def compose(self) -> ComposeResult:
        """Build the window."""
        width = max(len(key) for key, _ in self._keys)
        with VerticalScroll():
            yield Static(Text(self._heading, style="bold"))
            for key, words in self._keys:
                yield Static(Text.assemble((f"{key:<{width}}  ", "bold"), words) if key else Text(words))
