"""Notes about branches: what people and agents say about a branch or a place in it, and the answers.

They belong to the branch, not to its state: a restore or a commit leaves them alone, a branch made from another begins without
any, and a discarded branch that comes back has its own again.
"""

import errno
import time
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from agentfsd.core.noted_lines import NotedLines
from agentfsd.core.overlay_state import OverlayState
from agentfsd.domain_errors import Refusal, invalid
from agentfsd.metadata import note_rows
from agentfsd.metadata.rows import NoteRow

TEXT_BYTES = 16 << 10  # of one note or answer
MOST = 5_000  # notes and answers of a branch
MOST_BYTES = 8 << 20  # of all of them
_FOR_PEOPLE = 5  # one part in so many of both limits is left to people
_SESSIONS = 200  # of a branch whose news are remembered


class NoteAuthor(NamedTuple):
    """Who writes. *name*: for people. *is_agent*: a process of the branch, or one that acts for an agent in it."""

    name: str
    is_agent: bool


class NotedPlace(NamedTuple):
    """What a note is about.

    Attributes:
        path: The path; b"" for the branch as a whole.
        ino: The number of what is there; 0 if it is gone.
        line: The first of the lines, from 1; 0 for all of the file.
        lines: What is remembered of them; None for no lines.
    """

    path: bytes = b""
    ino: int = 0
    line: int = 0
    lines: NotedLines | None = None


class AnsweredNote(NamedTuple):
    """A note with the answers to it, oldest first."""

    row: NoteRow
    answers: list[NoteRow]

    @property
    def is_of_person(self) -> bool:
        """Whether a person wrote it, answered it or opened it again."""
        return not self.row.by_agent or bool(self.row.news)

    @property
    def lines(self) -> NotedLines | None:
        """The lines that it is about; None if it is about no line."""
        return msgspec.msgpack.decode(self.row.lines, type=NotedLines) if self.row.line else None


