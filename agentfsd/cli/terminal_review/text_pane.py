"""A text of any length that scrolls. Long lines are wrapped; only the rows on the screen are drawn."""

from rich.cells import chop_cells
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from agentfsd.cli.output.patch_colours import visible
from agentfsd.cli.terminal_review.hunk_text import expanded


def lines_of(text: bytes, style: str) -> list[tuple[str, str]]:
    """Return the lines of a text with a style for each. Control characters are escaped when they are drawn."""
    lines = text.decode("utf-8", "surrogateescape").split("\n")
    return [(line, style) for line in (lines[:-1] if lines[-1] == "" else lines)]


class TextPane(ScrollView, can_focus=True):
    """A text, each line with a style."""

    DEFAULT_CSS = "TextPane { background: ansi_default; scrollbar-size-vertical: 1; overflow-x: hidden; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: list[tuple[str, str]] = []
        self._rows: list[tuple[str, str]] = []  # of the pane: a line that is too long goes on in the next row

    def show(self, lines: list[tuple[str, str]]) -> None:
        """Show another text, from its beginning."""
        self._lines = lines
        self._lay_out()
        self.scroll_to(0, 0, animate=False)

    def on_resize(self) -> None:
        """Wrap the lines anew."""
        self._lay_out()

    def _lay_out(self) -> None:
        width = max(2, self.size.width - 1)  # beside the scroll bar; a character may be two cells wide
        self._rows = [
            (piece, style) for line, style in self._lines for piece in chop_cells(expanded(visible(line)), width) or [""]
        ]
        self.virtual_size = Size(width, len(self._rows))
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Draw a row of the screen."""
        top = self.scroll_offset.y
        if top + y >= len(self._rows):
            return Strip.blank(self.size.width)
        line, style = self._rows[top + y]
        segment = Segment(line, Style.parse(style) if style else Style())
        return Strip([segment]).crop_extend(0, self.size.width, Style())
