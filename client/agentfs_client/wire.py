"""Every message between clients and the daemon, in one place and versioned. The daemon imports this, never the other way.

A message is msgpack; one whose first byte is ``{`` is JSON and is answered in JSON. On the control file one write is one
request, and the reply is read from the same descriptor. On the socket each message follows its length, four bytes, little
endian. Source: the control plane of the AgentFS specification.
"""

import base64
import re
import struct
from typing import Literal

import msgspec

PROTOCOL_VERSION = 1
MAX_REQUEST_BYTES = 1 << 20
MAX_REPLY_BYTES = 1 << 30

NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
_NAME = re.compile(NAME_PATTERN)
_LENGTH = struct.Struct("<I")


def valid_name(name: str) -> bool:
    """Whether a branch or snapshot may be called so."""
    return _NAME.fullmatch(name) is not None


class Message(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op"):
    """Base of all messages; ``op`` says which one it is."""


class Request(Message, frozen=True, kw_only=True):
    """``version`` may be left out; a request of another version is refused. First in a socket's conversation: hello."""

    version: int = PROTOCOL_VERSION


class LongRequest(Request, frozen=True, kw_only=True):
    """One that may take long. On the socket it is given up when the client closes its end before the reply.

    ``progress``: any number of Progress may come before the reply; on the socket only.
    """

    progress: bool = False


# -- requests; a branch left out means the caller's own: the one it is bound to, else "main"


class Hello(Request, frozen=True, kw_only=True, tag="hello"):
    client: str = ""


class Status(Request, frozen=True, kw_only=True, tag="status"):
    pass


class Capabilities(Request, frozen=True, kw_only=True, tag="capabilities"):
    pass


class BranchCreate(Request, frozen=True, kw_only=True, tag="branch.create"):
    name: str
    source: str | None = None  # any ref; None: main as it is now


class BranchList(Request, frozen=True, kw_only=True, tag="branch.list"):
    pass


class BranchShow(Request, frozen=True, kw_only=True, tag="branch.show"):
    ref: str | None = None


class BranchRename(Request, frozen=True, kw_only=True, tag="branch.rename"):
    ref: str
    new_name: str


class BranchDelete(Request, frozen=True, kw_only=True, tag="branch.delete"):
    ref: str


class Discard(Request, frozen=True, kw_only=True, tag="discard"):
    """``keep``: undo can bring it back; else its room is free at once."""

    ref: str
    keep: bool = True


class BranchBind(Request, frozen=True, kw_only=True, tag="branch.bind"):
    """``brood``: whatever else the asking process starts, or becomes the parent of, is bound as well."""

    pid: int
    branch: str
    brood: bool = False


class BranchUnbind(Request, frozen=True, kw_only=True, tag="branch.unbind"):
    pid: int


class BranchBindings(Request, frozen=True, kw_only=True, tag="branch.bindings"):
    pass


class SessionAttach(Request, frozen=True, kw_only=True, tag="session.attach"):
    """Hands a FUSE connection over, which is to show one branch; its descriptor comes along on the socket.

    ``io``: how data gets to programs (auto, zero-message, passthrough, cached). ``device``: its st_dev, where it is mounted.
    """

    branch: str
    io: str = "auto"
    device: int = 0


class SnapshotCreate(Request, frozen=True, kw_only=True, tag="snapshot.create"):
    """``around_run``: taken by itself before or after a command, and subject to retention."""

    branch: str | None = None
    name: str | None = None  # None: one is made up
    tag: str = ""
    around_run: bool = False


class SnapshotList(Request, frozen=True, kw_only=True, tag="snapshot.list"):
    branch: str | None = None  # None: all of them, or for a bound caller those of its branch


class SnapshotShow(Request, frozen=True, kw_only=True, tag="snapshot.show"):
    ref: str


class SnapshotDelete(Request, frozen=True, kw_only=True, tag="snapshot.delete"):
    ref: str


class Diff(Request, frozen=True, kw_only=True, tag="diff"):
    """Both left out: the lower against the caller's branch. Only b: the lower against b.

    ``paths``, relative to the root, are files or directories (with all below them) to keep to; ``raw_paths`` are such as
    need not be UTF-8 (base64 in JSON). A rename counts by either of its names.
    """

    a: str | None = None
    b: str | None = None
    paths: list[str] = []
    raw_paths: list[bytes] = []


class DiffPatch(LongRequest, frozen=True, kw_only=True, tag="diff.patch"):
    """Like diff, with patches in git's format, or with ``stat_only`` just what they count. ``context_lines`` around a change."""

    a: str | None = None
    b: str | None = None
    paths: list[str] = []
    raw_paths: list[bytes] = []
    stat_only: bool = False
    context_lines: int = 3


class Log(Request, frozen=True, kw_only=True, tag="log"):
    ref: str | None = None


class Restore(LongRequest, frozen=True, kw_only=True, tag="restore"):
    """``paths`` and ``raw_paths`` as in diff: only these go back; none: everything, at once."""

    ref: str
    branch: str | None = None
    paths: list[str] = []
    raw_paths: list[bytes] = []


class Merge(LongRequest, frozen=True, kw_only=True, tag="merge"):
    """Merges the refs ``sources``, in order, into the branch ``target``, all of them or none.

    ``favor``: whose side wins where both changed the same (union: both, line by line); "" makes that a conflict.
    ``whole_files``: two changes to one file are a conflict, whatever the lines. ``markers``: text conflicts are written into
    the files.
    """

    sources: list[str]
    target: str | None = None
    favor: Literal["", "ours", "theirs", "union"] = ""
    whole_files: bool = False
    markers: bool = False
    dry_run: bool = False


class Commit(LongRequest, frozen=True, kw_only=True, tag="commit"):
    """Applies a branch to the branch that it was made from, or to the lower when that is what it was made from.

    Paths that changed there meanwhile are conflicts, unless ``force`` overwrites them or ``merge`` merges them three-way.
    """

    branch: str | None = None
    paths: list[str] = []
    raw_paths: list[bytes] = []
    force: bool = False
    merge: bool = False
    dry_run: bool = False


class CommitEnd(LongRequest, frozen=True, kw_only=True, tag="commit.end"):
    """Finishes a commit into the lower that was interrupted, or with ``abort`` takes it back."""

    abort: bool = False


class Undo(Request, frozen=True, kw_only=True, tag="undo"):
    """Takes back the last restore, merge, commit to a branch, or discard."""


class UndoList(Request, frozen=True, kw_only=True, tag="undo.list"):
    pass


class Prune(Request, frozen=True, kw_only=True, tag="prune"):
    """Deletes snapshots; left out, what `policy` says. ``max_count`` counts for each branch; 0 is no limit."""

    branch: str | None = None
    max_count: int | None = None
    max_age: str | None = None  # such as "30d"
    keep_tagged: bool | None = None
    dry_run: bool = False


class CollectGarbage(LongRequest, frozen=True, kw_only=True, tag="gc"):
    """Frees what nothing refers to now, not in the next quiet moment. ``forget_undo``: also what is only kept for undo."""

    forget_undo: bool = False


class PolicyGet(Request, frozen=True, kw_only=True, tag="policy.get"):
    pass


class PolicySet(Request, frozen=True, kw_only=True, tag="policy.set"):
    name: str
    value: str


class Fsck(LongRequest, frozen=True, kw_only=True, tag="fsck"):
    pass


class Events(Request, frozen=True, kw_only=True, tag="events"):
    """What happens in a branch from now on; on the socket only. EventsOk comes at once, then Event after Event until the
    client closes its end, or Done when the branch has gone. ``branch`` None: every branch, for a bound caller its own."""

    branch: str | None = None


class Shutdown(Request, frozen=True, kw_only=True, tag="shutdown"):
    """Asks the daemon to unmount and end; *force* also while the mount is in use."""

    force: bool = False


AnyRequest = (
    Hello | Status | Capabilities | BranchCreate | BranchList | BranchShow | BranchRename | BranchDelete | Discard
    | BranchBind | BranchUnbind | BranchBindings | SessionAttach | SnapshotCreate | SnapshotList | SnapshotShow | SnapshotDelete
    | Diff | DiffPatch | Log | Restore | Merge | Commit | CommitEnd | Undo | UndoList | Prune | CollectGarbage | PolicyGet
    | PolicySet | Fsck | Events | Shutdown
)  # fmt: skip

# -- replies


class Branch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``changed``: stored changes since ``base``, the ref it was made from ("" for the bare lower). ``last``: id of its newest
    snapshot, or of the one it was made from; "" for none."""

    name: str
    id: str
    base: str
    created_ns: int
    changed: int
    processes: int = 0
    last: str = ""


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


class Change(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A path that differs.

    ``status``: A added, M content, D deleted, R renamed (and perhaps changed), T type, m mode or owner, x extended attributes.
    ``what``: all that differs, of content, type, mode, owner, xattrs. ``path`` is for people (bytes that are no UTF-8 show as
    \\xNN); ``raw_path``, base64, is set when it is not exact. Sizes in bytes, -1 on a side that has no such file.
    """

    status: str
    path: str
    old_size: int
    new_size: int
    lower_moved: bool = False
    raw_path: str = ""
    old_path: str = ""
    raw_old_path: str = ""
    what: tuple[str, ...] = ()

    @property
    def path_bytes(self) -> bytes:
        return _exact(self.path, self.raw_path)

    @property
    def old_path_bytes(self) -> bytes:
        """Where a renamed file was; b"" for any other change."""
        return _exact(self.old_path, self.raw_old_path)


def _exact(path: str, raw_path: str) -> bytes:
    return base64.b64decode(raw_path) if raw_path else path.encode()


def path_fields(path: bytes, field: str = "path") -> dict[str, str]:
    """``path`` and ``raw_path`` of a Change (or another *field*)."""
    try:
        return {field: path.decode()}
    except UnicodeDecodeError:
        return {field: path.decode("utf-8", "backslashreplace"), f"raw_{field}": base64.b64encode(path).decode()}


class FilePatch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A changed file with its patch, which `git apply` takes; those of several files may follow each other.

    Paths and status as in Change; ``old_path`` is "" unless it was renamed. ``added`` and ``removed`` count lines, -1 where
    ``is_binary`` (or too large to be compared). Sizes in bytes, -1 on a side that has no such file. ``patch`` (base64 in JSON) is
    empty when only counts were asked for. ``note``: what git's format cannot express (owners, empty directories, ...), in words.
    """

    status: str
    path: str
    raw_path: str = ""
    old_path: str = ""
    raw_old_path: str = ""
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

    @property
    def path_bytes(self) -> bytes:
        return _exact(self.path, self.raw_path)

    @property
    def old_path_bytes(self) -> bytes:
        return _exact(self.old_path, self.raw_old_path)


class Conflict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A path that cannot be merged or committed. ``kind``: content, binary, add/add, modify/delete, rename/rename,
    rename/delete, rename/add, type, symlink, special, attributes, or drift (the target changed meanwhile)."""

    path: str
    raw_path: str = ""
    kind: str
    message: str


class PathName(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """As in Change."""

    path: str
    raw_path: str = ""


class Deed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something that can be undone. ``kind``: restore, merge, commit or discard; ``snapshot`` holds what was before."""

    kind: str
    branch: str
    snapshot: str


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


class StatusReply(Reply, frozen=True, kw_only=True, tag="status.ok"):
    """``usage``: branches, snapshots, objects and bytes held. ``resources``: what the daemon itself takes, such as rss_bytes.

    ``session_why``: why that session, in words.
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


AnyReply = (
    HelloOk | Done | Error | Progress | EventsOk | Event | BranchReply | BranchesReply | SnapshotReply | SnapshotsReply
    | BindingsReply | ChangesReply | PatchesReply | MergeReply | DeedsReply | FreedReply | PolicyReply | ProblemsReply
    | CapabilitiesReply | SessionReply | StatusReply
)  # fmt: skip

_request_msgpack = msgspec.msgpack.Decoder(AnyRequest)
_request_json = msgspec.json.Decoder(AnyRequest)
_reply_msgpack = msgspec.msgpack.Decoder(AnyReply)
_reply_json = msgspec.json.Decoder(AnyReply)


class _Claim(msgspec.Struct, frozen=True):
    """All that is asked of a message which may be of another version."""

    version: int = PROTOCOL_VERSION


_claim_msgpack = msgspec.msgpack.Decoder(_Claim)
_claim_json = msgspec.json.Decoder(_Claim)


def is_json(body: bytes) -> bool:
    return body[:1] == b"{"


def decode_request(body: bytes) -> AnyRequest:
    """msgspec.DecodeError (ValidationError for wrong fields) for anything else than a request."""
    request: AnyRequest = _request_json.decode(body) if is_json(body) else _request_msgpack.decode(body)
    return request


def claimed_version(body: bytes) -> int:
    """The version of a message that cannot be read otherwise; ours when it names none."""
    try:
        claim: _Claim = _claim_json.decode(body) if is_json(body) else _claim_msgpack.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return PROTOCOL_VERSION
    return claim.version


def decode_reply(body: bytes) -> AnyReply:
    reply: AnyReply = _reply_json.decode(body) if is_json(body) else _reply_msgpack.decode(body)
    return reply


def encode(message: Message, *, json: bool = False) -> bytes:
    """JSON ends with a newline, so that a shell's ``read`` returns."""
    return msgspec.json.encode(message) + b"\n" if json else msgspec.msgpack.encode(message)


def frame(body: bytes) -> bytes:
    return _LENGTH.pack(len(body)) + body


def frame_length(header: bytes) -> int:
    """The length that a four-byte header announces."""
    length: int = _LENGTH.unpack(header)[0]
    return length


HEADER_BYTES = _LENGTH.size
