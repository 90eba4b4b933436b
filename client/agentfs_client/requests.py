"""Every request that a client can make. A branch left out means the caller's own: the one it is bound to, else "main"."""

from typing import Literal

from agentfs_client.message import PROTOCOL_VERSION, Message, tagged


class Request(Message, frozen=True, kw_only=True):
    """``version`` may be left out; a request of another version is refused. First in a socket's conversation: hello."""

    version: int = PROTOCOL_VERSION


class LongRequest(Request, frozen=True, kw_only=True):
    """One that may take long. On the socket it is given up when the client closes its end before the reply.

    ``progress``: any number of Progress may come before the reply; on the socket only.
    """

    progress: bool = False


class Hello(Request, frozen=True, kw_only=True, tag="hello"):
    client: str = ""


class Status(Request, frozen=True, kw_only=True, tag="status"):
    pass


class Capabilities(Request, frozen=True, kw_only=True, tag="capabilities"):
    pass


class BackstoreStatus(Request, frozen=True, kw_only=True, tag="backstore.status"):
    """Where contents are kept, and how much of them there is; of all branches, so not for a bound caller."""


class Top(Request, frozen=True, kw_only=True, tag="top"):
    """What requests from the mount's users there are within the next ``seconds``, 0.05 to 60, after which the reply comes; for a
    bound caller those to its own branch."""

    seconds: float = 1.0


class AuditList(Request, frozen=True, kw_only=True, tag="audit.list"):
    """Who changed what. ``branch`` None: every branch, for a bound caller its own; the name of one that is gone will do.

    ``path``: a glob pattern (``**`` for any depth; without a slash it is about base names). ``after``: the id of an entry: the
    first that follow it; else the last that there are. At most ``limit``, 1 to 10,000; they come in order. Both times are
    included; 0: none.
    """

    branch: str | None = None
    since_ns: int = 0
    until_ns: int = 0
    pid: int = 0
    path: str = ""
    kind: str = ""
    after: int = 0
    limit: int = 1000


class BranchCreate(Request, frozen=True, kw_only=True, tag="branch.create"):
    """``temporary``: it goes with the conversation, or at the daemon's next start, unless it is renamed or kept before."""

    name: str
    source: str | None = None  # any ref; None: main as it is now
    temporary: bool = False


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


class ViewOpen(Request, frozen=True, kw_only=True, tag="view.open"):
    """Asks for a mount that shows one branch, to be put into a namespace; it comes along with the reply. Over the socket only.

    ``io``: how data gets to programs (auto, zero-message, passthrough, cached), where nobody has such a mount yet.
    """

    branch: str
    io: str = "auto"


class SnapshotCreate(Request, frozen=True, kw_only=True, tag="snapshot.create"):
    """``around_run``: taken by itself before or after a command, and subject to retention; so is one that has a tag and no name.
    ``keep``: no retention takes it. ``temporary``: as of a branch."""

    branch: str | None = None
    name: str | None = None  # None: one is made up
    tag: str = ""
    around_run: bool = False
    keep: bool = False
    temporary: bool = False


class TemporaryKeep(Request, frozen=True, kw_only=True, tag="temporary.keep"):
    """What this conversation has made for the time being stays."""


class SnapshotList(Request, frozen=True, kw_only=True, tag="snapshot.list"):
    branch: str | None = None  # None: all of them, or for a bound caller those of its branch


class SnapshotShow(Request, frozen=True, kw_only=True, tag="snapshot.show"):
    ref: str


class SnapshotDelete(Request, frozen=True, kw_only=True, tag="snapshot.delete"):
    ref: str


class Diff(Request, frozen=True, kw_only=True, tag="diff"):
    """Both left out: the lower against the caller's branch. Only b: the lower against b; with ``own`` what b was made from.

    ``paths``, relative to the root, are files or directories (with all below them) to keep to; ``raw_paths`` are such as
    need not be UTF-8 (base64 in JSON). A rename counts by either of its names. ``histories``: tell what was committed with git;
    ``internal``: also the files of git's databases, unless ``paths`` say what to keep to.
    """

    a: str | None = None
    b: str | None = None
    paths: list[str] = []
    raw_paths: list[bytes] = []
    own: bool = False
    histories: bool = False
    internal: bool = True


