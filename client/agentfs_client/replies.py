"""Every reply of the daemon."""

from typing import Literal

import msgspec

from agentfs_client.facts import (
    AuditEntry,
    Binding,
    Branch,
    BranchSnapshot,
    Change,
    Conflict,
    Decision,
    FilePatch,
    MergedPath,
    PathName,
    PathOverlap,
    PathQuestion,
    PathVerdict,
    RecordedRun,
    RefusedCount,
    RepositoryChange,
    RuleInScope,
    SessionStep,
    UndoEntry,
    exact_path,
)
from agentfs_client.message import Reply
from agentfs_client.observed import AgentActivity, KernelConnection, OperationLoad, PendingCommit, ProcessLoad, SlowRequest
from agentfs_client.wire_conflicts import LeftOpenConflict


class HelloOk(Reply, frozen=True, kw_only=True, tag="hello.ok"):
    version: int
    daemon: str
    branch: str  # the caller's branch
    bound: bool


class Done(Reply, frozen=True, kw_only=True, tag="done"):
    """The request succeeded. ``message`` describes the result for people; it may be ""."""

    message: str = ""


class Error(Reply, frozen=True, kw_only=True, tag="error"):
    """The request was refused. ``code`` is a stable word for programs, ``message`` one sentence, ``hint`` a remedy."""

    errno: int
    code: str
    message: str
    hint: str = ""


class Progress(Reply, frozen=True, kw_only=True, tag="progress"):
    """Progress of a long request, sent before its reply: *done* of *total* steps (0 if the total is not known), and the present
    activity for people.
    """

    done: int
    total: int
    what: str


class EventsOk(Reply, frozen=True, kw_only=True, tag="events.ok"):
    """The subscription to events has begun. No later event is missed."""


EventKind = Literal[
    "created", "modified", "deleted", "renamed", "attributes",
    "snapshot", "snapshot-deleted", "restore", "merge", "commit", "undo", "discard",
    "branch-created", "branch-renamed", "branch-deleted", "bound", "unbound",
    "overlap", "conflict",
    "note-added", "note-answered", "note-resolved", "note-reopened", "note-removed",
    "lost",
]  # fmt: skip


