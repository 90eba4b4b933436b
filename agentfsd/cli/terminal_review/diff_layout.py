"""Which file, hunk and line stands in which row of one long diff. Rows have no objects of their own."""

from bisect import bisect_right
from itertools import accumulate
from typing import Literal, NamedTuple

from agentfsd.cli.terminal_review.hunk_text import HunkText
from agentfsd.cli.terminal_review.reviewed_branch import Choice, FileUnderReview

Kind = Literal["file", "note", "hunk", "line", "blank"]


class DiffPlace(NamedTuple):
    """What a row shows. ``choice`` and ``line`` count from 0; -1: none."""

    kind: Kind
    file: int
    choice: int = -1
    line: int = -1


class FileBlock:
    """The rows of one file: its head, notes, hunks with their lines, and a blank row."""

    def __init__(self, file: FileUnderReview) -> None:
        self.file = file
        self._texts: dict[int, tuple[Choice, HunkText]] = {}  # by the choice's id
        self._starts: list[int] = []  # the row of each hunk's head
        self.height = 0
        self.measure()

    def measure(self) -> None:
        """Count the rows again, after the file was read, folded or split."""
        self._texts = {id(choice): self._texts[id(choice)] for choice in self.file.choices if id(choice) in self._texts}
        if self.file.is_folded:
            self._starts, self.height = [], 2
            return
        at, self._starts = 1 + len(self.notes), []
        for choice in self.file.choices:
            self._starts.append(at)
            at += 1 + len(self.text(choice))
        self.height = at + 1

    @property
    def notes(self) -> list[str]:
        return self.file.notes if self.file.is_read else ["reading ..."]

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

    def place(self, row: int, file: int) -> DiffPlace:
        """Return what is in a row. *file*: the number of this file."""
        if row == 0:
            return DiffPlace("file", file)
        if row == self.height - 1:
            return DiffPlace("blank", file, len(self._starts) - 1)
        if not self._starts or row < self._starts[0]:
            return DiffPlace("note", file, -1, row - 1)
        choice = bisect_right(self._starts, row) - 1
        line = row - self._starts[choice] - 1
        return DiffPlace("hunk", file, choice) if line < 0 else DiffPlace("line", file, choice, line)


class DiffLayout:
    """All rows of a diff."""

    def __init__(self, files: list[FileUnderReview]) -> None:
        self.blocks = [FileBlock(file) for file in files]
        self._tops: list[int] = []
        self.height = 0
        self._add_up()

    def measure(self, numbers: list[int]) -> None:
        """Count the rows of some files again."""
        for number in numbers:
            self.blocks[number].measure()
        self._add_up()

    def _add_up(self) -> None:
        *self._tops, self.height = accumulate((block.height for block in self.blocks), initial=0)

    def place(self, row: int) -> DiffPlace | None:
        """Return what is in a row; None behind the last one."""
        if not 0 <= row < self.height:
            return None
        file = bisect_right(self._tops, row) - 1
        return self.blocks[file].place(row - self._tops[file], file)

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
