"""The requests that a client can make, except those about single files (wire_file_requests.py), states of branches
(wire_history_requests.py) and runs (wire_run_requests.py). If a request names no branch, it means the caller's own: the one it is
bound to, else "main".
"""

from typing import Literal

import msgspec

from agentfs_client.message import LongRequest, Request


class Hello(Request, frozen=True, kw_only=True, tag="hello"):
    client: str = ""


class Status(Request, frozen=True, kw_only=True, tag="status"):
    pass


class OverlapsList(Request, frozen=True, kw_only=True, tag="overlaps"):
    """Ask which paths several branches have changed. What is being compared is waited for at most ``patience_s`` seconds."""

    patience_s: float = 0.5


class Capabilities(Request, frozen=True, kw_only=True, tag="capabilities"):
    pass


class BackstoreStatus(Request, frozen=True, kw_only=True, tag="backstore.status"):
    """Ask where contents are kept and how much. The answer covers all branches, so a bound caller may not ask."""


class Top(Request, frozen=True, kw_only=True, tag="top"):
    """Observe the requests to the mount for ``seconds``, 0.05 to 60, after which the reply is sent. A bound caller sees only its
    own branch.
    """

    seconds: float = 1.0


class RefusalList(Request, frozen=True, kw_only=True, tag="refusal.list"):
    """Ask which requests to the mount were refused in a branch since the daemon started. None: in the caller's branch."""

    branch: str | None = None


class AuditList(Request, frozen=True, kw_only=True, tag="audit.list"):
    """Ask who changed what.

    ``branch`` None means every branch, or for a bound caller its own; the name of a deleted branch is valid. ``path`` is a glob
    pattern: ``**`` matches any depth, and a pattern without a slash matches base names. With ``after``, the id of an entry, the
    reply has the first entries after it; else the last ones. ``limit`` is 1 to 10,000. Entries are in order. Both times are
    inclusive; 0 means no limit.
    """

    branch: str | None = None
    since_ns: int = 0
    until_ns: int = 0
    pid: int = 0
    path: str = ""
    kind: str = ""
    after: int = 0
    limit: int = 1000


class BranchCreate(LongRequest, frozen=True, kw_only=True, tag="branch.create"):
    """Create a branch.

    A ``temporary`` branch is deleted at the end of the conversation or at the daemon's next start, unless it was renamed or kept
    before. The unmodified files of a ``frozen`` branch are those that the real directory has at this moment, whatever happens
    there. A branch made from a frozen one has the same base.
    """

    name: str
    source: str | None = None  # any ref; None: the present state of main
    temporary: bool = False
    frozen: bool = False


class BranchList(Request, frozen=True, kw_only=True, tag="branch.list"):
    """Ask for all branches. Without ``count``, which is quicker, ``changed`` of each is 0 and ``counted`` false."""

    count: bool = True


class BranchShow(Request, frozen=True, kw_only=True, tag="branch.show"):
    ref: str | None = None


class BranchRename(Request, frozen=True, kw_only=True, tag="branch.rename"):
    ref: str
    new_name: str


class BranchWorktree(Request, frozen=True, kw_only=True, tag="branch.worktree"):
    """Have the mount show a ``.git`` file at the root of ``.agentfs/branches/NAME`` that leads to git's directory of a worktree.

    ``directory`` is that directory's absolute path; "": the branch is no worktree any more, and shows its own ``.git``.
    """

    ref: str
    directory: str


class BranchDelete(Request, frozen=True, kw_only=True, tag="branch.delete"):
    ref: str


class Discard(Request, frozen=True, kw_only=True, tag="discard"):
    """Delete a branch with its changes. With ``keep``, undo can bring it back; else its space is freed at once."""

    ref: str
    keep: bool = True


class BranchBind(Request, frozen=True, kw_only=True, tag="branch.bind"):
    """Bind a process to a branch.

    ``descendants``: bind what the asking process starts from now on, and what is reparented to it, as well.
    """

    pid: int
    branch: str
    descendants: bool = msgspec.field(default=False, name="brood")


class BranchUnbind(Request, frozen=True, kw_only=True, tag="branch.unbind"):
    pid: int


class BranchBindings(Request, frozen=True, kw_only=True, tag="branch.bindings"):
    pass


class ViewOpen(Request, frozen=True, kw_only=True, tag="view.open"):
    """Ask for a detached mount that shows one branch, to attach in a namespace. The reply carries it. Over the socket only.

    ``io`` is how file data reaches programs (auto, overlay, zero-message, passthrough, cached). It applies only if no such mount
    exists yet. ``home``: the resolved path of a home directory, to get a mount of it as well with the branch's changes to it.
    """

    branch: str
    io: str = "auto"
    home: str = ""


class ViewLeave(Request, frozen=True, kw_only=True, tag="view.leave"):
    """Say that the run for which this conversation has opened a view has ended. The end of the conversation says so, too."""


