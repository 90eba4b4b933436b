"""Every reply of the daemon, and the records that replies hold."""

import base64
from typing import Literal

import msgspec

from agentfs_client.message import Message
from agentfs_client.observed import Connection, OperationLoad, PendingCommit, ProcessLoad, SlowRequest


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


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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
    kind: str = ""  # why it was taken when nobody named it: run, safety, merge
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
        return _exact(self.path, self.raw_path)


class Renamed(PathName, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``old_path``: where a renamed file was; "" for any other change."""

    old_path: str = ""
    raw_old_path: str = ""

    @property
    def old_path_bytes(self) -> bytes:
        return _exact(self.old_path, self.raw_old_path)


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


def _exact(path: str, raw_path: str) -> bytes:
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
    rename/delete, rename/add, type, symlink, special, attributes, or drift (the target changed meanwhile)."""

    kind: str
    message: str


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
        return _exact(self.target, self.raw_target)


class AuditEntry(Renamed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who changed what. ``kind``: as of an Event, or lost: ``name`` says how many entries could not be kept. ``uid`` is -1,
    ``pid`` 0 and ``command`` "" where nobody knows. modified: once in about a second for each file and process.
    """

    id: int
    time_ns: int
    branch: str
    uid: int
    pid: int
    command: str
    kind: str
    name: str = ""


class Reply(Message, frozen=True, kw_only=True):
    pass


class HelloOk(Reply, frozen=True, kw_only=True, tag="hello.ok"):
    version: int
    daemon: str
    branch: str  # the caller's
    bound: bool


class Done(Reply, frozen=True, kw_only=True, tag="done"):
    """``message``: what was done, for people; "" when there is nothing to say."""

    message: str = ""


class Error(Reply, frozen=True, kw_only=True, tag="error"):
    """``code``: a stable word for programs; ``message``: one sentence; ``hint``: what would be right."""

    errno: int
    code: str
    message: str
    hint: str = ""


class Progress(Reply, frozen=True, kw_only=True, tag="progress"):
    """Before the reply to a long request: *done* of *total* steps (0: nobody knows), and what is being done, for people."""

    done: int
    total: int
    what: str


class EventsOk(Reply, frozen=True, kw_only=True, tag="events.ok"):
    """From here on nothing is missed."""


EventKind = Literal[
    "created", "modified", "deleted", "renamed", "attributes",
    "snapshot", "snapshot-deleted", "restore", "merge", "commit", "undo", "discard",
    "branch-created", "branch-renamed", "branch-deleted", "bound", "unbound",
    "lost",
]  # fmt: skip


class Event(Reply, frozen=True, kw_only=True, tag="event"):
    """What happened in ``branch``. Paths, relative to its root and written as in Change, where it happened to a file.

    modified: told at the first write, then at most every 0.2 s while writing goes on, and after the last. renamed:
    ``old_path`` became ``path``, which may have been another file. attributes: mode, owner, times or extended attributes.
    restore, merge, commit, undo, discard: the whole tree may be another one; what differs is not told.
    ``name``: of the snapshot, also of an undo's; of a restore's ref; the refs that were merged, with spaces; the old name of a
    renamed branch; what a created branch was made from.
    ``pid``: the process that did it, or that was bound; 0 where the daemon does not know.
    lost: the client read too slowly, and ``count`` events are missing here.
    """

    kind: EventKind
    branch: str
    time_ns: int
    path: str = ""
    raw_path: str = ""
    old_path: str = ""
    raw_old_path: str = ""
    is_dir: bool = False
    pid: int = 0
    name: str = ""
    count: int = 0

    @property
    def path_bytes(self) -> bytes:
        return _exact(self.path, self.raw_path)

    @property
    def old_path_bytes(self) -> bytes:
        return _exact(self.old_path, self.raw_old_path)


class BranchReply(Reply, frozen=True, kw_only=True, tag="branch"):
    branch: Branch


class BranchesReply(Reply, frozen=True, kw_only=True, tag="branches"):
    branches: list[Branch]


class SnapshotReply(Reply, frozen=True, kw_only=True, tag="snapshot"):
    snapshot: Snapshot


class SnapshotsReply(Reply, frozen=True, kw_only=True, tag="snapshots"):
    snapshots: list[Snapshot]


class BindingsReply(Reply, frozen=True, kw_only=True, tag="bindings"):
    bindings: list[Binding]


class ChangesReply(Reply, frozen=True, kw_only=True, tag="changes"):
    changes: list[Change]


class FilesDifferReply(Reply, frozen=True, kw_only=True, tag="diff.files.ok"):
    """Sorted by path. ``unchanged``: files that are the same on both sides, -1 where that was not asked for."""

    added: list[PathName]
    modified: list[PathName]
    deleted: list[PathName]
    unchanged: int = -1


class PatchesReply(Reply, frozen=True, kw_only=True, tag="patches"):
    patches: list[FilePatch]


class MergeReply(Reply, frozen=True, kw_only=True, tag="merge.ok"):
    """``how``: merged, fast-forward, lower (committed into the real directory), or nothing (there was nothing to do).

    ``into``: the branch or directory. With ``conflicts`` nothing has changed.
    """

    how: str
    into: str
    changed: list[PathName]
    conflicts: list[Conflict]


class DeedsReply(Reply, frozen=True, kw_only=True, tag="deeds"):
    """What was undone, or what can be, the last first."""

    deeds: list[Deed]


class FreedReply(Reply, frozen=True, kw_only=True, tag="freed"):
    objects: int
    freed_bytes: int


class PolicyReply(Reply, frozen=True, kw_only=True, tag="policy"):
    policy: dict[str, str]


class ProblemsReply(Reply, frozen=True, kw_only=True, tag="problems"):
    problems: list[str]


class CapabilitiesReply(Reply, frozen=True, kw_only=True, tag="capabilities.ok"):
    capabilities: dict[str, str]


class SessionReply(Reply, frozen=True, kw_only=True, tag="session.ok"):
    io: str  # what was chosen


class FileReply(Reply, frozen=True, kw_only=True, tag="file"):
    file: FileInfo


class FilesReply(Reply, frozen=True, kw_only=True, tag="files"):
    files: list[FileInfo]


class FileOpened(Reply, frozen=True, kw_only=True, tag="file.opened"):
    """``handle``: what further requests of this conversation name it by, 0 where there is nothing further. ``data``: its
    beginning, where that was asked for (base64 in JSON)."""

    handle: int
    file: FileInfo | None = None  # None: there is none yet
    data: bytes = b""


class FilesCounted(Reply, frozen=True, kw_only=True, tag="file.counted"):
    """Whatever is no directory; ``size_bytes`` counts regular files."""

    files: int
    size_bytes: int


class FileData(Reply, frozen=True, kw_only=True, tag="file.data"):
    data: bytes


class BackstoreReply(Reply, frozen=True, kw_only=True, tag="backstore.ok"):
    """``why``: for what reason it is not the kind that was asked for; ``place``: the directory of its files, with memory of those
    that are too large for it. ``native_snapshots``: reflink or none. Sizes count what is allocated; blocks that objects share
    count for each.

    ``garbage_...``: what nothing refers to, freed in the next quiet moment, part of the whole. ``reserve_bytes``: taken in
    advance so that with a full disk files can be removed.
    """

    kind: str
    why: str
    place: str
    filesystem: str  # its type, such as btrfs
    native_snapshots: str
    objects: int
    size_bytes: int
    spilled_objects: int
    spilled_bytes: int
    garbage_objects: int
    garbage_bytes: int
    reserve_bytes: int
    free_bytes: int  # of that file system
    total_bytes: int


class StatusReply(Reply, frozen=True, kw_only=True, tag="status.ok"):
    """``usage``: branches, snapshots, objects and bytes held. ``resources``: what the daemon itself takes, such as rss_bytes.

    ``session_why``: why that session, in words; ``backstore_why`` likewise, where it is not the one asked for.
    ``cap_backstore``: its kind and abilities, as capabilities have them. ``fd_forwarding``: off, or shim where real descriptors
    are given out.

    ``resources``, where they are known: rss_bytes, descriptors, connections, nodes, handles, inodes, processes, database_bytes,
    disk_free_bytes and disk_total_bytes (of the file system with the contents), garbage_objects (to be freed), notifications
    (that the kernel has not taken yet), requests (answered so far), slow_requests, and lag_us: how long at most the event loop
    let somebody wait within the last minute. ``slow``: the last of them, the newest last. ``audit``: the audit trail is written.
    ``metrics``: where they are served, "" for nowhere.
    """

    daemon: str
    pid: int
    lower: str
    mountpoint: str
    state: str
    session: str
    backstore: str
    started_ns: int
    branch: str
    bound: bool
    branches: list[Branch]
    bindings: list[Binding]
    usage: dict[str, int]
    resources: dict[str, int] = {}
    session_why: str = ""
    cap_backstore: str = ""
    backstore_why: str = ""
    fd_forwarding: str = "off"
    connections: list[Connection] = []
    pending_commit: PendingCommit | None = None
    slow: list[SlowRequest] = []
    audit: bool = False
    metrics: str = ""


class TopReply(Reply, frozen=True, kw_only=True, tag="top.ok"):
    """What there was within ``span_ns``. Reads, opens and look-ups that the kernel answers by itself are not seen, nor what it
    reads and writes past the daemon (--io passthrough, forwarded descriptors)."""

    span_ns: int
    operations: list[OperationLoad]
    processes: list[ProcessLoad]
    read_bytes: int
    written_bytes: int
    lag_ns: int


class AuditReply(Reply, frozen=True, kw_only=True, tag="audit.ok"):
    """``enabled``: entries are being added (`agentfsd policy set audit.enabled yes`)."""

    enabled: bool
    entries: list[AuditEntry]


class FdReply(Reply, frozen=True, kw_only=True, tag="fd"):
    """A descriptor comes along. ``source``: own, the branch's own content, which this descriptor follows; lower, the unmodified
    file below (read-only), or snapshot (likewise): such a descriptor does not show what is changed later."""

    source: Literal["own", "lower", "snapshot"]
    file: FileInfo


class InterposeReply(Reply, frozen=True, kw_only=True, tag="interpose.ok"):
    """How real descriptors are given out.

    ``settings``, as text: enabled (on, off); eager_upperization (on: also who only reads gets the branch's own content, copied up
    for this; off: the lower's file); max_copy_bytes (what may be copied for this where blocks cannot be shared);
    require_reflink (on: nothing is copied); min_read_bytes (below that a program that only reads is left with the mount);
    allow (programs, by path or name, with * and ?, separated by spaces; empty: every one).
    ``possible``: whether this daemon can, and ``why`` not, "" when it can. ``socket``: where the preloaded library asks.
    ``open``: files that descriptors were given out of and somebody still has open.
    """

    settings: dict[str, str]
    possible: bool
    why: str = ""
    socket: str = ""
    open: int = 0


AnyReply = (
    HelloOk | Done | Error | Progress | EventsOk | Event | BranchReply | BranchesReply | SnapshotReply | SnapshotsReply
    | BindingsReply | ChangesReply | FilesDifferReply | PatchesReply | MergeReply | DeedsReply | FreedReply | PolicyReply
    | ProblemsReply | CapabilitiesReply | SessionReply | FileReply | FilesReply | FileOpened | FilesCounted | FileData
    | BackstoreReply | StatusReply | TopReply | AuditReply | FdReply | InterposeReply
)  # fmt: skip
