"""The records that replies hold: branches, snapshots, changes, files. It knows no message."""

import base64
from typing import Literal

import msgspec


class Branch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``changed``: stored changes since ``base``, the ref it was made from ("" for the bare lower). ``last``: id of its newest
    snapshot, or of the one it was made from; "" for none.

    ``last_name`` and ``last_ns``: name and time of that snapshot. ``changed_ns``: when something in the branch was changed, 0
    where nobody knows."""

    name: str
    id: str
    base: str
    created_ns: int
    changed: int
    processes: int = 0
    last: str = ""
    last_name: str = ""
    last_ns: int = 0
    changed_ns: int = 0


class BranchSnapshot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``file_count`` and ``bytes_changed`` count what was stored since ``parent``; -1: not counted yet."""

    name: str
    id: str
    branch: str
    parent: str
    created_ns: int
    tag: str
    author_pid: int
    file_count: int
    bytes_changed: int
    kind: str = ""  # "": it has a name of somebody's; kept, tagged, unnamed; else why: run, safety, merge
    author: str = ""  # command of the process that asked
    merged: tuple[str, ...] = ()  # ids of snapshots of other branches that were merged since the parent


class Binding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pid: int
    branch: str
    explicit: bool
    command: str
    since_ns: int


class PathName(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``path`` is for people (bytes that are no UTF-8 show as \\xNN); ``raw_path``, base64, is set when it is not exact."""

    path: str
    raw_path: str = ""

    @property
    def path_bytes(self) -> bytes:
        return exact_path(self.path, self.raw_path)


class Renamed(PathName, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``old_path``: where a renamed file was; "" for any other change."""

    old_path: str = ""
    raw_old_path: str = ""

    @property
    def old_path_bytes(self) -> bytes:
        return exact_path(self.old_path, self.raw_old_path)


class Change(Renamed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A path that differs.

    ``status``: A added, M content, D deleted, R renamed (and perhaps changed), T type, m mode or owner, x extended attributes.
    ``what``: all that differs, of content, type, mode, owner, xattrs. Sizes in bytes, -1 on a side that has no such file.
    """

    status: str
    old_size: int
    new_size: int
    lower_moved: bool = False
    what: tuple[str, ...] = ()


class GitCommit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: str
    title: str


class RepositoryChange(PathName, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was done with git in a repository.

    The path is that of its files. ``branch``: what is checked out (HEAD where that is no branch). ``commits``: the newest of
    those that are new; ``ahead`` and ``behind``: how many came, and how many it has no more. ``refs``: others that differ.
    ``uncommitted``: how many files changed that no commit has. ``sentence``: all this for people.
    """

    branch: str
    commits: list[GitCommit] = []
    ahead: int = 0
    behind: int = 0
    refs: list[str] = []
    uncommitted: int = 0
    sentence: str = ""


def exact_path(path: str, raw_path: str) -> bytes:
    return base64.b64decode(raw_path) if raw_path else path.encode()


def path_fields(path: bytes, field: str = "path") -> dict[str, str]:
    """``path`` and ``raw_path`` of a Change (or another *field*)."""
    try:
        return {field: path.decode()}
    except UnicodeDecodeError:
        return {field: path.decode("utf-8", "backslashreplace"), f"raw_{field}": base64.b64encode(path).decode()}


class FilePatch(Renamed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A changed file with its patch, which `git apply` takes; those of several files may follow each other.

    Paths and status as in Change; ``old_path`` is "" unless it was renamed. ``added`` and ``removed`` count lines, -1 where
    ``is_binary`` (or too large to be compared). Sizes in bytes, -1 on a side that has no such file. ``patch`` (base64 in JSON) is
    empty when only counts were asked for. ``note``: what git's format cannot express (owners, empty directories, ...), in words.
    """

    status: str
    added: int
    removed: int
    is_binary: bool
    old_size: int
    new_size: int
    old_mode: int = 0  # git's, such as 0o100644; 0 where there is nothing that git knows
    new_mode: int = 0
    patch: bytes = b""
    note: str = ""
    lower_moved: bool = False


class Conflict(PathName, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A path that cannot be merged or committed. ``kind``: content, binary, add/add, modify/delete, rename/rename,
    rename/delete, rename/add, type, symlink, special, attributes, or drift (the target changed meanwhile).

    ``source``: the branch that was not merged for it ("" in a commit into the real directory). ``against``: the branches whose
    changes it clashes with. ``ours`` and ``theirs``: the first line that differs, of the target and of the source, in texts.
    """

    kind: str
    message: str
    source: str = ""
    against: list[str] = []
    ours: str = ""
    theirs: str = ""


class MergedPath(PathName, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A path that a merge or commit changes. ``sources``: the branches that it comes from; none in a commit."""

    sources: list[str] = []


class Decision(PathName, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A path that the target and ``source`` had both changed, and that ours, theirs or union decided.

    ``kind``: as in Conflict, or markers (conflict markers were left in the file). ``winner``: the branch that has it its way;
    "" for both.
    """

    source: str
    kind: str
    winner: str = ""


class Deed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something that can be undone. ``kind``: restore, merge, commit or discard; ``snapshot`` holds what was before."""

    kind: str
    branch: str
    snapshot: str


class FileInfo(PathName, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file as stat(2) shows it; ``path`` from the root, in a listing the name alone. Times in ns, 0 for one that is unknown.

    ``kind`` is symlink only for what was not followed, or leads to nothing or out of the root. ``is_link``: the name is a
    symlink's, whatever the rest is about. ``mode`` has only the type in a listing of names, or by somebody who may not search
    the directory. ``target``, written as paths are: where a symlink leads to, when that one name was asked for.
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


class AuditEntry(Renamed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who changed what. ``uid`` is -1, ``pid`` 0 and ``command`` "" where nobody knows.

    ``kind``: as of an Event; or for a request that changes no branch policy, interpose, prune, gc, commit-aborted, unmount,
    attached (a private mount), refused (what somebody may not ask for): ``name`` says more. modified: once in about a second
    for each file and process. bound, unbound: ``pid`` is whoever asked; where that is about another process, ``name`` says which.
    lost: entries are missing: ``name`` says how many, or killed (the daemon was: about a second) or unreadable (all older ones).
    """

    id: int
    time_ns: int
    branch: str
    uid: int
    pid: int
    command: str
    kind: str
    name: str = ""
