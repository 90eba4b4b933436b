"""Which file, hunk and line stands in which row of one long diff. Rows have no objects of their own."""

from bisect import bisect_right
from itertools import accumulate
from typing import Literal, NamedTuple

from agentfs_client import wire
from agentfsd.cli.terminal_review.hunk_text import HunkText
from agentfsd.cli.terminal_review.noted_rows import NotedRow, note_rows
from agentfsd.cli.terminal_review.reviewed_branch import Choice, FileUnderReview

Kind = Literal["file", "remark", "note", "hunk", "line", "blank"]


class DiffPlace(NamedTuple):
    """What a row shows. ``choice`` and ``line`` count from 0; -1: none. Of a note, ``line`` is a row of ``note``."""

    kind: Kind
    file: int
    choice: int = -1
    line: int = -1
    note: tuple[NotedRow, ...] = ()


class FileBlock:
    """The rows of one file: its head, remarks and notes on it, hunks with their lines and the notes on these, and a blank row.

    Args:
        file: The file.
        width: Columns within which notes are wrapped.
    """

    def __init__(self, file: FileUnderReview, width: int) -> None:
        self.file, self.width = file, width
        self._above: tuple[NotedRow, ...] = ()  # notes that stand below the file's head
        self._below: list[
            list[tuple[int, tuple[NotedRow, ...]]]
        ] = []  # of each hunk: the number of a line, and what stands below
        self._texts: dict[int, tuple[Choice, HunkText]] = {}  # by the choice's id
        self._starts: list[int] = []  # the row of each hunk's head
        self.height = 0
        self.measure()

    def measure(self) -> None:
        """Count the rows again, after the file was read, folded or split."""
        self._texts = {id(choice): self._texts[id(choice)] for choice in self.file.choices if id(choice) in self._texts}
        if self.file.is_folded:
            self._starts, self._below, self._above, self.height = [], [], (), 2
            return
        self._set_notes()
        at, self._starts = 1 + len(self.remarks) + len(self._above), []
        for choice, below in zip(self.file.choices, self._below, strict=True):
            self._starts.append(at)
            at += 1 + len(self.text(choice)) + sum(len(rows) for _, rows in below)
        self.height = at + 1

    def _set_notes(self) -> None:
        """Put each note below the last of its lines that is shown, or below the file's head."""
        above, below = list[NotedRow](), [dict[int, list[NotedRow]]() for _ in self.file.choices]
        for note in self.file.noted:
            rows, (number, line) = note_rows(note, self.width), self._line_of(note)
            (above if number < 0 else below[number].setdefault(line, [])).extend(rows)
        self._above = tuple(above)
        self._below = [[(line, tuple(rows)) for line, rows in sorted(each.items())] for each in below]

    def _line_of(self, note: wire.BranchNote) -> tuple[int, int]:
        """Return the hunk and the line below which a note stands; -1 for none."""
        for number, choice in enumerate(self.file.choices if note.now_last_line else ()):
            line = self.text(choice).index_of(note.now_last_line)
            if line is not None:
                return number, line
        return -1, -1

    def choice_of(self, note: wire.BranchNote) -> int:
        """Return the hunk in which a note stands; -1: at the file's head."""
        return self._line_of(note)[0]

    def row_of_note(self, note: wire.BranchNote) -> int:
        """Return the first row of a note that is shown."""
        number, line = self._line_of(note)
        noted = note_rows(note, self.width)[0]
        if number < 0:
            return 1 + len(self.remarks) + (self._above.index(noted) if noted in self._above else 0)
        row = self._starts[number] + 1
        for after, rows in self._below[number]:
            if after == line and noted in rows:
                return row + after + 1 + rows.index(noted)
            row += len(rows)
        return row + line

    @property
    def remarks(self) -> list[str]:
        return self.file.remarks if self.file.is_read else ["reading ..."]

    def text(self, choice: Choice) -> HunkText:
        """Return the lines of a hunk."""
        known = self._texts.get(id(choice))
        if known is None:
            file = self.file.file
            shown = file.shown(choice.hunk) if file is not None and choice.hunk is not None else b""
            if choice.hunk is not None and choice.hunk.kind in ("rename", "mode"):
                shown = b""  # the head says it
            known = self._texts[id(choice)] = choice, HunkText(self.file.path, shown)
        return known[1]

    def row_of(self, choice: int) -> int:
        """Return the row of a hunk's head; 0, the file's head, if it has none that is shown."""
        return self._starts[choice] if 0 <= choice < len(self._starts) else 0

    def lines_of(self, choice: int) -> int:
        """Return how many rows stand below a hunk's head: its lines and the notes on them."""
        if not 0 <= choice < len(self._starts):
            return 0
        ends = [*self._starts[1:], self.height - 1]
        return ends[choice] - self._starts[choice] - 1

    def place(self, row: int, file: int) -> DiffPlace:
        """Return what is in a row. *file*: the number of this file."""
        if row == 0:
            return DiffPlace("file", file)
        if row == self.height - 1:
            return DiffPlace("blank", file, len(self._starts) - 1)
        if not self._starts or row < self._starts[0]:
            at = row - 1 - len(self.remarks)
            return DiffPlace("remark", file, -1, row - 1) if at < 0 else DiffPlace("note", file, -1, at, self._above)
        choice = bisect_right(self._starts, row) - 1
        line = row - self._starts[choice] - 1
        if line < 0:
            return DiffPlace("hunk", file, choice)
        for after, rows in self._below[choice]:
            if line <= after:
                break
            if line <= after + len(rows):
                return DiffPlace("note", file, choice, line - after - 1, rows)
            line -= len(rows)
        return DiffPlace("line", file, choice, line)


