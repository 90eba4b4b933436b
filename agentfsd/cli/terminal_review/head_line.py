"""The first rows of a screen: what it shows, and a warning when there is one."""

from rich.cells import cell_len
from rich.text import Text
from textual.widget import Widget
from textual.widgets import Static


class HeadLine(Widget):
    """One row in reverse, over the whole width."""

    DEFAULT_CSS = "HeadLine { height: 1; width: 100%; }"

    def __init__(self, text: str = "") -> None:
        super().__init__()
        self._text = text

    def say(self, text: str) -> None:
        """Show another text, which is printable."""
        if text != self._text:
            self._text = text
            self.refresh()

    def render(self) -> Text:
        """Draw the row."""
        text = f" {self._text}"
        padded = text + " " * max(0, self.size.width - cell_len(text))
        return Text(padded, style="reverse", no_wrap=True, overflow="ellipsis")


class WarningLine(Static):
    """A sentence that needs attention; no row while there is none."""

    DEFAULT_CSS = """
    WarningLine { height: auto; width: 100%; text-style: bold; color: ansi_red; display: none; }
    WarningLine.shown { display: block; }
    """

    def __init__(self) -> None:
        super().__init__("")
        self._said = ""

    def say(self, text: str) -> None:
        """Show a sentence, which is printable; "" for none."""
        if text != self._said:
            self._said = text
            self.update(Text(text))
            self.set_class(bool(text), "shown")
