"""The long scrolling diff. It draws the rows that are on the screen, and makes nothing of the others."""

from typing import Literal

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from agentfsd.cli.terminal_review.diff_layout import DiffLayout, DiffPlace
from agentfsd.cli.terminal_review.reviewed_branch import FileUnderReview

_PLAIN, _BOLD, _DIM, _REVERSE = Style(), Style(bold=True), Style(dim=True), Style(bold=True, reverse=True)
_HEAD, _NOTE, _MARK = Style(color="cyan"), Style(color="yellow"), Style(color="blue", bold=True)
_SIGNS = {"+": Style(color="green"), "-": Style(color="red")}
_TOKENS = {
    "k": Style(bold=True), "c": Style(dim=True, italic=True), "s": Style(color="yellow"), "n": Style(color="cyan"),
    "f": Style(bold=True), "d": Style(color="magenta"), "b": Style(color="cyan"),
}  # fmt: skip
_WORDS, _COMMENT = Style(reverse=True), Style(italic=True)
_MARGIN = 2  # rows that stay between a hunk and the upper edge
_BOXES = {True: "[x]", False: "[ ]", None: "[-]"}


def box(file: FileUnderReview) -> str:
    """Return the box of a file: all of its hunks, none, or some."""
    return (
        "   "
        if file.is_read and not file.choices
        else _BOXES[file.is_wholly_taken if file.taken in (0, len(file.choices)) else None]
    )