class Event(Reply, frozen=True, kw_only=True, tag="event"):
    """Something that happened in ``branch``. Events of files have paths relative to the branch's root, written as in Change.

    modified: sent at the first write, then at most every 0.2 s while writes continue, and after the last one. renamed:
    ``old_path`` became ``path`` and may have replaced another file. attributes: mode, owner, times or extended attributes
    changed. restore, merge, commit, undo, discard: any part of the tree may have changed; the event does not list the changes.

    ``name`` is the name of the snapshot, also for undo; the ref of a restore; the refs of a merge, separated by spaces; the old
    name of a renamed branch; the ref that a created branch came from. ``pid`` is the process that acted, or that was bound; 0 if
    the daemon does not know it.

    overlap: the branch has changed a path that other branches have changed; conflict: a merge would conflict there. ``name`` is
    these branches, separated by a comma and a space. Bound processes are not told.

    note-added, note-answered, note-resolved, note-reopened, note-removed: ``name`` is the id of the note, and ``path`` what it is
    about; nothing in the branch changes.

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


class RunReply(Reply, frozen=True, kw_only=True, tag="run"):
    run: RecordedRun


class RunsReply(Reply, frozen=True, kw_only=True, tag="runs"):
    runs: list[RecordedRun]


class StepReply(Reply, frozen=True, kw_only=True, tag="step"):
    """The step that was noted. ``is_new``: its snapshot was taken for it. ``notes``: how many open notes of the branch the
    session was not told of yet.
    """

    step: SessionStep
    is_new: bool
    notes: int = 0


class StepsReply(Reply, frozen=True, kw_only=True, tag="steps"):
    steps: list[SessionStep]


class StepChangesReply(Reply, frozen=True, kw_only=True, tag="step.changes.ok"):
    """What has changed since ``step``: the number of all changes by status, as in Change, and some of them. ``replaced``: a
    restore or an undo has replaced the branch's files since the step before that. ``notes``: as in StepReply.
    """

    step: SessionStep
    counts: dict[str, int]
    changes: list[Change]
    replaced: bool = False
    notes: int = 0


class BindingsReply(Reply, frozen=True, kw_only=True, tag="bindings"):
    bindings: list[Binding]


class ChangesReply(Reply, frozen=True, kw_only=True, tag="changes"):
    """Changes, and in ``repositories`` the git commits, if the request asked for them."""

    changes: list[Change]
    repositories: list[RepositoryChange] = []


class FilesDifferReply(Reply, frozen=True, kw_only=True, tag="diff.files.ok"):
    """The files that differ, sorted by path. ``unchanged`` counts equal files; -1 if the request did not ask for it.
    ``repositories`` are the git commits, if the request asked for them.
    """

    added: list[PathName]
    modified: list[PathName]
    deleted: list[PathName]
    unchanged: int = -1
    repositories: list[RepositoryChange] = []


class PatchesReply(Reply, frozen=True, kw_only=True, tag="patches"):
    patches: list[FilePatch]


class MergeReply(Reply, frozen=True, kw_only=True, tag="merge.ok"):
    """The result of a merge or commit.

    If ``conflicts`` is not empty, nothing has changed, unless the request said ``leave_conflicting``.

    ``how`` is merged, fast-forward, lower (committed into the real directory), or nothing (there was nothing to do). ``into`` is
    the branch or directory. ``changed`` lists the changes as a diff of the branch or directory before and after would.
    ``said`` describes in sentences what happened to git histories. ``internal`` counts the changes of git's own files, which
    ``changed`` includes only if the request asked for them. ``undecided`` are the conflicts that were left in the target, if the
    request said ``conflicts``.
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
    undecided: list[LeftOpenConflict] = []


class UndoLogReply(Reply, frozen=True, kw_only=True, tag="deeds"):
    """What was undone or can be undone, newest first."""

    entries: list[UndoEntry] = msgspec.field(name="deeds")


class FreedReply(Reply, frozen=True, kw_only=True, tag="freed"):
    objects: int
    freed_bytes: int


class PolicyReply(Reply, frozen=True, kw_only=True, tag="policy"):
    policy: dict[str, str]


class RulesReply(Reply, frozen=True, kw_only=True, tag="rules"):
    """Rules in the order in which they count: the last one that matches a path decides. After a change: the changed rules."""

    rules: list[RuleInScope]


class AsksReply(Reply, frozen=True, kw_only=True, tag="asks"):
    """The waiting questions, oldest first. After an answer: the question that it answered."""

    asks: list[PathQuestion]


class VerdictsReply(Reply, frozen=True, kw_only=True, tag="rules.verdicts"):
    verdicts: list[PathVerdict]


class ProblemsReply(Reply, frozen=True, kw_only=True, tag="problems"):
    problems: list[str]


class CapabilitiesReply(Reply, frozen=True, kw_only=True, tag="capabilities.ok"):
    capabilities: dict[str, str]


class ViewReply(Reply, frozen=True, kw_only=True, tag="view.ok"):
    """The reply to ViewOpen. It carries a descriptor of a detached mount, and one of the user namespace to enter first if it
    needs one. The last descriptor is that of the home directory's mount if ``has_home``; ``home_why`` says why there is none.
    """

    io: str  # how file data reaches programs
    joined: bool  # whether other runs share this connection
    has_home: bool = False
    home_why: str = ""


