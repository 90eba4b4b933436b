"""The messages about notes: what a person says about a branch, its files or their lines, and the answers to that."""

from typing import Literal

import msgspec

from agentfs_client.facts import PathName, exact_path
from agentfs_client.message import Reply, Request


class NoteAnswer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An answer to a note. The fields are as in BranchNote."""

    id: int
    text: str
    author: str
    by_agent: bool
    created_ns: int


class BranchNote(PathName, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A note about a branch, or about a file, a directory or lines in it.

    ``path``, ``line`` and ``last_line`` are what it was made about: "" for the branch as a whole, 0 for all of a file. ``lines``
    are these lines as they were then, each cut to 200 characters.

    ``file`` says what became of the path: there, renamed, gone, or unread (the caller may not read it, or it is too large to be
    searched); "" for a note about the branch. ``now_path`` is where the file is now, "" if it is gone. ``place`` says what became
    of the lines: same, moved, or outdated (they changed); "" if that is not known, and for a note about no line. ``now_line`` and
    ``now_last_line`` are where they are now, 0 if they are nowhere.

    ``author`` is a user's name, or agent. ``by_agent``: a process of the branch made it. ``resolved_ns`` is 0 while it is open.
    """

    id: int
    branch: str
    branch_id: str
    text: str
    author: str
    by_agent: bool
    created_ns: int
    line: int = 0
    last_line: int = 0
    lines: list[str] = []
    file: Literal["", "there", "renamed", "gone", "unread"] = ""
    now_path: str = ""
    raw_now_path: str = ""
    place: Literal["", "same", "moved", "outdated"] = ""
    now_line: int = 0
    now_last_line: int = 0
    resolved_ns: int = 0
    resolved_by: str = ""
    answers: list[NoteAnswer] = []

    @property
    def now_path_bytes(self) -> bytes:
        return exact_path(self.now_path, self.raw_now_path)


class NoteAdd(Request, frozen=True, kw_only=True, tag="note.add"):
    """Add a note to a branch.

    ``path`` is relative to the root; "" is the branch as a whole. ``raw_path`` is the same for a name that is not UTF-8 (base64
    in JSON). ``line`` to ``last_line``, from 1, are the lines that it is about; 0: all of the file. A bound caller adds notes to
    its own branch only.
    """

    branch: str | None = None
    text: str
    path: str = ""
    raw_path: bytes = b""
    line: int = 0
    last_line: int = 0


class NoteList(Request, frozen=True, kw_only=True, tag="note.list"):
    """Ask for the notes of a branch: the open ones, oldest first, and with ``resolved`` then the others."""

    branch: str | None = None
    resolved: bool = False


class NoteAnswerAdd(Request, frozen=True, kw_only=True, tag="note.answer"):
    """Answer a note. A bound caller answers notes of its own branch only."""

    id: int
    text: str


class NoteResolve(Request, frozen=True, kw_only=True, tag="note.resolve"):
    """Settle a note, or with ``resolved`` false open it again. A process of a branch may do so with its branch's own
    notes, until a person answers them.
    """

    id: int
    resolved: bool = True


class NoteRemove(Request, frozen=True, kw_only=True, tag="note.remove"):
    """Remove a note and its answers. A process of a branch may do so as in NoteResolve."""

    id: int


class NoteTell(Request, frozen=True, kw_only=True, tag="note.tell"):
    """Ask for the open notes of which a session of an agent was not told, and consider it told of all of them.

    That counts each note again once a person has answered it or opened it again. At most ``most`` notes are returned.
    """

    session: str
    branch: str | None = None
    most: int = 5


class NoteReply(Reply, frozen=True, kw_only=True, tag="note"):
    note: BranchNote


class NotesReply(Reply, frozen=True, kw_only=True, tag="notes"):
    """Notes. ``more`` counts those that the reply leaves out."""

    notes: list[BranchNote]
    more: int = 0
