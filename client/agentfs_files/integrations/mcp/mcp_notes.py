"""Tools for the notes that people make about a branch: list them, answer one."""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Protocol, runtime_checkable

import msgspec
from msgspec import Meta

from agentfs_client import wire
from agentfs_files.integrations.mcp.mcp_refusal import McpRefused
from agentfs_files.integrations.mcp.mcp_tool import McpTool, Text, Workspace

_SHOWN_CHARACTERS = 200_000  # of all notes together
_ABOUT_LINES = {"": "", "same": "", "moved": ", moved", "outdated": ", which has changed since"}


@runtime_checkable
class NotedFilesystem(Protocol):
    """A file system about which people make notes: a branch."""

    def notes(self, *, resolved: bool = False) -> Sequence[wire.BranchNote]:
        """Return the open notes, oldest first; with *resolved*, then the others."""
        ...

    def reply_note(self, number: int, text: str) -> wire.BranchNote:
        """Answer a note."""
        ...


class ListedNote(msgspec.Struct, frozen=True, rename="camel"):
    """A note in a result. ``line`` is 0 for all of a file, and ``path`` "" for the branch as a whole."""

    id: int
    path: str
    line: int
    text: str
    author: str
    resolved: bool
    outdated: bool
    answers: Sequence[str]


class NotesResult(Text, frozen=True):
    """The result of notes_list and notes_reply."""

    notes: Sequence[ListedNote]


class ListNotes(McpTool, frozen=True):
    """List the notes that people have made about this workspace, its files and lines, with the answers to them. Read them before
    you say that work is done, and answer each with notes_reply.
    """

    name: ClassVar[str] = "notes_list"
    title: ClassVar[str] = "List notes"
    needs: ClassVar[type] = NotedFilesystem
    result: ClassVar[type[NotesResult]] = NotesResult

    all: Annotated[bool, Meta(description="Also those that are resolved.")] = False

    def run(self, workspace: Workspace) -> NotesResult:
        filesystem = workspace.filesystem
        assert isinstance(filesystem, NotedFilesystem)
        return _result(filesystem.notes(resolved=self.all), "No open notes")


class ReplyNote(McpTool, frozen=True):
    """Answer a note. A person decides then whether it is settled."""

    name: ClassVar[str] = "notes_reply"
    title: ClassVar[str] = "Answer a note"
    changes: ClassVar[bool] = True
    needs: ClassVar[type] = NotedFilesystem
    result: ClassVar[type[NotesResult]] = NotesResult

    id: Annotated[int, Meta(ge=1, description="The number of the note, as notes_list shows it.")]
    text: Annotated[str, Meta(min_length=1, description="The answer.")]

    def run(self, workspace: Workspace) -> NotesResult:
        filesystem = workspace.filesystem
        assert isinstance(filesystem, NotedFilesystem)
        if all(note.id != self.id for note in filesystem.notes(resolved=True)):
            raise McpRefused(f"there is no note {self.id} about this workspace; notes_list shows those there are")
        return _result([filesystem.reply_note(self.id, self.text)], "")


def _result(notes: Sequence[wire.BranchNote], nothing: str) -> NotesResult:
    shown: list[wire.BranchNote] = []
    left = _SHOWN_CHARACTERS
    for note in notes:
        left -= len(note.text) + sum(len(answer.text) for answer in note.answers)
        if left < 0 and shown:
            break
        shown.append(note)
    texts = [*map(_text, shown), *([f"[and {len(notes) - len(shown)} more notes]"] if len(shown) < len(notes) else [])]
    return NotesResult("\n\n".join(texts) or nothing, list(map(_listed, shown)))


def _listed(note: wire.BranchNote) -> ListedNote:
    answers = [f"{answer.author}: {answer.text}" for answer in note.answers]
    return ListedNote(
        note.id, note.now_path or note.path, note.now_line or note.line, note.text, note.author, bool(note.resolved_ns),
        note.place == "outdated", answers,
    )  # fmt: skip


def _text(note: wire.BranchNote) -> str:
    state = " (resolved)" if note.resolved_ns else ""
    quoted = [f"> {line}" for line in note.lines]
    answers = [f"{answer.author} answered: {answer.text}" for answer in note.answers]
    return "\n".join([f"#{note.id} by {note.author} about {_place(note)}{state}", *quoted, note.text, *answers])


def _place(note: wire.BranchNote) -> str:
    if not note.path:
        return "the workspace"
    path = note.now_path or note.path
    gone = ", which is gone" if note.file == "gone" else ""
    line = note.now_line or note.line
    return f"{path}{f' line {line}' if line else ''}{gone or _ABOUT_LINES[note.place]}"
