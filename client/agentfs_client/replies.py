"""Every reply of the daemon."""

from typing import Literal

from agentfs_client.facts import (
    AuditEntry,
    Binding,
    Branch,
    BranchSnapshot,
    Change,
    Conflict,
    Decision,
    Deed,
    FileInfo,
    FilePatch,
    MergedPath,
    PathName,
    RepositoryChange,
    exact_path,
)
from agentfs_client.message import Message, tagged
from agentfs_client.observed import KernelConnection, OperationLoad, PendingCommit, ProcessLoad, SlowRequest


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
        return exact_path(self.path, self.raw_path)

    @property
    def old_path_bytes(self) -> bytes:
        return exact_path(self.old_path, self.raw_old_path)


class BranchReply(Reply, frozen=True, kw_only=True, tag="branch"):
    branch: Branch


class BranchesReply(Reply, frozen=True, kw_only=True, tag="branches"):
    branches: list[Branch]


class SnapshotReply(Reply, frozen=True, kw_only=True, tag="snapshot"):
    snapshot: BranchSnapshot


class SnapshotsReply(Reply, frozen=True, kw_only=True, tag="snapshots"):
    snapshots: list[BranchSnapshot]


class BindingsReply(Reply, frozen=True, kw_only=True, tag="bindings"):
    bindings: list[Binding]


class ChangesReply(Reply, frozen=True, kw_only=True, tag="changes"):
    """``repositories``: what was committed with git, where that was asked for."""

    changes: list[Change]
    repositories: list[RepositoryChange] = []


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

    ``into``: the branch or directory. With ``conflicts`` nothing has changed, unless the request said ``leave_conflicting``.
    ``merged`` and ``left``: the sources that the branch has now, and those that had conflicts or had to wait for these.
    ``decided``: what ``favor`` or ``markers`` decided. ``said``: what was done to git's histories, in sentences; ``internal``:
    how many files of git's databases changed, which are not in ``changed``.
    """

    how: str
    into: str
    changed: list[MergedPath]
    conflicts: list[Conflict]
    merged: list[str] = []
    left: list[str] = []
    decided: list[Decision] = []
    said: list[str] = []
    internal: int = 0


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


class ViewReply(Reply, frozen=True, kw_only=True, tag="view.ok"):
    """With it come a descriptor of a mount that is nowhere yet, and of the user namespace to enter first, where it needs one."""

    io: str  # how data gets to programs
    joined: bool  # other runs use that connection as well


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
    ``metrics``: where they are served, "" for nowhere. ``damage``: what was found to be lost or damaged, or was set aside.
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
    connections: list[KernelConnection] = []
    pending_commit: PendingCommit | None = None
    slow: list[SlowRequest] = []
    audit: bool = False
    metrics: str = ""
    damage: list[str] = []


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


REPLY_TYPES = tagged(Reply)
