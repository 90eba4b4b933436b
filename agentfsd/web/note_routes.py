"""The notes on the page that reviews a branch: what people and agents say about it, and the forms that add, answer and settle.

Reading is in GET. What changes something is in POST, whose form the guard has checked. Texts are sent as texts, never as HTML.
"""

import errno
from collections.abc import Sequence

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agentfs_client import wire
from agentfsd.domain_errors import Refusal, invalid
from agentfsd.web.display_text import ago, clock, key, path_of, readable, visible
from agentfsd.web.overlay_model import LiveOverlay
from agentfsd.web.page_rendering import Pages, answer
from agentfsd.web.query_params import QueryParams
from agentfsd.web.review_routes import branch_of
from agentfsd.web.sent_forms import SentForms, has_answer, stored_note

_COMPARED_CHARACTERS = 150  # of a line that the page shows, with the line that the note is about


class ShownAnswer(msgspec.Struct, kw_only=True):
    """An answer to a note, for a page."""

    text: str
    author: str
    agent: bool
    when: str
    clock: str


class ShownNote(ShownAnswer, kw_only=True):
    """A note, for a page.

    Attributes:
        id: Its number.
        key: The path, encoded for addresses; "" for a note about the branch, or about a file that is gone.
        path: The path, for people.
        line: The line below which it stands; 0 if that is none, or is not known any more.
        last_line: The last one of several lines.
        about: The place and what became of it, in words.
        lines: The lines as they were, if they are not any more.
        resolved: By whom it was settled; "" while it is open.
        answers: The answers, oldest first.
    """

    id: int
    key: str
    path: str
    line: int
    last_line: int
    about: str
    lines: list[str]
    resolved: str
    answers: list[ShownAnswer]


class NoteRoutes:
    """What the page that reviews a branch asks about notes."""

    def __init__(self, pages: Pages, overlay: LiveOverlay) -> None:
        self._pages, self._overlay, self._sent = pages, overlay, SentForms()

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/api/notes", self.notes),
            Route("/api/notes/add", self.add, methods=["POST"]),
            Route("/api/notes/answer", self.answer, methods=["POST"]),
            Route("/api/notes/resolve", self.resolve, methods=["POST"]),
        ]

    def notes(self, request: Request) -> Response:
        """Answer with the notes of ``branch``: the open ones first, then the others."""
        with self._overlay.client() as client:
            found = client.list_notes(QueryParams(request).text("branch"), resolved=True)
        return answer(list(map(_shown, found)))

    def add(self, request: Request) -> Response:
        """Add a note. ``path`` and ``line`` say what about; ``seen`` is the text of the line on the page."""
        self._check()
        path, line = path_of(_field(request, "path", "")), _number(request, "line", 0)
        with self._overlay.client() as client:
            branch = branch_of(client, request)
            where = path.encode("utf-8", "surrogateescape")
            if since_ns := self._sent.first_sent(_field(request, "once", "")):
                notes = client.list_notes(branch.id, resolved=True)
                known = stored_note(notes, since_ns, _field(request, "text"), where, line)
                if known is not None:
                    return answer(_shown(known))
            made = client.add_note(_field(request, "text"), branch.id, path=where, line=line)
            seen = _field(request, "seen", "") if line else ""
            if seen and not _is_seen(made.lines, seen):
                client.remove_note(made.id)
                raise Refusal(
                    errno.EBUSY, "note-stale", f"line {line} of {visible(path)} was changed since this page showed it",
                    "load the page again",
                )  # fmt: skip
        return answer(_shown(made))

    def answer(self, request: Request) -> Response:
        """Answer the note ``id``."""
        self._check()
        with self._overlay.client() as client:
            number, text = _number(request, "id"), _field(request, "text")
            if since_ns := self._sent.first_sent(_field(request, "once", "")):
                notes = client.list_notes(_field(request, "branch"), resolved=True)
                known = next((note for note in notes if note.id == number), None)
                if known is not None and has_answer(known, since_ns, text):
                    return answer(_shown(known))
            return answer(_shown(client.reply_note(number, text)))

    def resolve(self, request: Request) -> Response:
        """Settle the note ``id``; with ``open`` open it again."""
        self._check()
        with self._overlay.client() as client:
            return answer(_shown(client.resolve_note(_number(request, "id"), resolved=not _field(request, "open", ""))))

    def _check(self) -> None:
        if not self._pages.writable:
            raise HTTPException(403, "This page only looks; `agentfsd ui --write` offers to write notes.")


def _is_seen(lines: Sequence[str], seen: str) -> bool:
    """Return whether a line is the one that the page shows, which may be cut or escaped."""
    return bool(lines) and readable(lines[0])[:_COMPARED_CHARACTERS] == seen[:_COMPARED_CHARACTERS]


def _shown(note: wire.BranchNote) -> ShownNote:
    path = (note.now_path_bytes or note.path_bytes).decode("utf-8", "surrogateescape")
    here = note.file not in ("", "gone")
    return ShownNote(
        id=note.id, text=readable(note.text), author=visible(note.author), agent=note.by_agent, when=ago(note.created_ns),
        clock=clock(note.created_ns), key=key(path) if here else "", path=visible(path), line=note.now_line if here else 0,
        last_line=note.now_last_line if here else 0, about=_about(note),
        lines=[readable(line) for line in note.lines] if note.line and not note.now_line else [],
        resolved=visible(note.resolved_by) if note.resolved_ns else "",
        answers=[
            ShownAnswer(
                text=readable(one.text), author=visible(one.author), agent=one.by_agent, when=ago(one.created_ns),
                clock=clock(one.created_ns),
            )
            for one in note.answers
        ],
    )  # fmt: skip


def _about(note: wire.BranchNote) -> str:
    """Say what a note is about, and what became of that."""
    if not note.path_bytes:
        return "the branch"
    path = (note.now_path_bytes or note.path_bytes).decode("utf-8", "surrogateescape")
    first, last = (note.now_line, note.now_last_line) if note.now_line else (note.line, note.last_line)
    place = visible(path) + (f":{first}" if first else "") + (f"-{last}" if last > first else "")
    words = []
    if note.file == "gone":
        words.append("which is gone")
    elif note.file == "renamed":
        words.append(f"which was {visible(note.path_bytes.decode('utf-8', 'surrogateescape'))}")
    if note.place == "outdated" and note.file != "gone":
        words.append("outdated: the line has changed")
    elif note.place == "moved":
        words.append(f"which was line {note.line}")
    return ", ".join([place, *words])


def _number(request: Request, name: str, default: int | None = None) -> int:
    text = _field(request, name, "" if default is not None else None)
    if not text and default is not None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise invalid(f"{name} is no number: {visible(text)}", "load the page again")
    return int(text)


def _field(request: Request, name: str, default: str | None = None) -> str:
    value: str | None = request.state.form.get(name, default)
    if value is None:
        raise ValueError(f"the form says no {name}")
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
