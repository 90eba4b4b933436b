"""Where notes belong now: finds the files and lines that they were made about, as the caller may see them."""

import errno
import os
from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple

from agentfsd.control.client_paths import find_path
from agentfsd.control.cooperative import Steps, drive
from agentfsd.control.handler_services import Services
from agentfsd.control.request_context import RequestContext
from agentfsd.core import inode_stat, permissions
from agentfsd.core.branch_notes import AnsweredNote
from agentfsd.core.noted_lines import SearchedFile
from agentfsd.core.permissions import READ, Credentials
from agentfsd.core.rule_checks import RuledCaller
from agentfsd.core.tree import Inode
from agentfsd.core.whole_contents import content_of
from agentfsd.types import PathChange

SEARCHED_BYTES = 4 << 20  # a larger file is not searched for lines

_MOST_READ = 50  # files that are read to find where a renamed one is

_File = Literal["", "there", "renamed", "gone", "unread"]
_Place = Literal["", "same", "moved", "outdated"]


class NotePlace(NamedTuple):
    """Where a note belongs now. The fields are as in wire.BranchNote; *shows*: the caller may see the lines."""

    file: _File = ""
    path: bytes = b""
    place: _Place = ""
    line: int = 0
    last_line: int = 0
    shows: bool = True


async def places_of(
    services: Services, branch_id: str, notes: Sequence[AnsweredNote], context: RequestContext
) -> dict[int, NotePlace]:
    """Return where each note of a branch belongs now, by the id of the note."""
    paths = {note.row.path for note in notes if note.row.path}
    if not paths:
        return {note.row.id: NotePlace() for note in notes}
    await services.flush(branch_id)
    now = await drive(_present(services, branch_id, paths, context), context)
    gone = [note for note in notes if note.row.path and not now[note.row.path]]
    if gone:
        renamed = await _renamed(services, branch_id, gone, context)
        now |= {path: new for path, new in renamed.items() if not context.hides(new)}
    return await drive(_placed(services, branch_id, notes, now, context), context)


def _who(context: RequestContext) -> Credentials:
    """Return what the caller may do. Nobody is asked about a path only because a note is about it."""
    who = context.credentials()
    return who if who.ruled is None else who._replace(ruled=RuledCaller(who.ruled.rules))


def _present(services: Services, branch_id: str, paths: Collection[bytes], context: RequestContext) -> Steps[dict[bytes, bytes]]:
    """Map each path to itself if it exists, else to b""."""
    found: dict[bytes, bytes] = {}
    for done, path in enumerate(paths):
        found[path] = path if _exists(services, branch_id, path, context) else b""
        yield done, len(paths), "looking for files"
    return found


def _exists(services: Services, branch_id: str, path: bytes, context: RequestContext) -> bool:
    """Return whether a path exists, or might: one that the caller may not look up is not gone."""
    tree = services.overlay.trees.by_id(branch_id)
    try:
        return find_path(services, tree, path, _who(context), follow=False).inode is not None
    except OSError as exc:
        return exc.errno not in (errno.ENOENT, errno.ENOTDIR)


async def _renamed(
    services: Services, branch_id: str, gone: Sequence[AnsweredNote], context: RequestContext
) -> dict[bytes, bytes]:
    """Return the new paths of those that notes are about and that are gone, where the branch has renamed them."""
    with services.overlay.trees.made_from(branch_id) as old:
        new = services.overlay.trees.by_id(branch_id)
        changes: list[PathChange] = await drive(services.overlay.comparison.diff_in_steps(old, new), context)
    renamed = {change.old_path: change.path for change in changes if change.old_path}
    paths = {note.row.path for note in gone}
    found = {path: where for path in paths if (where := _new_name(path, renamed))}
    came = [change.path for change in changes if change.status in "AR"]
    return found | await drive(_came(services, branch_id, [note for note in gone if note.row.path not in found], came, context))


