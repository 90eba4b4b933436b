"""A text that scrolls, of any length: only the rows on the screen are drawn."""

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding
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

    DEFAULT_CSS = "TextPane { background: ansi_default; scrollbar-size-vertical: 1; scrollbar-size-horizontal: 1; }"
    BINDINGS = [Binding("left", "scroll_left", show=False), Binding("right", "scroll_right", show=False)]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: list[tuple[str, str]] = []

    def show(self, lines: list[tuple[str, str]]) -> None:
        """Show another text, from its beginning."""
        self._lines = lines
        widest = max((len(line) for line, _ in lines), default=1)
        self.virtual_size = Size(widest, len(lines))
        self.scroll_to(0, 0, animate=False)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Draw a row of the screen."""
        x, top = self.scroll_offset
        if top + y >= len(self._lines):
            return Strip.blank(self.size.width)
        line, style = self._lines[top + y]
        segment = Segment(expanded(visible(line)), Style.parse(style) if style else Style())
        return Strip([segment]).crop_extend(x, x + self.size.width, Style())
