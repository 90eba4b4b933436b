"""Prepares a conflict that a merge has left for a page: what clashes, in three columns, and what was seen of it.

It reads the daemon's versions of a path, and decides nothing.
"""

from typing import Literal

import msgspec

from agentfs_client import wire
from agentfs_client.control import ControlClient
from agentfsd.domain_errors import not_found
from agentfsd.web.diff_rows import marked_against
from agentfsd.web.display_text import key, size, visible
from agentfsd.web.highlighting import Line, coloured
from agentfsd.web.marked_text import MarkedLines, Part, as_ended, blocks, has_markers, split

Side = Literal["base", "ours", "theirs", "now"]
SIDES: tuple[Side, ...] = ("base", "ours", "theirs")
AROUND = 3  # lines before and after what clashes
MAX_EDITED_BYTES = 256 << 10  # of a text that a person can write in the page: a form of three times that size is taken
MAX_READ_BYTES = 16 << 20  # of a file that is looked at
MAX_SHOWN_LINES = 400  # of a version that is shown as a whole
MAX_CLASHES = 500  # places in one text: a browser takes seconds to draw a thousand


class ClashShown(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What clashes in one place.

    Attributes:
        line: The number of its first line in the branch's version.
        before: Some lines before it, likewise ``after``.
        base: The lines of the common state; None if they are not known. Likewise ``ours`` and ``theirs``.
        text: The lines of both sides, to be edited; None if they cannot be in a form.
    """

    line: int
    before: list[Line]
    after: list[Line]
    base: list[Line] | None
    ours: list[Line]
    theirs: list[Line]
    text: str | None


class VersionShown(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A version of a path. ``what``: in words. ``lines``: of a text that is not large."""

    what: str
    is_file: bool = False
    lines: list[Line] | None = None


class ConflictShown(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A path with a conflict.

    Attributes:
        version: Another text as soon as the path is another in the branch.
        clashes: What clashes; empty if there is no text with markers.
        versions: The path in the common state, in the branch before the merge, and in what was merged; "" with ``clashes``.
        text: The text as it is now, to be edited as a whole; None if it cannot be in a form.
        notes: What is to be said of it.
    """

    version: str
    clashes: list[ClashShown] = []
    versions: dict[str, VersionShown] = {}
    text: str | None = None
    notes: list[str] = []


class Now(msgspec.Struct):
    """A path as it is in the branch. ``version``: the daemon's name of it. ``is_whole``: all of a file was read."""

    found: wire.ConflictVersionReply
    version: str
    is_whole: bool


def conflict_of(reply: wire.ConflictsReply, path: bytes) -> wire.LeftOpenConflict:
    """Return the conflict at a path.

    Raises:
        Refusal: ``not-found`` if there is none.
    """
    for conflict in reply.conflicts:
        if conflict.path_bytes == path and conflict.kind != "under-way":
            return conflict
    shown = visible(path.decode("utf-8", "surrogateescape"))
    raise not_found("conflict", shown, "its merge was finished or taken back; load the page again")


def now_of(client: ControlClient, branch: str, path: bytes) -> Now:
    """Read a path as it is now."""
    found = read(client, branch, path, "now", MAX_READ_BYTES)
    return Now(found, found.seen, found.kind == "file" and len(found.data) == found.size)


def read(client: ControlClient, branch: str, path: bytes, side: Side, most: int) -> wire.ConflictVersionReply:
    """Read a version of a path; of a file, its first *most* bytes."""
    found = client.conflict_version(path, side, branch)
    parts, got = [found.data], len(found.data)
    while found.kind == "file" and got < min(found.size, most) and parts[-1]:
        parts.append(client.conflict_version(path, side, branch, offset=got).data)
        got += len(parts[-1])
    return msgspec.structs.replace(found, data=b"".join(parts))


def parts_of(
    client: ControlClient, branch: str, now: Now, reply: wire.ConflictsReply, conflict: wire.LeftOpenConflict
) -> list[Part] | None:
    """Split the text with the markers of a merge; None if it is none, or they are not clear."""
    if not conflict.markers or not now.is_whole:
        return None
    names = (reply.branch, conflict.source)
    parts = split(now.found.data, names)
    if parts is None or len(parts) == 1:
        return None
    sides = {side: read(client, branch, conflict.path_bytes, side, MAX_READ_BYTES).data for side in SIDES}
    return None if any(has_markers(side, names) for side in sides.values()) else as_ended(parts, sides["ours"], sides["theirs"])


def shown(client: ControlClient, branch: str, reply: wire.ConflictsReply, conflict: wire.LeftOpenConflict) -> ConflictShown:
    """Prepare a conflict for a page."""
    path = conflict.path_bytes
    now = now_of(client, branch, path)
    name = path.decode("utf-8", "surrogateescape")
    made = ConflictShown(version=now.version, text=editable(now))
    parts = parts_of(client, branch, now, reply, conflict)
    count = len(blocks(parts or ()))
    if parts is not None and count <= MAX_CLASHES:
        made.clashes = _clashes(name, parts)
        return made
    if parts is not None:
        made.notes.append(
            f"It clashes in {count:,} places, too many to be shown one by one. Take one side, or edit it elsewhere."
        )
    elif conflict.markers and not conflict.decided:
        made.notes.append("Its markers cannot be told from its text. Edit it as a whole, or take one side.")
    if made.text is None and now.found.kind == "file" and now.found.size > MAX_EDITED_BYTES:
        made.notes.append(f"With {size(now.found.size)} it is too large to be edited here.")
    made.versions = {side: _version(name, read(client, branch, path, side, MAX_EDITED_BYTES)) for side in SIDES}
    return made


def editable(now: Now) -> str | None:
    """Return the text that a person may edit as a whole; None if a form would change lines that the person left as they are."""
    text = _text(now.found.data) if now.is_whole else None
    return None if text is not None and 0 < text.count("\r\n") < text.count("\n") else text


def _version(name: str, found: wire.ConflictVersionReply) -> VersionShown:
    if found.kind == "none":
        return VersionShown(what="It does not exist.")
    if found.kind == "symlink":
        return VersionShown(what=f"A symlink to {visible(found.data.decode('utf-8', 'surrogateescape'))}.")
    if found.kind != "file":
        return VersionShown(what="A directory." if found.kind == "directory" else "A device, a named pipe or a socket.")
    what, text = (
        f"{size(found.size)}, mode {found.mode & 0o7777:04o}",
        _text(found.data) if found.size == len(found.data) else None,
    )
    lines = text.split("\n") if text is not None else None
    if lines is None:
        return VersionShown(what=f"{what}; no text that could be shown.", is_file=True)
    if len(lines) > MAX_SHOWN_LINES:
        what += f"; its first {MAX_SHOWN_LINES} lines"
    return VersionShown(what=what, is_file=True, lines=coloured(name, lines[:MAX_SHOWN_LINES]))


def _clashes(name: str, parts: list[Part]) -> list[ClashShown]:
    made: list[ClashShown] = []
    line = 1
    for at, part in enumerate(parts):
        if not isinstance(part, MarkedLines):
            line += part.count(b"\n")
            continue
        before, after = parts[at - 1], parts[at + 1]
        assert isinstance(before, bytes)
        assert isinstance(after, bytes)
        base = _lines(name, part.base) if part.base is not None else None
        ours, theirs = _lines(name, part.ours), _lines(name, part.theirs)
        made.append(
            ClashShown(
                line=line, before=_lines(name, _last_lines(before)), after=_lines(name, _first_lines(after)), base=base,
                ours=marked_against(base or [], ours), theirs=marked_against(base or [], theirs),
                text=_text(part.both),
            )
        )  # fmt: skip
        line += part.ours.count(b"\n")
    return made


def _last_lines(data: bytes) -> bytes:
    most = AROUND + data.endswith(b"\n")
    return b"\n".join(data.rsplit(b"\n", most)[-most:])


def _first_lines(data: bytes) -> bytes:
    return b"\n".join(data.split(b"\n", AROUND)[:AROUND])


def _lines(name: str, data: bytes) -> list[Line]:
    if not data:
        return []
    text = data.decode("utf-8", "surrogateescape").encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return coloured(name, [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")])


def _text(data: bytes) -> str | None:
    """Return a text that a form can hold and send back unchanged, but for its line ends; None for any other content."""
    if len(data) > MAX_EDITED_BYTES or b"\0" in data:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return None if "\r" in text.replace("\r\n", "") else text


def path_key(conflict: wire.LeftOpenConflict) -> str:
    """Return a conflict's path as addresses have it."""
    return key(conflict.path_bytes.decode("utf-8", "surrogateescape"))