def _came(
    services: Services, branch_id: str, gone: Sequence[AnsweredNote], came: Sequence[bytes], context: RequestContext
) -> Steps[dict[bytes, bytes]]:
    """Find files that the branch itself has made, or has written anew since, and renamed: by their number, or by noted lines."""
    found: dict[bytes, bytes] = {}
    numbers = {note.row.ino: note.row.path for note in gone if note.row.ino}
    for done, path in enumerate(came if numbers else ()):
        inode = _inode_at(services, branch_id, path, context)
        if inode is not None and inode.ino in numbers:
            found[numbers[inode.ino]] = path
        yield done, len(came), "looking for renamed files"
    with_lines = [note for note in gone if note.lines is not None and note.row.path not in found]
    alike = [path for path in came if any(_is_alike(path, note.row.path) for note in with_lines)]
    for done, path in enumerate(alike[:_MOST_READ]):
        file = _searched(services, branch_id, path, context)
        for note in with_lines:
            if isinstance(file, SearchedFile) and _is_alike(path, note.row.path) and _was_in(file, note):
                found.setdefault(note.row.path, path)
        yield done, len(alike), "looking for renamed files"
    return found


def _was_in(file: SearchedFile, note: AnsweredNote) -> bool:
    return note.lines is not None and file.has_all(note.lines, note.row.line)


def _is_alike(path: bytes, other: bytes) -> bool:
    """Return whether two paths have the same name, or names that end alike."""
    return os.path.basename(path) == os.path.basename(other) or os.path.splitext(path)[1] == os.path.splitext(other)[1]


def _inode_at(services: Services, branch_id: str, path: bytes, context: RequestContext) -> Inode | None:
    try:
        tree = services.overlay.trees.by_id(branch_id)
        return find_path(services, tree, path, _who(context), follow=False).inode
    except OSError:
        return None


def _new_name(path: bytes, renamed: dict[bytes, bytes]) -> bytes:
    """Return the new path of what was renamed, itself or with a directory above it; b"" if it was not."""
    at, rest = path, b""
    while at:
        if at in renamed:
            return renamed[at] + rest
        at, slash, name = at.rpartition(b"/")
        rest = slash + name + rest
    return b""


def _placed(
    services: Services, branch_id: str, notes: Sequence[AnsweredNote], now: dict[bytes, bytes], context: RequestContext
) -> Steps[dict[int, NotePlace]]:
    found: dict[int, NotePlace] = {}
    files: dict[bytes, SearchedFile | _File] = {}
    for done, note in enumerate(sorted(notes, key=lambda note: note.row.path)):
        path = now.get(note.row.path, b"")
        if path and path not in files:
            files = {path: _searched(services, branch_id, path, context)}  # one at a time: they may be large
        found[note.row.id] = _place(note, path, files.get(path, "gone"), context)
        yield done, len(notes), "looking for lines"
    return found


def _place(note: AnsweredNote, path: bytes, file: SearchedFile | _File, context: RequestContext) -> NotePlace:
    row, lines = note.row, note.lines
    if not row.path:
        return NotePlace()
    shows = not context.keeps_back(row.path, path)
    if file == "gone":
        return NotePlace("gone", b"", "outdated" if row.line else "", shows=shows)
    state: _File = "there" if path == row.path else "renamed"
    if lines is None:
        return NotePlace(state, path)
    if not isinstance(file, SearchedFile):
        return NotePlace(file or state, path, "" if file == "unread" else "outdated", shows=shows and file != "unread")
    line = file.find(lines, row.line)
    if not line:
        return NotePlace(state, path, "outdated", shows=shows)
    return NotePlace(state, path, "same" if line == row.line else "moved", line, line + len(lines.lines) - 1, shows)


def _searched(services: Services, branch_id: str, path: bytes, context: RequestContext) -> SearchedFile | _File:
    """Return a file whose lines can be searched; "unread" if the caller may not read it, "" if it has no lines."""
    try:
        tree = services.overlay.trees.by_id(branch_id)
        inode = find_path(services, tree, path, _who(context), follow=False).inode
        if inode is None:
            return "gone"
        if not inode.is_file:
            return ""
        return SearchedFile(readable_content(inode, path, context) or b"")
    except OSError:
        return "unread"


def readable_content(inode: Inode, path: bytes, context: RequestContext) -> bytes:
    """Return the content of a file.

    Raises:
        PermissionError: The caller may not read it, or would have to ask.
        OSError: EFBIG for a file above SEARCHED_BYTES.
    """
    if context.keeps_back(path, inode.path):
        raise PermissionError(errno.EACCES, "a rule keeps the content of that path from you")
    permissions.check(inode, READ, context.credentials())
    if inode_stat.attributes(inode).size > SEARCHED_BYTES:
        raise OSError(errno.EFBIG, "the file is too large to be searched for lines")
    return content_of(inode)
