"""The changed files of a branch with their hunks, for the page that reviews them, and what was chosen there.

Hunks are computed here and nowhere else: a page names them by number, with the version of the file that it shows.
"""

import errno
import hashlib
from collections.abc import Iterator, Sequence

import msgspec

from agentfs_client import wire
from agentfs_client.control import ControlClient
from agentfs_client.errors import AgentFSError
from agentfs_files.remote_files import RemoteFiles
from agentfsd.domain_errors import Refusal, invalid
from agentfsd.review.hunks import WHOLE_FILE, ChangedFile, Hunk, Picks, joined, may_be_directory
from agentfsd.web.diff_rows import MAX_LINES, Row, heading, hunks_of, notes_of
from agentfsd.web.display_text import key, path_of, plural, visible
from agentfsd.web.generated_files import GeneratedFiles, directories_of, is_minified

LARGE = 500  # changed lines; a file with more is shown when it is asked for
_MOST_ATTRIBUTES_BYTES = 256 << 10
_TOO_LARGE = "too-large"
_WORDS = {"A": "New file", "D": "Deleted file", "T": "Another type of file", "m": "Mode or owner", "x": "Extended attributes"}


class ReviewedHunk(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What can be chosen or not. ``head``: what it is about. ``rows``: its lines; none if they are folded or there are none."""

    kind: str
    head: str
    rows: list[Row] = []


class ReviewedFile(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A changed file.

    Attributes:
        key: The path, encoded for addresses.
        version: Another text as soon as anything about the change is another.
        folded: Why its lines are left out: generated, minified, large or binary.
        lines: How many lines are left out.
        choosable: Its hunks can be chosen; a directory's attributes cannot, as its path would mean all that is in it.
    """

    key: str
    version: str
    added: int = 0
    removed: int = 0
    folded: str = ""
    lines: int = 0
    choosable: bool = True
    notes: list[str] = []
    hunks: list[ReviewedHunk] = []


class Chosen(msgspec.Struct, array_like=True):
    """What was chosen of a file: its key, the version that the page shows, and the numbers of its hunks."""

    key: str
    version: str
    hunks: list[int]


class SeenFile(msgspec.Struct, array_like=True):
    """A file whose lines the page shows: its place in the list of changes, and its version."""

    index: int
    version: str


def reviewed(client: ControlClient, branch: str, paths: Sequence[str], *, is_open: bool) -> list[ReviewedFile]:
    """Prepare files of a branch.

    Args:
        client: The daemon.
        branch: The branch.
        paths: Their paths now.
        is_open: Also the lines of files that are folded otherwise.
    """
    patches = patches_by_path(client, branch, [_bytes(path) for path in paths])
    generated = _generated(client, branch, paths)
    files: list[ReviewedFile] = []
    for path in paths:
        patch = patches.get(_bytes(path))
        if isinstance(patch, wire.FilePatch) and not may_be_directory(patch):
            files.append(_reviewed(ChangedFile(patch), generated, is_open=is_open))
        else:
            files.append(_by_path(client, branch, path, patch))
    return files


def picks_of(client: ControlClient, branch: str, chosen: Sequence[Chosen]) -> Picks:
    """Return what to ask the daemon for.

    Raises:
        Refusal: ``picked-stale`` if a file is not what the page shows any more; ``invalid`` for hunks that it does not have.
    """
    wanted = {path_of(each.key): each for each in chosen}
    patches = patches_by_path(client, branch, [_bytes(path) for path in wanted])
    return joined(_picks(client, branch, path, each, patches.get(_bytes(path))) for path, each in wanted.items())


def list_version(found: wire.ChangesReply) -> str:
    """Return another text as soon as the list of changes is another, or more was done with git."""
    changes = found.changes
    listed = [(each.status, each.path_bytes, each.old_path_bytes, each.old_size, each.new_size, each.what) for each in changes]
    git = [(each.path_bytes, each.sentence) for each in found.repositories]
    return hashlib.sha256(repr((listed, git)).encode()).hexdigest()[:16]


def check_seen(client: ControlClient, branch: wire.Branch, version: str, seen: Sequence[SeenFile]) -> None:
    """Check that a branch is what a page shows.

    Args:
        client: The daemon.
        branch: The branch.
        version: What list_version() was for the page.
        seen: The files whose lines it shows.

    Raises:
        Refusal: ``picked-stale`` if the list of changes or one of these files is another.
    """
    found = client.changes(branch.id, own=True)
    if list_version(found) != version:
        raise _stale(branch.name)
    if not all(0 <= each.index < len(found.changes) for each in seen):
        raise invalid("the form names a file that is not in the list", "load the page again")
    paths = [found.changes[each.index].path_bytes.decode("utf-8", "surrogateescape") for each in seen]
    picks_of(client, branch.id, [Chosen(key(path), each.version, []) for path, each in zip(paths, seen, strict=True)])


def _picks(client: ControlClient, branch: str, path: str, chosen: Chosen, patch: wire.FilePatch | str | None) -> Picks:
    if not isinstance(patch, wire.FilePatch) or may_be_directory(patch):
        found = _by_path(client, branch, path, patch)
        if found.version != chosen.version or not found.choosable:
            raise _stale(path)
        return Picks([_bytes(path)], [])
    file = ChangedFile(patch)
    if file.version != chosen.version:
        raise _stale(path)
    if not all(0 <= number < len(file.hunks) for number in chosen.hunks):
        raise invalid(f"{visible(path)} has {plural(len(file.hunks), 'hunk')}", "load the page again")
    hunks = [file.hunks[number] for number in sorted(set(chosen.hunks))]
    picks = file.pick(hunks, is_all=len(hunks) == len(file.hunks))
    if hunks and not picks.paths:
        raise invalid(f"{visible(path)} has a new name, which was not chosen", "choose its new name as well")
    return picks


def patches_by_path(client: ControlClient, branch: str, paths: Sequence[bytes]) -> dict[bytes, wire.FilePatch | str]:
    """Return the patches by path, or why there is none."""
    try:
        found = client.patches(branch, paths=paths, own=True, internal=False, context_lines=WHOLE_FILE) if paths else []
    except AgentFSError as exc:
        if exc.code != _TOO_LARGE:
            raise
        if len(paths) == 1:
            return {paths[0]: f"{exc.message}."}
        half = len(paths) // 2
        return {**patches_by_path(client, branch, paths[:half]), **patches_by_path(client, branch, paths[half:])}
    return {patch.path_bytes: patch for patch in found}


def _generated(client: ControlClient, branch: str, paths: Sequence[str]) -> GeneratedFiles:
    """Read what .gitattributes of the branch says about *paths*."""
    directories = directories_of(paths)
    names = [f"{directory}/.gitattributes".removeprefix("/") for directory in directories]
    found = RemoteFiles(client, branch).contents(names, _MOST_ATTRIBUTES_BYTES)
    return GeneratedFiles(
        (directory, content.decode("utf-8", "replace")) for directory, content in zip(directories, found, strict=True) if content
    )


def _reviewed(file: ChangedFile, generated: GeneratedFiles, *, is_open: bool) -> ReviewedFile:
    patch, path = file.patch, file.path.decode("utf-8", "surrogateescape")
    count = max(0, patch.added) + max(0, patch.removed)
    folded = "binary" if patch.is_binary else "large" if count > LARGE else ""
    if generated.has(path):
        folded = folded if patch.is_binary else "generated"
    elif not folded and is_minified(path, b"".join(_changed_lines(file)), count):
        folded = "minified"
    shows = is_open or not folded
    hunks = [_hunk(file, hunk, path, shows=shows and not patch.is_binary) for hunk in file.hunks]
    notes = []
    if sum(len(hunk.rows) for hunk in hunks) >= MAX_LINES:
        notes.append(f"The difference is long; shown are its first {MAX_LINES:,} lines.")
    has_lines = any(hunk.kind in ("lines", "whole") for hunk in file.hunks) and count > 0
    return ReviewedFile(
        key=key(path), version=file.version, added=max(0, patch.added), removed=max(0, patch.removed), folded=folded,
        lines=0 if shows else count, notes=[*notes_of(patch, has_lines=has_lines or patch.status == "R"), *notes],
        hunks=hunks,
    )  # fmt: skip


def _changed_lines(file: ChangedFile) -> Iterator[bytes]:
    return (line for line in file.patch.patch.split(b"\n") if line[:1] in (b"+", b"-"))


def _hunk(file: ChangedFile, hunk: Hunk, path: str, *, shows: bool) -> ReviewedHunk:
    patch = file.patch
    if hunk.kind == "rename":
        old_path = patch.old_path_bytes.decode("utf-8", "surrogateescape")
        return ReviewedHunk(kind="rename", head=f"Renamed from {visible(old_path)}")
    if hunk.kind == "mode":
        return ReviewedHunk(kind="mode", head=f"Mode {patch.old_mode:o} \u2192 {patch.new_mode:o}")
    rows = [row for part in hunks_of(path, file.shown(hunk)) for row in part.rows] if shows else []
    if hunk.kind == "whole":
        return ReviewedHunk(kind="whole", head=_WORDS.get(patch.status, "The whole file"), rows=rows)
    return ReviewedHunk(kind="lines", head=heading(file.heading(hunk).decode("utf-8", "surrogateescape")), rows=rows)


def _by_path(client: ControlClient, branch: str, path: str, patch: wire.FilePatch | str | None) -> ReviewedFile:
    """Prepare what can only be chosen by its path: a directory, attributes, or a file that is too large for a patch.

    *patch*: with attributes in its note; a text says why there is none.
    """
    changes = {change.path_bytes: change for change in client.diff(branch, paths=[_bytes(path)], own=True)}
    change = changes.get(_bytes(path))
    if change is None:
        return ReviewedFile(key=key(path), version="", choosable=False, notes=["It does not differ any more."])
    differs = f"It differs in: {', '.join(change.what)}." if change.what else "Nothing that lines could show."
    notes = [patch] if isinstance(patch, str) else notes_of(patch, has_lines=False) if patch is not None else [differs]
    holds = len(changes) > 1  # its path would mean all of that
    notes += ["Choose what is in this directory, or commit everything."] if holds else []
    seen = (change.status, change.old_size, change.new_size, change.what, notes, _mtime_ns(client, branch, path))
    return ReviewedFile(
        key=key(path), version=hashlib.sha256(repr(seen).encode()).hexdigest()[:16], choosable=not holds, notes=notes,
        folded="large" if isinstance(patch, str) else "",
        hunks=[] if holds else [ReviewedHunk(kind="whole", head=_WORDS.get(change.status, "The whole file"))],
    )  # fmt: skip


def _mtime_ns(client: ControlClient, branch: str, path: str) -> int:
    try:
        return RemoteFiles(client, branch).stat(path, follow=False).mtime_ns
    except OSError:
        return 0  # deleted in the branch


def _bytes(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")


def _stale(path: str) -> Refusal:
    message = f"{visible(path)} was changed since this page showed it"
    return Refusal(errno.EBUSY, "picked-stale", message, "Nothing was changed. Load the page again, look, and choose again.")


def whole_rows(client: ControlClient, branch: str, path: str) -> list[Row]:
    """Return all lines of a file, also those between its hunks."""
    patch = patches_by_path(client, branch, [_bytes(path)]).get(_bytes(path))
    if not isinstance(patch, wire.FilePatch):
        return []
    return [row for hunk in hunks_of(path, patch.patch) for row in hunk.rows]