class DiffPatch(LongRequest, frozen=True, kw_only=True, tag="diff.patch"):
    """Like diff, with patches in git's format, or with ``stat_only`` just what they count. ``context_lines`` around a change.
    ``internal`` as in diff."""

    a: str | None = None
    b: str | None = None
    paths: list[str] = []
    raw_paths: list[bytes] = []
    stat_only: bool = False
    context_lines: int = 3
    internal: bool = True


class DiffFiles(LongRequest, frozen=True, kw_only=True, tag="diff.files"):
    """Which files differ, each by itself: directories are not told, and what was moved is gone here and new there.

    ``a`` and ``b`` as in diff. ``count``: also how many are the same, for which all of ``a`` is walked.
    """

    a: str | None = None
    b: str | None = None
    count: bool = False


class Log(Request, frozen=True, kw_only=True, tag="log"):
    ref: str | None = None


class Restore(LongRequest, frozen=True, kw_only=True, tag="restore"):
    """``paths`` and ``raw_paths`` as in diff: only these go back; none: everything, at once."""

    ref: str
    branch: str | None = None
    paths: list[str] = []
    raw_paths: list[bytes] = []


class Merge(LongRequest, frozen=True, kw_only=True, tag="merge"):
    """Merges the refs ``sources``, in order, into the branch ``target``, all of them or none; with ``leave_conflicting`` those
    that have no conflicts.

    ``favor``: whose side wins where both changed the same (union: both, line by line); "" makes that a conflict.
    ``whole_files``: two changes to one file are a conflict, whatever the lines. ``markers``: text conflicts are written into
    the files. ``histories``: how git's histories come together where they have parted: a merge commit, their commits again, one
    commit, or side by side as branches ``agentfsd/NAME/BRANCH``, and then nothing else is merged.
    """

    sources: list[str]
    target: str | None = None
    favor: Literal["", "ours", "theirs", "union"] = ""
    whole_files: bool = False
    markers: bool = False
    leave_conflicting: bool = False
    dry_run: bool = False
    histories: Literal["merge", "rebase", "squash", "beside"] = "merge"


class Commit(LongRequest, frozen=True, kw_only=True, tag="commit"):
    """Applies a branch to the branch that it was made from, or to the lower when that is what it was made from.

    Paths that changed there meanwhile are conflicts, unless ``force`` overwrites them or ``merge`` merges them three-way.
    ``as_branches``: nothing but its git branches, as ``agentfsd/NAME/BRANCH`` beside those that are there.
    """

    branch: str | None = None
    paths: list[str] = []
    raw_paths: list[bytes] = []
    force: bool = False
    merge: bool = False
    dry_run: bool = False
    as_branches: bool = False


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
    keep_named: bool | None = None
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
    """``scrub``: the contents of snapshots are read, too, and compared with their checksums."""

    scrub: bool = False


class Events(Request, frozen=True, kw_only=True, tag="events"):
    """What happens in a branch from now on; on the socket only. EventsOk comes at once, then Event after Event until the
    client closes its end, or Done when the branch has gone. ``branch`` None: every branch, for a bound caller its own."""

    branch: str | None = None


class FileRequest(Request, frozen=True, kw_only=True):
    """Something about one path, done as the caller may do it on the mount.

    ``branch``: any ref; a snapshot can only be read. ``path`` is relative to the root, "" the root itself; ``raw_path`` in its
    place need not be UTF-8 (base64 in JSON). Symlinks are followed as long as they stay beneath the root.
    """

    branch: str | None = None
    path: str = ""
    raw_path: bytes = b""


class HandleRequest(Request, frozen=True, kw_only=True):
    """Something about a file that this conversation has open; ``handle`` as FileOpened gave it."""

    handle: int


class StatFile(FileRequest, frozen=True, kw_only=True, tag="file.stat"):
    """``follow``: about what a symlink at the end leads to, not about the link."""

    follow: bool = True


class FileList(FileRequest, frozen=True, kw_only=True, tag="file.list"):
    """What is in a directory, sorted by name. ``names_only``: of each only what kind it is, a symlink's own included; of a large
    directory that comes several times as fast."""

    names_only: bool = False