class BackstoreReply(Reply, frozen=True, kw_only=True, tag="backstore.ok"):
    """Where and how the daemon keeps contents.

    ``why`` says why this is not the kind that was requested. ``place`` is the directory of its files; for the memory backstore,
    of the files that are too large for memory. ``native_snapshots`` is reflink or none. Sizes count allocated blocks; blocks that
    several objects share are counted for each of them. ``garbage_...`` count objects that nothing refers to; the daemon frees
    them when it is idle, and the totals include them. ``reserve_bytes`` is space reserved so that files can still be removed on a
    full disk.
    """

    kind: str
    why: str
    place: str
    filesystem: str  # type of the file system, such as btrfs
    native_snapshots: str
    objects: int
    size_bytes: int
    spilled_objects: int
    spilled_bytes: int
    garbage_objects: int
    garbage_bytes: int
    reserve_bytes: int
    free_bytes: int  # free space of that file system
    total_bytes: int


class StatusReply(Reply, frozen=True, kw_only=True, tag="status.ok"):
    """The state of the daemon.

    ``usage`` counts branches, snapshots, objects and bytes. ``session_why`` says why the daemon uses this kind of session;
    ``backstore_why`` says why the backstore is not the requested one. ``cap_backstore`` is the backstore's kind and abilities, as
    in capabilities. ``fd_forwarding`` is off, or shim if the daemon gives out real descriptors.

    ``resources`` is what the daemon itself uses, as far as it is known: rss_bytes, descriptors, connections, nodes, handles,
    inodes, processes, database_bytes, disk_free_bytes and disk_total_bytes (of the file system with the contents),
    garbage_objects (to be freed), notifications (not yet accepted by the kernel), requests (answered so far), slow_requests, and
    lag_us (the longest delay of the event loop within the last minute).

    ``restarts`` says why no daemon is started in the place of this one if it is killed; "" if one is. ``succeeds`` counts the
    daemons that served this mount before, and were killed or replaced.

    ``slow`` lists recent slow requests, newest last. ``audit`` says whether the audit trail is written. ``metrics`` is the
    address where metrics are served, or "". ``damage`` lists content that was lost, damaged or set aside.
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
    restarts: str = ""
    succeeds: int = 0


class OverlapsReply(Reply, frozen=True, kw_only=True, tag="overlaps.ok"):
    """The paths that several branches have changed, in order. ``complete`` is false if some changes are yet to be compared."""

    overlaps: list[PathOverlap]
    complete: bool


class TopReply(Reply, frozen=True, kw_only=True, tag="top.ok"):
    """The requests within ``span_ns``.

    The daemon does not see reads, opens and look-ups that the kernel answers from its caches, nor reads and writes that bypass it
    (--io passthrough, forwarded descriptors).
    """

    span_ns: int
    operations: list[OperationLoad]
    processes: list[ProcessLoad]
    read_bytes: int
    written_bytes: int
    lag_ns: int
    agents: list[AgentActivity] = []  # of each branch; of the caller's own where it is bound


class RefusalsReply(Reply, frozen=True, kw_only=True, tag="refusals"):
    """Refused requests, the latest kinds last."""

    refusals: list[RefusedCount]


class AuditReply(Reply, frozen=True, kw_only=True, tag="audit.ok"):
    """Entries of the audit trail. ``enabled`` says whether entries are being added (`agentfsd policy set audit.enabled yes`)."""

    enabled: bool
    entries: list[AuditEntry]


class InterposeReply(Reply, frozen=True, kw_only=True, tag="interpose.ok"):
    """How the daemon gives out real descriptors.

    ``settings`` are texts:

    - enabled: on or off.
    - eager_upperization: on copies a file into the branch even if a program only reads it; off gives that program the lower's
      file.
    - max_copy_bytes: the most that may be copied for this if blocks cannot be shared.
    - require_reflink: on forbids copying.
    - min_read_bytes: a smaller file that a program only reads stays with the mount.
    - allow: programs, by path or name, with * and ?, separated by spaces; empty allows all.

    ``possible`` says whether this daemon can forward descriptors, and ``why`` says why not. ``socket`` is where the preloaded
    library connects. ``open`` counts files whose forwarded descriptors are still open.
    """

    settings: dict[str, str]
    possible: bool
    why: str = ""
    socket: str = ""
    open: int = 0
