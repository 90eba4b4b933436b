"""Requests about notes: what people say about branches, and what agents answer. A bound process has those of its own branch.

What a rule hides from the caller, no note tells it: such notes are left out, and of a path that may not be read the lines.
"""

import errno
import pwd
from collections.abc import Sequence

import trio
import trio.lowlevel

from agentfs_client import wire
from agentfsd.control.audit_notes import changes_nothing, told_as_event
from agentfsd.control.authorization import own_branch, own_note, own_words
from agentfsd.control.client_paths import find_path, path_of
from agentfsd.control.handler_services import Services
from agentfsd.control.note_places import SEARCHED_BYTES, NotePlace, places_of, readable_content
from agentfsd.control.operation_declaration import control_operation
from agentfsd.control.request_context import RequestContext
from agentfsd.core.branch_events import BranchEvent, EventKind
from agentfsd.core.branch_notes import AnsweredNote, NoteAuthor, NotedPlace, no_note
from agentfsd.core.noted_lines import MOST_LINES, SearchedFile
from agentfsd.core.path_resolution import ResolvedPath
from agentfsd.core.tree import join
from agentfsd.domain_errors import Refusal, invalid
from agentfsd.history import paths

_SHOWN_CHARACTERS = 200  # of a line
_AGENT = "agent"
_MOST_NAME_BYTES = 1000  # of a session


@control_operation(wire.NoteAdd, permission=own_branch("branch"), note=told_as_event)
async def add_note(services: Services, request: wire.NoteAdd, context: RequestContext) -> wire.NoteReply:
    """Add a note to a branch."""
    branch_id = _branch_id(services, request.branch, context)
    (path,) = paths.parse([path_of(request.path, request.raw_path)])
    first, last = request.line, request.last_line or request.line
    if not 0 <= first <= last < first + MOST_LINES or (first and not path):
        hint = f"give a path, and at most {MOST_LINES} lines as 12 or 12-15; the first line is 1"
        raise invalid(f"a note cannot be about lines {first} to {last}", hint, "bad-lines")
    author = await _author(context)
    noted = NotedPlace()
    if path:
        await services.flush(branch_id)
        noted = _noted(services, branch_id, path, first, last, context)
    branch_id = services.overlay.refs.branch(branch_id).id  # which may be gone by now
    note = services.overlay.notes.add(branch_id, request.text, author, noted)
    _tell(services, "note-added", note, context)
    return await _reply(services, note, context)


def _noted(services: Services, branch_id: str, path: bytes, first: int, last: int, context: RequestContext) -> NotedPlace:
    """Return what is to be remembered of a path, without symlinks, and its lines. Raises OSError if there is no such place."""
    place = find_path(services, services.overlay.trees.by_id(branch_id), path, context.credentials(), follow=False)
    was = _was_there(services, branch_id, path, context) if place.inode is None and not first else b""
    if place.inode is None and not was:
        raise Refusal(
            errno.ENOENT, "no-such-path", f"there is no {paths.shown(path)} in the branch",
            "name a path relative to the root of the workspace",
        )  # fmt: skip
    if place.inode is None:
        return NotedPlace(was)
    path = _real_path(place)
    if not first:
        return NotedPlace(path, place.inode.ino)
    if not place.inode.is_file:
        raise invalid(f"{paths.shown(path)} has no lines", "only a regular file has; leave the line out", "not-a-file")
    try:
        file = SearchedFile(readable_content(place.inode, path, context))
    except OSError as exc:
        if exc.errno != errno.EFBIG:
            raise
        hint = f"up to {SEARCHED_BYTES >> 20} MiB are searched; a note about the file takes no line"
        raise Refusal(errno.EFBIG, "file-too-large", f"{paths.shown(path)} is too large for a note about a line", hint) from exc
    if last > len(file):
        count = f"{len(file):,} line{'' if len(file) == 1 else 's'}"
        raise invalid(f"{paths.shown(path)} has {count}, and no line {last}", "the first line is 1", "bad-lines")
    return NotedPlace(path, place.inode.ino, first, file.remember(first, last))


def _real_path(place: ResolvedPath) -> bytes:
    """Return the path without symlinks: rules are about that one."""
    return join(place.directory.path, place.name) if place.name else place.directory.path


def _was_there(services: Services, branch_id: str, path: bytes, context: RequestContext) -> bytes:
    """Return the path, without symlinks, of what the branch began with there, and has deleted since; b"" for nothing."""
    with services.overlay.trees.made_from(branch_id) as tree:
        try:
            place = find_path(services, tree, path, context.credentials(), follow=False)
        except OSError:
            return b""
        was = _real_path(place) if place.inode is not None else b""
        return b"" if context.hides(was) else was


@control_operation(wire.NoteList, permission=own_branch("branch"), note=changes_nothing, cancellable=True)
async def list_notes(services: Services, request: wire.NoteList, context: RequestContext) -> wire.NotesReply:
    """List the notes of a branch."""
    branch_id = _branch_id(services, request.branch, context)
    notes = services.overlay.notes.of(branch_id)
    return await _replies(services, branch_id, [note for note in notes if request.resolved or not note.row.resolved_ns], context)


