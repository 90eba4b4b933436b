"""The changed files of a branch with their hunks, and which of these were chosen. It knows no terminal."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from agentfs_client import wire
from agentfs_client.control import ControlClient
from agentfsd.control.status_text import plural
from agentfsd.escape import quoted
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
    """

    change: wire.Change
    counts: tuple[int, int] | None = None
    file: ChangedFile | None = None
    other: ReviewedFile | None = None
    choices: list[Choice] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
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
        seen: The version of each chosen file that was looked at.
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
        stamp: Another value as soon as anything in the branch may be another.
        git: What was done with git, a sentence for each repository.
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

    def keep_marks(self, before: "ReviewedBranch") -> None:
        """Take over which files are viewed or folded, and once they are read, see carry_over()."""
        known = {file.path: file for file in before.files}
        for file in self.files:
            old = known.get(file.path)
            if old is not None:
                file.is_viewed, file.is_folded = old.is_viewed, old.is_folded


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
    """Return a value that is another one as soon as the branch is."""
    listed = [(change.status, change.path, change.old_path, change.old_size, change.new_size, change.what) for change in changes]
    return branch.id, branch.changed_ns, branch.merging, branch.undecided, tuple(listed)


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
        file.notes = _notes(file, read.patch)
    else:
        file.other = read
        file.choices = [Choice(None)] if read.choosable and read.hunks else []
        file.notes = list(read.notes)
    if before is None or not before.is_read:
        return
    if before.version == file.version:
        file.choices = before.choices
    else:
        file.is_viewed = file.is_folded = False


def _notes(file: FileUnderReview, patch: wire.FilePatch) -> list[str]:
    notes = []
    if patch.is_binary:
        notes.append(f"binary: {_bytes(patch.old_size)} before, {_bytes(patch.new_size)} now")
    if patch.note:
        notes.append(f"beyond its lines: {patch.note}")
    if patch.lower_moved:
        notes.append("the real file has changed since this branch changed its own")
    if file.change.executed:
        notes.append(f"runs on your side: {file.change.executed}")
    if not notes and not patch.patch.count(b"\n@@ ") and patch.status in "AD":
        notes.append("an empty file")
    return notes


def _bytes(size: int) -> str:
    return plural(size, "byte") if size >= 0 else "nothing"


def _key(path: bytes) -> str:
    return key_of(path.decode("utf-8", "surrogateescape"))


def changed_since(daemon: ControlClient, branch: str, selection: Selection) -> tuple[list[bytes], Picks]:
    """Look whether the chosen files are still what was seen.

    Returns:
        The paths that are not, and what to ask the daemon for, with the files that have no hunks. AgentFSError, Refusal.
    """
    stale, paths = list[bytes](), list(selection.seen)
    for at in range(0, len(paths), TOGETHER):
        some = paths[at : at + TOGETHER]
        now = patches_by_path(daemon, branch, some)
        for path in some:
            patch = now.get(path)
            if not isinstance(patch, wire.FilePatch) or ChangedFile(patch).version != selection.seen[path]:
                stale.append(path)
    return stale, joined([selection.picks or Picks([], []), picks_of(daemon, branch, selection.others)])