class DiffView(ScrollView, can_focus=True):
    """A diff of many files. The hunk that keys are about is marked at the left edge.

    Attributes:
        at: The file and the number of that hunk; -1: the file's head.
    """

    DEFAULT_CSS = """
    DiffView { background: ansi_default; scrollbar-size-vertical: 1; scrollbar-size-horizontal: 1; overflow-x: auto; }
    """
    BINDINGS = [
        Binding("up", "rows(-1)", show=False),
        Binding("down", "rows(1)", show=False),
        Binding("left", "columns(-8)", show=False),
        Binding("right", "columns(8)", show=False),
        Binding("pageup,b,ctrl+b", "pages(-1)", show=False),
        Binding("pagedown,f,ctrl+f", "pages(1)", show=False),
        Binding("home,g", "rows(-1000000000)", show=False),
        Binding("end,G", "rows(1000000000)", show=False),
    ]

    class Moved(Message):
        """Keys are about another hunk now."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: DiffLayout = DiffLayout([])
        self.at = (0, -1)
        self._widest = 0

    # -- what it shows

    def show(self, files: list[FileUnderReview]) -> None:
        """Show other files, from the first one on."""
        self.rows, self.at, self._widest = DiffLayout(files), (0, -1), 0
        self._resize()
        self.scroll_to(0, 0, animate=False)

    def remeasure(self, numbers: list[int]) -> None:
        """Count the rows of some files again. What is at the upper edge stays there."""
        top, place = self.scroll_offset.y, self.rows.place(self.scroll_offset.y)
        before = top - self.rows.row_of(place.file, place.choice) if place is not None else 0
        self.rows.measure(numbers)
        self._resize()
        if place is not None:
            self.scroll_to(y=self.rows.row_of(place.file, place.choice) + before, animate=False)
        self.refresh()

    def _resize(self) -> None:
        self.virtual_size = Size(max(self._widest, 1), self.rows.height)
        self.refresh()

    # -- moving

    def go(self, at: tuple[int, int]) -> None:
        """Go to a file's hunk, and show it."""
        self.at = at
        row, height = self.rows.row_of(*at), self.size.height
        end = row + 1 + self._lines_of(at)
        if not (self.scroll_offset.y <= row and end <= self.scroll_offset.y + height):
            self.scroll_to(0, max(0, row - (_MARGIN if at[1] >= 0 else 0)), animate=False)
        self.refresh()
        self.post_message(self.Moved())

    def _lines_of(self, at: tuple[int, int]) -> int:
        file, choice = at
        if choice < 0 or file >= len(self.rows.blocks):
            return 0
        return len(self.rows.text(DiffPlace("hunk", file, choice)))

    def next_hunk(self, step: Literal[1, -1]) -> None:
        """Go to the next hunk, or the previous one."""
        found = self.rows.next_hunk(self.at, step)
        if found is not None:
            self.go(found)

    def next_file(self, step: Literal[1, -1]) -> None:
        """Go to the next file, or the previous one."""
        number = self.at[0] + step
        if 0 <= number < len(self.rows.blocks):
            self.go_to_file(number)

    def go_to_file(self, number: int) -> None:
        """Go to a file's first hunk, with the file's head at the upper edge."""
        block = self.rows.blocks[number]
        self.at = (number, 0 if block.file.choices and not block.file.is_folded else -1)
        self.scroll_to(0, self.rows.row_of(number), animate=False)
        self.refresh()
        self.post_message(self.Moved())

    def action_rows(self, count: int) -> None:
        """Scroll by rows."""
        self.scroll_to(y=self.scroll_offset.y + count, animate=False)
        self._follow()

    def action_pages(self, count: int) -> None:
        """Scroll by screens."""
        self.action_rows(count * max(1, self.size.height - _MARGIN))

    def action_columns(self, count: int) -> None:
        """Scroll sideways."""
        self.scroll_to(x=self.scroll_offset.x + count, animate=False)

    def _follow(self) -> None:
        """Make the first hunk on the screen the one that keys are about, if that is not on it any more."""
        top, bottom = self.scroll_offset.y, self.scroll_offset.y + self.size.height
        row = self.rows.row_of(*self.at)
        if row < bottom and row + self._lines_of(self.at) >= top:
            return
        place = self.rows.place(top)
        if place is None:
            return
        at = (place.file, place.choice)
        if place.kind in ("file", "note", "blank"):
            at = self.rows.next_hunk(at, 1) or at
        self.at = at
        self.refresh()
        self.post_message(self.Moved())

    def on_mouse_scroll_down(self) -> None:
        """Follow the wheel."""
        self.call_after_refresh(self._follow)

    def on_mouse_scroll_up(self) -> None:
        """Follow the wheel."""
        self.call_after_refresh(self._follow)

    def on_scroll_to(self) -> None:
        """Follow the scroll bar."""
        self.call_after_refresh(self._follow)

    # -- drawing

    def render_line(self, y: int) -> Strip:
        """Draw a row of the screen."""
        x, top = self.scroll_offset
        width = self.size.width
        place = self.rows.place(top + y)
        if place is None:
            return Strip.blank(width)
        if place.kind == "file":
            return self._file_head(place, width)
        segments = self._segments(place)
        strip = Strip(segments)
        if strip.cell_length > self._widest:
            self._widest = strip.cell_length
            self.call_later(self._resize_width)
        return strip.crop_extend(x, x + width, _PLAIN)

    def _resize_width(self) -> None:
        if self.virtual_size.width < self._widest:
            self.virtual_size = Size(self._widest, self.rows.height)

    def _file_head(self, place: DiffPlace, width: int) -> Strip:
        file = self.rows.blocks[place.file].file
        counts = f"  +{file.counts[0]} -{file.counts[1]}" if file.counts is not None and any(file.counts) else ""
        state = ("  viewed" if file.is_viewed else "") + ("  folded" if file.is_folded and not file.is_viewed else "")
        text = f"{box(file)} {file.change.status} {file.shown_path}{counts}{state} "
        style = _REVERSE if place.file == self.at[0] else _BOLD
        mark = Segment("\u258c" if self.at == (place.file, -1) else " ", _MARK)
        rest = max(0, width - 1 - cell_len(text))
        return Strip([mark, Segment(text, style), Segment("\u2500" * rest, _DIM)]).crop_extend(0, width, _PLAIN)

    def _segments(self, place: DiffPlace) -> list[Segment]:
        block = self.rows.blocks[place.file]
        if place.kind == "blank":
            return []
        if place.kind == "note":
            return [Segment(f"     {block.notes[place.line]}", _NOTE)]
        choice = block.file.choices[place.choice]
        mark = Segment("\u258c" if self.at == (place.file, place.choice) else " ", _MARK)
        if place.kind == "hunk":
            text = self.rows.text(place)
            title = block.file.title(choice)
            return [
                mark,
                Segment(f"{_BOXES[choice.is_taken]} ", _BOLD),
                Segment(" ".join(filter(None, (text.range, title))), _HEAD),
            ]
        return [mark, Segment("\u2502" if choice.is_taken else " ", _MARK), *self._line(place)]

    def _line(self, place: DiffPlace) -> list[Segment]:
        line = self.rows.text(place).line(place.line)
        if line.sign == "\\":
            return [Segment("            " + "".join(text for _, text in line.parts), _DIM)]
        base = _SIGNS.get(line.sign, _PLAIN)
        numbers = f"{line.old or '':>5} {line.new or '':>5} "
        parts = [Segment(text, _style(colour, base, is_changed=line.sign in "+-")) for colour, text in line.parts]
        return [Segment(numbers, _DIM), Segment(line.sign, base + _BOLD), *parts]

    def refresh_all(self) -> None:
        """Draw everything again, as boxes have changed."""
        self.refresh(Region(0, 0, *self.size))


def _style(colour: str, base: Style, *, is_changed: bool) -> Style:
    """Return the style of a part of a line. Words that differ have no other colour than that of the line's sign."""
    if colour.endswith("*"):
        return base + _WORDS
    if colour == "c" and is_changed:
        return base + _COMMENT
    return base + _TOKENS.get(colour, _PLAIN)