class BranchNotes:
    """The notes of one overlay's branches."""

    def __init__(self, state: OverlayState) -> None:
        self._state = state

    # -- writing

    def add(self, branch_id: str, text: str, author: NoteAuthor, place: NotedPlace) -> AnsweredNote:
        """Add a note about a place in a branch.

        Raises:
            Refusal: ``empty-note``, ``note-too-long`` or ``too-many-notes``.
        """
        with self._state.store.transaction():
            row = self._put(branch_id, 0, text, author, place)
        return AnsweredNote(row, [])

    def answer(self, note_id: int, text: str, author: NoteAuthor) -> AnsweredNote:
        """Answer a note. Raises as find() and add()."""
        note = self.find(note_id).row
        with self._state.store.transaction():
            row = self._put(note.branch_id, note.id, text, author, NotedPlace())
            if row.news:
                note_rows.change(self._state.store, note._replace(news=row.news))
        return self.find(note_id)

    def _put(self, branch_id: str, answers: int, text: str, author: NoteAuthor, place: NotedPlace) -> NoteRow:
        """Store a note, or an answer to one, in the open transaction."""
        text, lines = _checked(text), msgspec.msgpack.encode(place.lines) if place.lines is not None else b""
        size = len(text.encode()) + len(lines) + len(place.path)
        self._check_room(branch_id, size, is_agent=author.is_agent)
        number = note_rows.next_number(self._state.store)
        row = NoteRow(
            number, branch_id, answers, 0, 0 if author.is_agent else number, size, int(author.is_agent), time.time_ns(),
            author.name, "", place.path, place.ino, place.line, lines, text,
        )  # fmt: skip
        note_rows.put(self._state.store, row)
        return row

    def _check_room(self, branch_id: str, size: int, *, is_agent: bool) -> None:
        count, held = note_rows.amount(self._state.store, branch_id)
        most, most_bytes = MOST, MOST_BYTES
        if is_agent:
            most, most_bytes = most - most // _FOR_PEOPLE, most_bytes - most_bytes // _FOR_PEOPLE
        if count < most and held + size <= most_bytes:
            return
        limit = f"{most:,} notes and answers" if count >= most else f"{most_bytes >> 20} MiB of notes and answers"
        raise Refusal(
            errno.EFBIG, "too-many-notes", f"the branch has all that may be: {limit}", "remove some: `agentfsd notes remove ID`"
        )

    def set_resolved(self, note_id: int, resolved: bool, author: NoteAuthor) -> tuple[AnsweredNote, bool]:
        """Settle a note, or open it again. Return it, and whether that changed it. Raises as find()."""
        note, store = self.find(note_id), self._state.store
        if bool(note.row.resolved_ns) == resolved:
            return note, False
        with store.transaction():
            news = note.row.news if resolved or author.is_agent else note_rows.next_number(store)
            row = note.row._replace(
                resolved_ns=time.time_ns() if resolved else 0, resolved_by=author.name if resolved else "", news=news
            )
            note_rows.change(store, row)
        return note._replace(row=row), True

    def remove(self, note_id: int) -> AnsweredNote:
        """Remove a note and its answers, and return what they were. Raises as find()."""
        note = self.find(note_id)
        with self._state.store.transaction():
            note_rows.delete(self._state.store, note.row)
        return note

    # -- looking

    def find(self, note_id: int) -> AnsweredNote:
        """Return a note by its id.

        Raises:
            Refusal: ``no-such-note``, also for one of a branch that is gone.
        """
        row = note_rows.find(self._state.store, note_id) if 0 < note_id < 1 << 63 else None
        if row is None or row.answers or row.branch_id not in self._state.branches:
            raise no_note(note_id)
        return AnsweredNote(row, note_rows.answers(self._state.store, row))

    def of(self, branch_id: str) -> list[AnsweredNote]:
        """Return the notes of a branch: the open ones, oldest first, then the others."""
        rows = note_rows.read(self._state.store, branch_id)
        notes = {row.id: AnsweredNote(row, []) for row in rows if not row.answers}
        for row in rows:
            if row.answers in notes:
                notes[row.answers].answers.append(row)
        return sorted(notes.values(), key=lambda note: (bool(note.row.resolved_ns), note.row.id))

    def open_counts(self) -> dict[str, int]:
        """Return the number of open notes by branch id, of branches that have some."""
        return note_rows.open_counts(self._state.store)

    # -- telling sessions

    def untold_count(self, branch_id: str, session: str) -> int:
        """Return how many open notes of a branch a session was not told of, or not since a person said more about them."""
        return note_rows.untold_count(self._state.store, branch_id, session)

    def untold(self, branch_id: str, session: str) -> list[tuple[int, bytes]]:
        """Return the ids and paths of these notes, the oldest news first."""
        return note_rows.untold(self._state.store, branch_id, session)

    def mark(self) -> int:
        """Return a number for tell(): all news until now are below it."""
        with self._state.store.transaction():
            return note_rows.next_number(self._state.store)

    def tell(self, branch_id: str, session: str, mark: int) -> None:
        """Remember that a session was told of the news below a mark. A branch forgets the sessions that were told first."""
        with self._state.store.transaction():
            note_rows.tell(self._state.store, branch_id, session, mark, _SESSIONS)

    # -- branches

    def forget_gone(self, branch_ids: Sequence[str] | set[str]) -> None:
        """Delete the notes of branches that are none of these: nothing can bring them back."""
        gone = note_rows.branches(self._state.store) - set(branch_ids)
        if gone:
            with self._state.store.transaction():
                for branch_id in gone:
                    note_rows.delete_branch(self._state.store, branch_id)


def no_note(note_id: int) -> Refusal:
    """Return the refusal for a note that does not exist."""
    return Refusal(errno.ENOENT, "no-such-note", f"there is no note {note_id}", "`agentfsd notes list BRANCH` shows them")


def _checked(text: str) -> str:
    """Return a text with plain ends of lines. Refusal if it is empty or too long."""
    plain = text.replace("\r\n", "\n").strip("\n")
    if not plain.strip():
        raise invalid("a note needs a text", "give it as the last argument, or on standard input with -", "empty-note")
    if len(plain.encode()) > TEXT_BYTES:
        raise invalid(
            f"the note has {len(plain.encode()):,} bytes, and at most {TEXT_BYTES:,} are kept", "say the rest in a second one",
            "note-too-long",
        )  # fmt: skip
    return plain
