"""The changed files of a branch with their hunks, and which of these were chosen. It knows no terminal."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from agentfs_client import wire
from agentfs_client.control import ControlClient
from agentfsd.control.status_text import plural
from agentfsd.escape import printable, quoted
from agentfsd.review.hunks import ChangedFile, Hunk, Picks, joined, may_be_directory
from agentfsd.web.display_text import key as key_of
from agentfsd.web.reviewed_files import Chosen, ReviewedFile, patches_by_path, picks_of, reviewed

TOGETHER = 40  # files whose lines are asked for at once
_WORDS = {"A": "new file", "D": "deleted file", "T": "another type of file", "m": "mode or owner", "x": "extended attributes"}


@dataclass(slots=True)
class Choice:
    """A hunk that can be chosen."""

    hunk: Hunk | None  # None: what is chosen by its path
    is_taken: bool = False


@dataclass(slots=True)
class FileUnderReview:
    """A changed file.

    Attributes:
        change: What the daemon's list says of it.
        counts: Added and removed lines; None for a file that has none.
        file: Its lines and hunks, as soon as they were read.
        other: The same of what has no lines to choose: a directory, attributes, a file that is too large.
        remarks: What else is to be known of it, a line each.
        noted: The notes about it and its lines.
    """

    change: wire.Change
    counts: tuple[int, int] | None = None
    file: ChangedFile | None = None
    other: ReviewedFile | None = None
    choices: list[Choice] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    noted: list[wire.BranchNote] = field(default_factory=list)
    is_viewed: bool = False
    is_folded: bool = False

    @property
    def path(self) -> bytes:
        return self.change.path_bytes

    @property
    def shown_path(self) -> str:
        """The path for people, with the old one of a renamed file."""
        now = quoted(self.path) or "."
        return f"{quoted(self.change.old_path_bytes)} -> {now}" if self.change.old_path_bytes else now

    @property
    def is_read(self) -> bool:
        return self.file is not None or self.other is not None

    @property
    def version(self) -> str:
        return self.file.version if self.file is not None else self.other.version if self.other is not None else ""

    @property
    def taken(self) -> int:
        return sum(choice.is_taken for choice in self.choices)

    @property
    def is_wholly_taken(self) -> bool:
        return bool(self.choices) and self.taken == len(self.choices)

    def take(self, *, is_taken: bool) -> None:
        """Choose all hunks of the file, or none."""
        for choice in self.choices:
            choice.is_taken = is_taken

    def split(self, number: int) -> bool:
        """Split a hunk into its parts, which are chosen as it was. Return whether there was something to split."""
        choice = self.choices[number]
        if self.file is None or choice.hunk is None or len(choice.hunk.runs) < 2:
            return False
        self.choices[number : number + 1] = [Choice(part, choice.is_taken) for part in self.file.split(choice.hunk)]
        return True

    def title(self, choice: Choice) -> str:
        """Say what a hunk is about, for people."""
        if choice.hunk is None or self.file is None:
            return _WORDS.get(self.change.status, "all of it")
        patch = self.file.patch
        if choice.hunk.kind == "rename":
            return f"renamed from {quoted(patch.old_path_bytes)}"
        if choice.hunk.kind == "mode":
            return f"mode {patch.old_mode:o} -> {patch.new_mode:o}"
        if choice.hunk.kind == "whole":
            return _WORDS.get(patch.status, "the whole file")
        return self.file.heading(choice.hunk).decode("utf-8", "backslashreplace")


@dataclass(slots=True)
class Selection:
    """What was chosen of a branch, as it was seen.

    Attributes:
        picks: What the daemon is asked for; None for all of the branch.
        said: It in words, such as "2 hunks in 1 file".
        seen: The version of each chosen file that was looked at; of all of the branch, of each that was read.
        others: The files without hunks among them.
        paths: The chosen files, for people.
    """

    picks: Picks | None
    said: str
    seen: dict[bytes, str] = field(default_factory=dict)
    others: list[Chosen] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)


class NewNameLeftOutError(ValueError):
    """Lines of a renamed file were chosen, and its new name was not. The text is the path."""


class ReviewedBranch:
    """A branch under review.

    Attributes:
        branch: The branch when it was read.
        files: In the order of their paths.
        stamp: Another value as soon as the list of changes is another, see stamp().
        git: What was done with git, a sentence for each repository.
        notes: What people and agents said about it, the open notes first.
    """

    def __init__(self, daemon: ControlClient, ref: str) -> None:
        """Read the list of changes; lines are read later. AgentFSError."""
        self.branch = daemon.show_branch(ref)
        found = daemon.changes(self.branch.id, own=True)
        self.stamp = stamp(self.branch, found.changes)
        self.git = [each.sentence for each in found.repositories]
        patches = daemon.patches(self.branch.id, stat_only=True, own=True, internal=False)
        counts = {patch.path_bytes: (patch.added, patch.removed) for patch in patches if patch.added >= 0}
        self.files = [FileUnderReview(change, counts.get(change.path_bytes)) for change in _without_parents(found.changes)]
        self.notes: list[wire.BranchNote] = []
        self.note(daemon.list_notes(self.branch.id, resolved=True))

    @property
    def summary(self) -> str:
        """What the branch is, and what was chosen of it, on one line."""
        branch, files = self.branch, self.files
        taken, hunks = sum(file.taken for file in files), sum(len(file.choices) for file in files)
        waiting = sum(not file.is_read for file in files)
        notes = sum(not note.resolved_ns for note in self.notes)
        parts = [printable(branch.name)]
        parts += [plural(len(files), "file"), f"{taken} of {plural(hunks, 'hunk')} chosen"] if files else ["no changes"]
        parts += [f"{sum(file.is_viewed for file in files)} viewed"] if any(file.is_viewed for file in files) else []
        parts += [f"reading {waiting} more"] if waiting else []
        parts += [f"{plural(notes, 'open note')}: N"] if notes else []
        parts += [f"{plural(branch.undecided, 'conflict')} left: x"] if branch.undecided else []
        parts += ["merge not finished: x"] if branch.merging and not branch.undecided else []
        return "  ".join([*parts, *map(printable, self.git)])

    def note(self, found: Sequence[wire.BranchNote]) -> list[int]:
        """Take over notes that were read again. Return the numbers of the files that have others now.

        Those that are known stay where they are: the lines are shown as they were read.
        """
        known = {note.id: note for note in self.notes}
        self.notes = [_placed_as(known[note.id], note) if note.id in known else note for note in found]
        by_path: dict[bytes, list[wire.BranchNote]] = {}
        for note in self.notes:
            by_path.setdefault(note.now_path_bytes or note.path_bytes, []).append(note)
        changed = list[int]()
        for number, file in enumerate(self.files):
            noted = by_path.get(file.path, [])
            if noted != file.noted:
                file.noted = noted
                changed.append(number)
        return changed

    def unread(self, first: int) -> list[FileUnderReview]:
        """Return the files to read next: those from number *first* on, then those before it."""
        waiting = [file for file in (*self.files[first:], *self.files[:first]) if not file.is_read]
        return waiting[:TOGETHER]

    def selection(self) -> Selection:
        """Return what was chosen.

        Raises:
            NewNameLeftOutError: Lines of a renamed file were chosen without its new name.
        """
        picks, seen, others, hunks = list[Picks](), dict[bytes, str](), list[Chosen](), 0
        chosen = [file for file in self.files if file.taken]
        for file in chosen:
            hunks += file.taken
            if file.file is None:
                others.append(Chosen(_key(file.path), file.version, [0]))
                continue
            seen[file.path] = file.version
            taken = [choice.hunk for choice in file.choices if choice.is_taken and choice.hunk is not None]
            picked = file.file.pick(taken, is_all=file.is_wholly_taken)
            if not picked.paths:
                raise NewNameLeftOutError(file.shown_path)
            picks.append(picked)
        said = f"{plural(hunks, 'hunk')} in {plural(len(chosen), 'file')}"
        return Selection(joined(picks), said, seen, others, [file.shown_path for file in chosen])

    def everything(self) -> Selection:
        """Return all of the branch, as far as it was read."""
        return Selection(None, "everything", {file.path: file.version for file in self.files if file.is_read})

    def keep_marks(self, before: "ReviewedBranch") -> None:
        """Take over which files are viewed or folded, and once they are read, see carry_over()."""
        known = {file.path: file for file in before.files}
        for file in self.files:
            old = known.get(file.path)
            if old is not None:
                file.is_viewed, file.is_folded = old.is_viewed, old.is_folded


def _placed_as(before: wire.BranchNote, now: wire.BranchNote) -> wire.BranchNote:
    return msgspec.structs.replace(
        before, text=now.text, answers=now.answers, resolved_ns=now.resolved_ns, resolved_by=now.resolved_by
    )


def _without_parents(changes: Sequence[wire.Change]) -> list[wire.Change]:
    """Leave out new and deleted directories that hold other changes: they come and go with these."""
    parents = {
        b"/".join(parts[:count])
        for change in changes
        for parts in [change.path_bytes.split(b"/")]
        for count in range(1, len(parts))
    }
    return [change for change in changes if change.status not in ("A", "D") or change.path_bytes not in parents]


def stamp(branch: wire.Branch, changes: Iterable[wire.Change]) -> tuple[object, ...]:
    """Return a value that is another one as soon as the list of changes is.

    The time of the last change is no part of it: without an audit trail nobody knows it, and a daemon that was killed has
    forgotten the newest.
    """
    listed = [(change.status, change.path, change.old_path, change.old_size, change.new_size, change.what) for change in changes]
    return branch.id, branch.merging, branch.undecided, tuple(listed)


def has_changed(seen: wire.Branch, now: wire.Branch) -> bool:
    """Return whether a branch has changed since it was read, as far as that is known without reading it.

    A daemon that was killed has forgotten the newest changes: an older time says nothing.
    """
    same = (now.merging, now.undecided, now.committed_ns) == (seen.merging, seen.undecided, seen.committed_ns)
    return now.changed_ns > seen.changed_ns or not same or (now.counted and seen.counted and now.changed != seen.changed)


def read_files(daemon: ControlClient, branch: str, paths: Sequence[bytes]) -> dict[bytes, ChangedFile | ReviewedFile]:
    """Read the lines of files, or what there is of those that have none. AgentFSError."""
    found: dict[bytes, ChangedFile | ReviewedFile] = {}
    patches = patches_by_path(daemon, branch, paths)
    for path in paths:
        patch = patches.get(path)
        if isinstance(patch, wire.FilePatch) and not may_be_directory(patch):
            found[path] = ChangedFile(patch)
        else:
            (found[path],) = reviewed(daemon, branch, [path.decode("utf-8", "surrogateescape")], is_open=False)
    return found


def others_now(daemon: ControlClient, branch: str, seen: Mapping[bytes, str]) -> list[bytes]:
    """Return which paths have another version than was seen. AgentFSError."""
    paths, stale = list(seen), list[bytes]()
    for at in range(0, len(paths), TOGETHER):
        read = read_files(daemon, branch, paths[at : at + TOGETHER])
        stale += [path for path, now in read.items() if now.version != seen[path]]
    return stale


def fill(file: FileUnderReview, read: ChangedFile | ReviewedFile, before: FileUnderReview | None) -> None:
    """Put what was read into a file.

    Args:
        file: The file.
        read: What read_files() returned for it.
        before: The same file as it was shown before: what was chosen stays chosen if it is the same version.
    """
    if isinstance(read, ChangedFile):
        file.file = read
        file.choices = [Choice(hunk) for hunk in read.hunks]
        file.remarks = _remarks(file, read.patch)
    else:
        file.other = read
        file.choices = [Choice(None)] if read.choosable and read.hunks else []
        file.remarks = list(read.notes)
    if before is None or not before.is_read:
        return
    if before.version == file.version:
        file.choices = before.choices
    else:
        file.is_viewed = file.is_folded = False


def _remarks(file: FileUnderReview, patch: wire.FilePatch) -> list[str]:
    remarks = []
    if patch.is_binary:
        remarks.append(f"binary: {_bytes(patch.old_size)} before, {_bytes(patch.new_size)} now")
    if patch.note:
        remarks.append(f"beyond its lines: {patch.note}")
    if patch.lower_moved:
        remarks.append("the real file has changed since this branch changed its own")
    if file.change.executed:
        remarks.append(f"runs on your side: {file.change.executed}")
    if not remarks and not patch.patch.count(b"\n@@ ") and patch.status in "AD":
        remarks.append("an empty file")
    return remarks


def _bytes(size: int) -> str:
    return plural(size, "byte") if size >= 0 else "nothing"


def _key(path: bytes) -> str:
    return key_of(path.decode("utf-8", "surrogateescape"))


def changed_since(daemon: ControlClient, branch: str, selection: Selection) -> tuple[list[bytes], Picks]:
    """Look whether the chosen files are still what was seen.

    Returns:
        The paths that are not, and what to ask the daemon for, with the files that have no hunks. AgentFSError, Refusal.
    """
    return others_now(daemon, branch, selection.seen), joined(
        [selection.picks or Picks([], []), picks_of(daemon, branch, selection.others)]
    )
