"""Finds what a form has stored when it was sent before, and the answer was lost: the daemon may have died after it stored it."""

import threading
import time
from collections.abc import Sequence

from agentfs_client import wire

_MOST = 1_000  # forms that are remembered
_LONGEST = 100  # characters of the text by which a form is known


class SentForms:
    """The forms that were sent, by a text that each page makes for each form."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._first_ns: dict[str, int] = {}

    def first_sent(self, once: str) -> int:
        """Return when a form was sent before, in ns since the epoch; 0 if it was not. From now on it was."""
        if not once:
            return 0
        with self._turn:
            known = self._first_ns.get(once[:_LONGEST], 0)
            if not known:
                self._first_ns[once[:_LONGEST]] = time.time_ns()
                while len(self._first_ns) > _MOST:
                    del self._first_ns[next(iter(self._first_ns))]
            return known


def stored_note(notes: Sequence[wire.BranchNote], since_ns: int, text: str, path: bytes, line: int) -> wire.BranchNote | None:
    """Return the note that a person has stored since a time with that text and place; None if there is none."""
    return next(
        (
            note
            for note in notes
            if note.created_ns >= since_ns and not note.by_agent and (note.path_bytes, note.line) == (path, line)
            and same_text(note.text, text)
        ),
        None,
    )  # fmt: skip


def has_answer(note: wire.BranchNote, since_ns: int, text: str) -> bool:
    """Tell whether a person has answered a note with that text since a time."""
    return any(one.created_ns >= since_ns and not one.by_agent and same_text(one.text, text) for one in note.answers)


def same_text(stored: str, sent: str) -> bool:
    """Tell whether a text is stored as another one that was sent: the ends of lines and of the text are made plain."""
    return stored.strip() == sent.replace("\r\n", "\n").strip()
