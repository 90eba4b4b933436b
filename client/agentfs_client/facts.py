"""The records that replies contain: branches, snapshots, changes, files. This module knows no message."""

import base64
from typing import Literal

import msgspec


class PathName(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A path. ``path`` is for people and shows bytes that are not UTF-8 as \\xNN; ``raw_path`` holds the exact bytes in base64 if
    ``path`` does not.
    """

    path: str
    raw_path: str = ""

    @property
    def path_bytes(self) -> bytes:
        return exact_path(self.path, self.raw_path)


class GitCommit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: str
    title: str


class RepositoryChange(PathName, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The changes that git made in one repository.

    The path is that of its files. ``branch`` is the branch that is checked out, or HEAD. ``commits`` holds the newest of the new
    commits; ``ahead`` and ``behind`` count the commits that were added and lost. ``refs`` lists other refs that differ.
    ``uncommitted`` counts changed files that are in no commit. ``sentence`` says all this for people.
    """

    branch: str
    commits: list[GitCommit] = []
    ahead: int = 0
    behind: int = 0
    refs: list[str] = []
    uncommitted: int = 0
    sentence: str = ""


class Branch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A branch.

    ``base`` is the ref it was created from ("" for the bare lower), and ``changed`` the number of changes since then: the paths
    that DaemonOperations.changes(own=True) returns. ``counted`` is false if counting them would take too long: ``changed`` is
    then the number of stored changes, which may be higher. ``repositories`` says what was committed with git since then.
    ``last`` is the id of the newest snapshot in its history, or of the snapshot it was created from, or "". ``last_name`` and
    ``last_ns`` are the name and time of the newest snapshot that was taken of it, "" and 0 if there is none. ``changed_ns`` is
    the time of the last change in the branch, 0 if it is not known, and ``committed_ns`` that of its last commit into the real
    directory, 0 if there was none. ``worktree`` is git's directory of the linked worktree that the branch is, or "". ``overlaps``
    is the number of paths that other branches have changed, too, and ``conflicts`` how many of them would conflict in a merge;
    both are 0 for bound processes. ``merging`` names the sources of a merge that left conflicts in it and is not finished, and
    ``undecided`` is the number of these conflicts that are not settled. ``notes`` is the number of its open notes. ``frozen_ns``
    is the time of the real directory's state that its unmodified files are from; 0 if they follow the real directory.
    ``last_path`` is what was changed last in it, escaped for people; "" if that is not known, or of a single branch.
    ``merged_into`` is the branch that holds all of it by a merge, but for ``merged_since`` stored changes; "" for none, and for
    bound processes.
    """

    name: str
    id: str
    base: str
    created_ns: int
    changed: int
    counted: bool = True
    repositories: list[RepositoryChange] = []
    processes: int = 0
    last: str = ""
    last_name: str = ""
    last_ns: int = 0
    changed_ns: int = 0
    committed_ns: int = 0
    worktree: str = ""
    overlaps: int = 0
    conflicts: int = 0
    merging: list[str] = []
    undecided: int = 0
    notes: int = 0
    frozen_ns: int = 0
    last_path: str = ""
    merged_into: str = ""
    merged_since: int = 0


class PathOverlap(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A path, written as in Change, that several ``branches`` have changed.

    ``conflict`` is the kind of conflict that a merge of the two branches ``between`` would meet there: content, binary, add/add,
    modify/delete, type, symlink, special or attributes. It is "" if the changes can be merged, or are the same.
    """

    path: str
    raw_path: str = ""
    branches: list[str]
    conflict: str = ""
    between: list[str] = []

    @property
    def path_bytes(self) -> bytes:
        return exact_path(self.path, self.raw_path)


class BranchSnapshot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A snapshot. ``file_count`` and ``bytes_changed`` count what was stored since ``parent``; -1 means not counted yet."""

    name: str
    id: str
    branch: str
    parent: str
    created_ns: int
    tag: str
    author_pid: int
    file_count: int
    bytes_changed: int
    kind: str = ""  # "": a user named it; kept, tagged, unnamed; run, step, safety, merge: taken automatically
    author: str = ""  # command name of the process that requested it
    merged: tuple[str, ...] = ()  # ids of other branches' snapshots merged since the parent


class SessionStep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A moment of an agent's session: before a prompt (``call`` is 0), or before a call of a tool.

    ``session`` and ``key`` are the harness's names for the session and the call, ``agent`` is the harness. ``turn`` counts the
    prompts, ``call`` the calls within a turn. ``title`` is the beginning of what was asked. ``snapshot`` (its id is
    ``snapshot_id``) holds the state of ``branch`` (``branch_id``) at that moment. ``replaced``: a restore or an undo had replaced
    the branch's files since the step before. ``home_id``: the branch in which the session goes on when it is resumed. No process
    that is bound to another branch decides that.
    """

    id: int
    session: str
    agent: str
    branch: str
    branch_id: str
    turn: int
    call: int
    key: str
    title: str
    created_ns: int
    snapshot: str
    snapshot_id: str
    replaced: bool = False
    home_id: str = ""


IN_DOUBT = "(in doubt)"  # in place of a branch's name: the process may have escaped from a branch, and is refused


class Binding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pid: int
    branch: str
    explicit: bool
    command: str
    since_ns: int


class Renamed(PathName, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A path that may have been renamed. ``old_path`` is its former path; "" if it was not renamed."""

    old_path: str = ""
    raw_old_path: str = ""

    @property
    def old_path_bytes(self) -> bytes:
        return exact_path(self.old_path, self.raw_old_path)


class Change(Renamed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A path that differs.

    ``status`` is A added, M content, D deleted, R renamed (and perhaps changed), T type, m mode or owner, or x extended
    attributes. ``what`` lists all differences: content, type, mode, owner, xattrs. Sizes are in bytes, -1 on a side without such
    a file. ``executed`` says why a program of the user would run the file, or obey it, once it is in the real directory.
    """

    status: str
    old_size: int
    new_size: int
    lower_moved: bool = False
    what: tuple[str, ...] = ()
    executed: str = ""


class RefusedCount(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Requests to the mount of one kind that were refused.

    ``op`` is the FUSE operation, ``why`` the errno's name, ``command`` the process's command name, "" if unknown. ``path`` is the
    file or directory; the directory for a name that was to be created or removed.
    """

    op: str
    path: str
    why: str
    count: int
    command: str = ""


def exact_path(path: str, raw_path: str) -> bytes:
    return base64.b64decode(raw_path) if raw_path else path.encode()


def path_fields(path: bytes, field: str = "path") -> dict[str, str]:
    """Return ``path`` and ``raw_path`` for a record, or the same fields for another *field*."""
    try:
        return {field: path.decode()}
    except UnicodeDecodeError:
        return {field: path.decode("utf-8", "backslashreplace"), f"raw_{field}": base64.b64encode(path).decode()}


class FilePatch(Renamed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A changed file with a patch that `git apply` accepts. Patches of several files may be concatenated.

    Paths and status are as in Change. ``added`` and ``removed`` count lines; they are -1 if ``is_binary`` or if the file is too
    large to compare. Sizes are in bytes, -1 on a side without such a file. ``patch`` (base64 in JSON) is empty if the request
    only asked for counts. ``note`` describes what git's format cannot express, such as owners and empty directories.
    """

    status: str
    added: int
    removed: int
    is_binary: bool
    old_size: int
    new_size: int
    old_mode: int = 0  # git's mode, such as 0o100644; 0 if there is nothing that git can store
    new_mode: int = 0
    patch: bytes = b""
    note: str = ""
    lower_moved: bool = False


class Conflict(PathName, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A path that cannot be merged or committed.

    ``kind`` is content, binary, add/add, modify/delete, rename/rename, rename/delete, rename/add, type, symlink, special,
    attributes, or drift (the target changed meanwhile).
    """

    kind: str
    message: str
    source: str = ""
    against: list[str] = []
    ours: str = ""
    theirs: str = ""


class MergedPath(Renamed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A change that a merge or commit makes. ``status`` is as in Change, or "" if it is not known (in a commit that was
    interrupted). ``sources``: the branches that it comes from; none in a commit.
    """

    status: str = ""
    sources: list[str] = []


class Decision(PathName, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A path that the target and ``source`` had both changed, and that ours, theirs or union decided.

    ``kind``: as in Conflict, or markers (conflict markers were left in the file), or ignored (git ignores the file on both sides,
    and it stays as the target has it). ``winner``: the branch whose change won; "" if both did.
    """

    source: str
    kind: str
    winner: str = ""


class RecordedRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A command that was run in a branch.

    ``exit_code`` is 128 and the number for a signal. Times are in ns since the epoch. ``changed`` is the number of the branch's
    changes when the command ended, as in Branch; -1 if counting would have taken too long.
    """

    id: int
    branch: str
    branch_id: str
    command: str
    exit_code: int
    started_ns: int
    ended_ns: int
    changed: int


class UndoEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something that can be undone. ``kind``: restore, merge, commit or discard; ``snapshot`` holds the previous state.

    ``committed``: a branch that was committed into the real directory later, which stays as it is; "" if none was.
    """

    kind: str
    branch: str
    snapshot: str
    committed: str = ""


class FileInfo(PathName, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file as stat(2) shows it.

    ``path`` is relative to the root; in a listing it is only the name. Times are in ns, 0 if not known. ``kind`` is symlink only
    for a link that was not followed, or that leads nowhere or out of the root. ``is_link`` says that the name is a symlink, even
    if the other fields describe its target. ``mode`` holds only the file type in a listing of names, or if the caller may not
    search the directory. ``target``, encoded like a path, is where a symlink leads to; only a request for that one name returns
    it.
    """

    kind: Literal["file", "directory", "symlink", "other"]
    size: int = 0
    mode: int = 0
    uid: int = 0
    gid: int = 0
    nlink: int = 0
    ino: int = 0
    mtime_ns: int = 0
    ctime_ns: int = 0
    created_ns: int = 0
    is_link: bool = False
    target: str = ""
    raw_target: str = ""

    @property
    def target_bytes(self) -> bytes:
        return exact_path(self.target, self.raw_target)


class NameInTree(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A name in a directory, as lstat(2) shows it. Of the mode only the file type is told unless details were asked for, and if
    the caller may not search the directory.

    ``blocks`` are of 512 bytes, ``group`` is the same for all names of one file (0: it has no other). ``xattrs`` are those that
    the caller may read.
    """

    name: bytes
    mode: int
    uid: int = 0
    gid: int = 0
    size: int = 0
    blocks: int = 0
    mtime_ns: int = 0
    rdev: int = 0
    group: int = 0
    target: bytes = b""
    xattrs: dict[bytes, bytes] = {}


class AuditEntry(Renamed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line of the audit trail: who changed what. ``uid`` is -1, ``pid`` 0 and ``command`` "" if they are not known.

    ``kind`` is one of the kinds of an Event. Requests that change no branch have these kinds: policy, interpose, prune, gc,
    commit-aborted, unmount, attached (a private mount), and refused (a request without permission); ``name`` gives details.
    modified: recorded about once a second for each file and process. bound, unbound: ``pid`` is the process that sent the
    request; if it named another process, ``name`` says which. lost: entries are missing; ``name`` is their number, or killed
    (about a second was lost when the daemon was killed), or unreadable (all older ones).
    """

    id: int
    time_ns: int
    branch: str
    uid: int
    pid: int
    command: str
    kind: str
    name: str = ""


class RuleInScope(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule by path. ``scope`` is ``everybody``, ``branches`` (bound processes of all branches) or ``branch``; ``branch`` is the
    branch's name then.
    """

    scope: str
    verb: str
    pattern: str
    branch: str = ""


class PathQuestion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A process that waits for an answer. ``what`` is read, write or change: make, remove or rename that name."""

    id: int
    branch: str
    pid: int
    command: str
    path: str
    what: str
    asked_ns: int


class PathVerdict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the rules say about a path: ``verdict`` is a verb; ``rule`` is the one that decides, "" if none does."""

    path: str
    verdict: str
    rule: str = ""
