"""What a person does with notes on the screen of a branch: list, write, answer, settle, reopen."""

import errno
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from agentfs_client import wire
from agentfs_client.control import ControlClient
from agentfsd.cli.output import note_lines
from agentfsd.cli.terminal_review.diff_view import DiffView
from agentfsd.cli.terminal_review.noted_rows import head, note_rows
from agentfsd.cli.terminal_review.notes_window import ChosenNote, NotesWindow, NoteWriting, WrittenNote
from agentfsd.cli.terminal_review.review_app import ReviewApp
from agentfsd.cli.terminal_review.reviewed_branch import ReviewedBranch
from agentfsd.domain_errors import Refusal
from agentfsd.escape import printable, quoted

_COMPARED = 150  # characters of a line that are compared with what was seen


class NoteFlow:
    """The notes of the branch on the screen.

    Args:
        app: The program.
        diff: The diff that shows the branch.
        reviewed: Returns the branch as it is on the screen.
        changed: Called with all notes, when one was added or changed.
    """

    def __init__(
        self,
        app: ReviewApp,
        diff: DiffView,
        reviewed: Callable[[], ReviewedBranch | None],
        changed: Callable[[Sequence[wire.BranchNote]], None],
    ) -> None:
        self._app, self._diff, self._reviewed, self._changed = app, diff, reviewed, changed

    # -- the list

    def list(self) -> None:
        """Show all notes, with the cursor at one of the hunk on the screen."""
        if (reviewed := self._reviewed()) is not None:
            title = f"Notes on {printable(reviewed.branch.name)}" + ("" if reviewed.notes else ": none yet")
            self._app.push_screen(NotesWindow(title, reviewed.notes, self._nearest(reviewed)), self._chosen)

    def _nearest(self, reviewed: ReviewedBranch) -> int:
        file, choice = self._diff.at
        noted = reviewed.files[file].noted if file < len(reviewed.files) else []
        here = [note for note in noted if self._diff.rows.blocks[file].choice_of(note) == choice]
        return next((note.id for note in (*here, *noted)), 0)

    def _chosen(self, chosen: ChosenNote | None) -> None:
        reviewed = self._reviewed()
        if chosen is None or reviewed is None:
            return
        if chosen.verb == "add":
            self._write(reviewed, b"", None, {})
            return
        note = next((note for note in reviewed.notes if note.id == chosen.id), None)
        if note is None:
            self._app.tell("The note was removed meanwhile.", [])
        elif chosen.verb == "show":
            self._show(reviewed, note)
        elif chosen.verb == "answer":
            self._answer(note)
        else:
            said = f"Note {note.id} is {'open again' if note.resolved_ns else 'resolved'}."
            self._do(lambda daemon: daemon.resolve_note(note.id, resolved=not note.resolved_ns), said)

    def _show(self, reviewed: ReviewedBranch, note: wire.BranchNote) -> None:
        number = next((number for number, file in enumerate(reviewed.files) if note in file.noted), None)
        if number is None:
            self._app.tell(f"Note {note.id} is not about a file that differs.", [note_lines.place(note)])
            return
        if reviewed.files[number].is_folded:
            reviewed.files[number].is_folded = False
            self._diff.remeasure([number])
        self._diff.show_note(number, note)

    # -- writing

    def write(self) -> None:
        """Write a note on the hunk or file on the screen; on the branch if it has no files."""
        reviewed = self._reviewed()
        if reviewed is None:
            return
        number, choice = self._diff.at
        if number >= len(reviewed.files):
            self._write(reviewed, b"", None, {})
            return
        file = reviewed.files[number]
        first = last = 0
        seen = dict[int, str]()
        if file.change.status != "D":
            texts = [self._diff.rows.blocks[number].text(each) for each in file.choices]
            if 0 <= choice < len(texts) and not file.is_folded:
                first, last = texts[choice].changed
            for text in texts:
                seen |= text.shown_lines
        lines = "" if not first else f"{first}" if first == last else f"{first}-{min(last, first + 49)}"
        self._write(reviewed, file.path, lines if file.change.status != "D" else None, seen)

    def _write(self, reviewed: ReviewedBranch, path: bytes, lines: str | None, seen: Mapping[int, str]) -> None:
        name = printable(reviewed.branch.name)
        title = f"Note on {quoted(path)} in {name}" if path else f"Note on {name}"

        def written(what: WrittenNote | None) -> None:
            if what is not None:
                self._do(partial(_add, branch=reviewed.branch.id, path=path, what=what, seen=seen), "The note is stored.")

        self._app.push_screen(NoteWriting(title, lines), written)

    def _answer(self, note: wire.BranchNote) -> None:
        said = [row.text for row in note_rows(note, self._app.size.width)[1:]]

        def written(what: WrittenNote | None) -> None:
            if what is not None:
                self._do(lambda daemon: daemon.reply_note(note.id, what.text), f"Note {note.id} is answered.")

        self._app.push_screen(NoteWriting(f"Answer {head(note)}", None, said), written)

    def _do(self, what: Callable[[ControlClient], wire.BranchNote], said: str) -> None:
        def work(daemon: ControlClient) -> Sequence[wire.BranchNote]:
            return daemon.list_notes(what(daemon).branch_id, resolved=True)

        def done(notes: Sequence[wire.BranchNote]) -> None:
            self._changed(notes)
            self._app.notify(said, timeout=2, markup=False)

        self._app.ask(work, done)


def _add(daemon: ControlClient, branch: str, path: bytes, what: WrittenNote, seen: Mapping[int, str]) -> wire.BranchNote:
    """Add a note, unless a line that it is about is another than the one that was seen. AgentFSError, Refusal."""
    made = daemon.add_note(what.text, branch, path=path, line=what.line, last_line=what.last_line)
    for number, line in enumerate(made.lines, made.line):
        if number in seen and line[:_COMPARED] != seen[number][:_COMPARED]:
            daemon.remove_note(made.id)
            raise Refusal(
                errno.EBUSY, "note-stale", f"line {number} of {quoted(path)} was changed since it was read",
                "The note was not stored. `r` reads the branch again.",
            )  # fmt: skip
    return made