class FileOpen(FileRequest, frozen=True, kw_only=True, tag="file.open"):
    """Opens a file for reading. Up to ``read_bytes`` of its beginning come with the reply; a file that ends there is not kept
    open, and the handle is 0."""

    read_bytes: int = 0


class FileRead(HandleRequest, frozen=True, kw_only=True, tag="file.read"):
    """At most MAX_DATA_BYTES at a time; less than ``size`` only at the end of the file."""

    offset: int
    size: int


class FileCreate(FileRequest, frozen=True, kw_only=True, tag="file.create"):
    """Begins to write a file, of which nobody sees anything before file.commit; closing the handle, or the end of the
    conversation, discards it.

    ``mode`` create: EEXIST where there is something; append: what is written goes to the end of what there is then.
    ``permissions``: of a file that is new, less the caller's umask.
    """

    mode: Literal["create", "overwrite", "append"] = "overwrite"
    permissions: int = 0o666


class FileWrite(HandleRequest, frozen=True, kw_only=True, tag="file.write"):
    """More of a file that file.create began (base64 in JSON); at most MAX_DATA_BYTES."""

    data: bytes


class FileCommit(HandleRequest, frozen=True, kw_only=True, tag="file.commit"):
    """The last of it, and all takes effect at once; the handle is closed, also when this is refused."""

    data: bytes = b""


class FileClose(HandleRequest, frozen=True, kw_only=True, tag="file.close"):
    pass


class FileMkdir(FileRequest, frozen=True, kw_only=True, tag="file.mkdir"):
    permissions: int = 0o777  # less the caller's umask


class FileCount(FileRequest, frozen=True, kw_only=True, tag="file.count"):
    """How many files a branch or snapshot has beneath a directory, and how long they are together: all of it is walked."""


class FileRename(FileRequest, frozen=True, kw_only=True, tag="file.rename"):
    """``path`` becomes ``to`` in the same branch, as rename(2) has it; ``replace`` False: EEXIST where there is something."""

    to: str = ""
    raw_to: bytes = b""
    replace: bool = True


class FileDelete(FileRequest, frozen=True, kw_only=True, tag="file.delete"):
    """A directory that is not empty only with ``recursive``; that is given up when the client goes away, and some is left."""

    recursive: bool = False


class FdOpen(FileRequest, frozen=True, kw_only=True, tag="fd.open"):
    """Opens a file as open(2) does, and a real descriptor of its content comes with the reply: what is read and written with
    that goes to the backing file system and never to the daemon. On the socket only.

    ``flags``: of open(2), such as os.O_RDWR | os.O_CREAT. ``permissions``: of a file that is new, less the caller's umask.
    ``require_reflink``: refused where content would have to be copied for this, however short it is. ``no_copy``: nothing becomes
    the branch's own for this: whoever reads gets what there is. A refusal of a descriptor only has the code "not-forwarded".
    """

    flags: int = 0
    permissions: int = 0o666
    require_reflink: bool = False
    no_copy: bool = False


class FdDup(Request, frozen=True, kw_only=True, tag="fd.dup"):
    """A real descriptor for what another one, which comes with the request, stands for: a descriptor of the mount, or one that
    fd.open gave. The new one has its own offset, and the other's access mode. On the socket only."""

    require_reflink: bool = False
    no_copy: bool = False


class FdSync(Request, frozen=True, kw_only=True, tag="fd.sync"):
    """fsync(2) for a real descriptor, which comes with the request: also the file's name and attributes survive the loss of power
    then. (Its own fsync is about content alone.)"""

    data_only: bool = False


class InterposeGet(Request, frozen=True, kw_only=True, tag="interpose.get"):
    """How real descriptors are given out, and whether they can be."""


class InterposeSet(Request, frozen=True, kw_only=True, tag="interpose.set"):
    """One setting: enabled, eager_upperization, max_copy_bytes, require_reflink, min_read_bytes, allow. See InterposeReply."""

    name: str
    value: str


class Shutdown(Request, frozen=True, kw_only=True, tag="shutdown"):
    """Asks the daemon to unmount and end; *force* also while the mount is in use."""

    force: bool = False


REQUEST_TYPES = tagged(Request)  # every one of the above: defining a message with a tag is all that it takes