class DiffLayout:
    """All rows of a diff."""

    def __init__(self, files: list[FileUnderReview], width: int = 80) -> None:
        self.blocks = [FileBlock(file, width) for file in files]
        self._tops: list[int] = []
        self.height = 0
        self._add_up()

    def measure(self, numbers: list[int]) -> None:
        """Count the rows of some files again."""
        for number in numbers:
            self.blocks[number].measure()
        self._add_up()

    def fit(self, width: int) -> list[int]:
        """Wrap notes within other columns. Return the numbers of the files to measure again."""
        for block in self.blocks:
            block.width = width
        return [number for number, block in enumerate(self.blocks) if block.file.noted]

    def _add_up(self) -> None:
        *self._tops, self.height = accumulate((block.height for block in self.blocks), initial=0)

    def place(self, row: int) -> DiffPlace | None:
        """Return what is in a row; None behind the last one."""
        if not 0 <= row < self.height:
            return None
        file = bisect_right(self._tops, row) - 1
        return self.blocks[file].place(row - self._tops[file], file)

    def lines_of(self, file: int, choice: int) -> int:
        """Return how many rows stand below a hunk's head."""
        return self.blocks[file].lines_of(choice) if 0 <= file < len(self.blocks) else 0

    def row_of(self, file: int, choice: int = -1) -> int:
        """Return the row of a file's head, or of a hunk's."""
        return self._tops[file] + self.blocks[file].row_of(choice) if 0 <= file < len(self._tops) else 0

    def text(self, place: DiffPlace) -> HunkText:
        """Return the hunk that a place is in."""
        block = self.blocks[place.file]
        return block.text(block.file.choices[place.choice])

    def next_hunk(self, place: tuple[int, int], step: Literal[1, -1]) -> tuple[int, int] | None:
        """Return the file and number of the next hunk that is shown, or the previous one; None if there is none.

        A file without hunks, or that is folded, counts as one.
        """
        file, choice = place
        while 0 <= file < len(self.blocks):
            shown = 0 if self.blocks[file].file.is_folded else len(self.blocks[file].file.choices)
            choice += step
            if 0 <= choice < shown:
                return file, choice
            file += step
            if not 0 <= file < len(self.blocks):
                return None
            hidden = self.blocks[file].file.is_folded or not self.blocks[file].file.choices
            if hidden:
                return file, -1
            choice = -1 if step > 0 else len(self.blocks[file].file.choices)
        return None
