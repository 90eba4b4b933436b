"""The operations on notes. This module knows no transport."""

from agentfs_client import wire
from agentfs_client.question import Question, ask, no_result, operation


class NoteOperations:
    """What a client says and asks in notes about branches.

    Raises:
        AgentFSError: every method raises it if the daemon refuses the request.
    """

    @operation
    def add_note(
        self, text: str, branch: str | None = None, *, path: str | bytes = "", line: int = 0, last_line: int = 0
    ) -> Question[wire.BranchNote]:
        """Add a note to a branch, and return it.

        Args:
            text: the text, at most 16 KiB.
            branch: the branch; None means the caller's.
            path: the file or directory that it is about, relative to the root; "" for the branch as a whole.
            line: the line that it is about, from 1; 0 for all of the file.
            last_line: the last one of several lines.
        """
        raw = path if isinstance(path, bytes) else b""
        named = path if isinstance(path, str) else ""
        request = wire.NoteAdd(branch=branch, text=text, path=named, raw_path=raw, line=line, last_line=last_line)
        return ask(request, wire.NoteReply, _note)

    @operation
    def list_notes(self, branch: str | None = None, *, resolved: bool = False) -> Question[list[wire.BranchNote]]:
        """Return the open notes of a branch, oldest first; with *resolved*, then the others."""
        return ask(wire.NoteList(branch=branch, resolved=resolved), wire.NotesReply, lambda reply: reply.notes)

    @operation
    def reply_note(self, number: int, text: str) -> Question[wire.BranchNote]:
        """Answer a note, given by its id, and return it."""
        return ask(wire.NoteAnswerAdd(id=number, text=text), wire.NoteReply, _note)

    @operation
    def resolve_note(self, number: int, *, resolved: bool = True) -> Question[wire.BranchNote]:
        """Settle a note, or open it again, and return it."""
        return ask(wire.NoteResolve(id=number, resolved=resolved), wire.NoteReply, _note)

    @operation
    def remove_note(self, number: int) -> Question[None]:
        """Remove a note and its answers."""
        return ask(wire.NoteRemove(id=number), wire.Done, no_result)

    @operation
    def tell_notes(self, session: str, branch: str | None = None, *, most: int = 5) -> Question[wire.NotesReply]:
        """Return the open notes of which a session was not told, and consider it told. See wire.NoteTell."""
        return ask(wire.NoteTell(session=session, branch=branch, most=most), wire.NotesReply)


def _note(reply: wire.NoteReply) -> wire.BranchNote:
    return reply.note