@control_operation(wire.NoteAnswerAdd, permission=own_note, note=told_as_event)
async def answer_note(services: Services, request: wire.NoteAnswerAdd, context: RequestContext) -> wire.NoteReply:
    """Answer a note."""
    author = await _author(context)
    _check_seen(services, request.id, context)
    note = services.overlay.notes.answer(request.id, request.text, author)
    _tell(services, "note-answered", note, context)
    return await _reply(services, note, context)


@control_operation(wire.NoteResolve, permission=own_words, note=told_as_event)
async def resolve_note(services: Services, request: wire.NoteResolve, context: RequestContext) -> wire.NoteReply:
    """Settle a note, or open it again."""
    author = await _author(context)
    _check_seen(services, request.id, context)
    note, is_news = services.overlay.notes.set_resolved(request.id, request.resolved, author)
    if is_news:
        _tell(services, "note-resolved" if request.resolved else "note-reopened", note, context)
    return await _reply(services, note, context)


@control_operation(wire.NoteRemove, permission=own_words, note=told_as_event)
async def remove_note(services: Services, request: wire.NoteRemove, context: RequestContext) -> wire.Done:
    """Remove a note and its answers."""
    _check_seen(services, request.id, context)
    note = services.overlay.notes.remove(request.id)
    _tell(services, "note-removed", note, context)
    return wire.Done(message=f"removed note {request.id}")


@control_operation(wire.NoteTell, permission=own_branch("branch"), note=changes_nothing, cancellable=True)
async def tell_notes(services: Services, request: wire.NoteTell, context: RequestContext) -> wire.NotesReply:
    """Return the notes of which a session was not told, and remember that it was."""
    if not request.session or len(request.session.encode()) > _MOST_NAME_BYTES:
        raise invalid(f"a session has a name of 1 to {_MOST_NAME_BYTES} bytes", "give the one that the harness has for it")
    branch_id = _branch_id(services, request.branch, context)
    notes = services.overlay.notes
    untold = notes.untold(branch_id, request.session)
    if not untold:
        return wire.NotesReply(notes=[])
    mark = notes.mark()
    seen = [note_id for note_id, path in untold if not context.hides(path)]
    described = await _replies(services, branch_id, list(map(notes.find, seen[: max(0, request.most)])), context)
    # The session counts as told only now, so that a client that has gone is told the next time: the checkpoint ends this request
    # then. Another request of the session may have told it meanwhile.
    await trio.lowlevel.checkpoint()
    still = {note_id for note_id, _ in notes.untold(branch_id, request.session)}.intersection(seen)
    notes.tell(branch_id, request.session, mark)
    shown = [note for note in described.notes if note.id in still]
    return wire.NotesReply(notes=shown, more=len(still) - len(shown))


# -- who, and what is shown


def _branch_id(services: Services, ref: str | None, context: RequestContext) -> str:
    """Return the id of the branch that is meant. A bound process means its own, whoever has that name by now."""
    return services.overlay.refs.branch(context.bound_to or ref or context.branch).id


async def _author(context: RequestContext) -> NoteAuthor:
    if context.bound_to is not None or context.peer.obeys is not None:
        return NoteAuthor(_AGENT, True)
    return NoteAuthor(await trio.to_thread.run_sync(_user, context.caller.uid), False)  # names may come over the network


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _check_seen(services: Services, note_id: int, context: RequestContext) -> None:
    if context.hides(services.overlay.notes.find(note_id).row.path):
        raise no_note(note_id)


def _tell(services: Services, kind: EventKind, note: AnsweredNote, context: RequestContext) -> None:
    event = BranchEvent(kind, note.row.branch_id, context.caller.pid, path=note.row.path, name=str(note.row.id))
    services.overlay.events.publish(event)


async def _reply(services: Services, note: AnsweredNote, context: RequestContext) -> wire.NoteReply:
    return wire.NoteReply(note=(await _replies(services, note.row.branch_id, [note], context)).notes[0])


async def _replies(services: Services, branch_id: str, notes: Sequence[AnsweredNote], context: RequestContext) -> wire.NotesReply:
    """Describe the notes that the caller may see."""
    seen = [note for note in notes if not context.hides(note.row.path)]
    places = await places_of(services, branch_id, seen, context)
    branch = services.overlay.refs.branch(branch_id).name
    return wire.NotesReply(notes=[_described(note, places[note.row.id], branch) for note in seen])


def _described(note: AnsweredNote, place: NotePlace, branch: str) -> wire.BranchNote:
    row, lines = note.row, note.lines
    texts = [_shown(line) for line in lines.shown()] if lines is not None and place.shows else []
    last = row.line + len(lines.lines) - 1 if lines is not None else 0
    return wire.BranchNote(
        **wire.path_fields(row.path), **wire.path_fields(place.path, "now_path"), id=row.id, branch=branch,
        branch_id=row.branch_id, text=row.text, author=row.author, by_agent=bool(row.by_agent), created_ns=row.created_ns,
        line=row.line, last_line=last, lines=texts, file=place.file, place=place.place, now_line=place.line,
        now_last_line=place.last_line, resolved_ns=row.resolved_ns, resolved_by=row.resolved_by,
        answers=[
            wire.NoteAnswer(
                id=one.id, text=one.text, author=one.author, by_agent=bool(one.by_agent), created_ns=one.created_ns
            )
            for one in note.answers
        ],
    )  # fmt: skip


def _shown(line: bytes) -> str:
    return line.decode("utf-8", "backslashreplace")[:_SHOWN_CHARACTERS]