class SnapshotCreate(Request, frozen=True, kw_only=True, tag="snapshot.create"):
    """Take a snapshot.

    ``around_run``: it is taken automatically before or after a command, so retention may delete it; this also holds for a
    snapshot with a tag and without a name. ``keep``: retention must not delete it. ``temporary``: as for BranchCreate.
    """

    branch: str | None = None
    name: str | None = None  # None: the daemon chooses a name
    tag: str = ""
    around_run: bool = False
    keep: bool = False
    temporary: bool = False


class TemporaryKeep(Request, frozen=True, kw_only=True, tag="temporary.keep"):
    """Make the temporary branches and snapshots of this conversation permanent."""


class SnapshotList(Request, frozen=True, kw_only=True, tag="snapshot.list"):
    branch: str | None = None  # None: all; for a bound caller those of its branch


class SnapshotShow(Request, frozen=True, kw_only=True, tag="snapshot.show"):
    ref: str


class SnapshotDelete(Request, frozen=True, kw_only=True, tag="snapshot.delete"):
    ref: str


class CollectGarbage(LongRequest, frozen=True, kw_only=True, tag="gc"):
    """Free unreferenced objects now instead of when the daemon is idle. ``forget_undo``: also free what is only kept for undo."""

    forget_undo: bool = False


class PolicyGet(Request, frozen=True, kw_only=True, tag="policy.get"):
    pass


class PolicySet(Request, frozen=True, kw_only=True, tag="policy.set"):
    name: str
    value: str


class RulesList(Request, frozen=True, kw_only=True, tag="rules.list"):
    """Ask for the rules by path.

    ``branch`` None means the rules of every scope, or for a bound caller the rules that hold for it. With a branch, the reply has
    the rules that hold for processes bound to it.
    """

    branch: str | None = None


class RulesChange(Request, frozen=True, kw_only=True, tag="rules.change"):
    """Add or remove rules of one scope.

    The scope is ``branch``; or, if that is None, the bound processes of all branches; or, with ``everybody``, every process. A
    rule is a verb (hide, deny, ask, ro, allow) and a pattern as in .gitignore: ``deny secrets/**``. The last rule that matches a
    path decides. The rule ``secrets`` stands for many rules about files that usually hold passwords and keys. A rule that is
    added again moves to the end.
    """

    add: list[str] = []
    remove: list[str] = []
    branch: str | None = None
    everybody: bool = False


class RulesTest(Request, frozen=True, kw_only=True, tag="rules.test"):
    """Ask what the rules say about paths, relative to the root. A path that ends with a slash is a directory. ``branch`` as in
    RulesList; None means main for an unbound caller.
    """

    paths: list[str]
    branch: str | None = None


class AsksList(Request, frozen=True, kw_only=True, tag="asks.list"):
    """Ask which processes wait for an answer because a rule says ``ask``. A bound caller sees only processes of its own branch.

    With ``wait``, the daemon replies as soon as a question waits that is not in ``known``; through the control file after a
    second at most.
    """

    branch: str | None = None
    wait: bool = False
    known: list[int] = []


class AsksAnswer(Request, frozen=True, kw_only=True, tag="asks.answer"):
    """Answer a question.

    ``lasts`` is ``once`` (this process and this path), ``session`` (every process of the branch, until the daemon ends or the
    rules change), or ``rule`` (a rule of the branch about this path).
    """

    id: int
    allow: bool
    lasts: Literal["once", "session", "rule"] = "once"


class RulesObey(Request, frozen=True, kw_only=True, tag="rules.obey"):
    """Keep the rules of a branch in the rest of this conversation, as a process that is bound to it must.

    A program that acts for an agent asks for this.
    """

    branch: str


class Fsck(LongRequest, frozen=True, kw_only=True, tag="fsck"):
    """Check the stored state. ``scrub``: also read the contents of snapshots and compare their checksums."""

    scrub: bool = False


class Events(Request, frozen=True, kw_only=True, tag="events"):
    """Subscribe to the events of a branch. Through the control file the reply comes after a second at most.

    The daemon sends EventsOk at once, then Events until the client closes its end, or Done if the branch is deleted. ``branch``
    None means every branch, or for a bound caller its own.
    """

    branch: str | None = None


class InterposeGet(Request, frozen=True, kw_only=True, tag="interpose.get"):
    """Ask how real descriptors are given out, and whether that is possible."""


class InterposeSet(Request, frozen=True, kw_only=True, tag="interpose.set"):
    """Change one setting: enabled, eager_upperization, max_copy_bytes, require_reflink, min_read_bytes or allow. See
    InterposeReply.
    """

    name: str
    value: str


class Restart(Request, frozen=True, kw_only=True, tag="restart"):
    """Ask the daemon to let another one of the installed version take over. Programs in the mount wait meanwhile."""


class Shutdown(Request, frozen=True, kw_only=True, tag="shutdown"):
    """Ask the daemon to unmount and end; with *force* even while the mount is in use."""

    force: bool = False
