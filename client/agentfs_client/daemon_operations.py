"""Describe every operation of the daemon once, for waiting and for awaiting clients: its request, and what to return of the
reply.

This module knows no transport.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from agentfs_client import wire
from agentfs_client.question import OnProgress, Question, ask, ask_for_descriptor, operation


@dataclass(frozen=True, slots=True)
class OpenedFd:
    """A real descriptor, close-on-exec and at offset 0. The caller closes it.

    ``source`` is explained in wire.FdReply. ``file`` is the file as the branch shows it; its inode number and times differ from
    those of ``fd``.
    """

    fd: int
    source: Literal["own", "lower", "snapshot"]
    file: wire.FileInfo


@dataclass(frozen=True, slots=True)
class OpenedView:
    """A detached mount of one branch, the user namespace to enter before attaching it, if it needs one, and a detached mount of
    the home directory, if the request named it. The caller closes all.
    """

    reply: wire.ViewReply
    mount: int
    user_namespace: int | None = None
    home: int | None = None


class DaemonOperations:
    """The operations that ControlClient and AsyncControlClient share.

    Raises:
        AgentFSError: every method raises it if the daemon refuses the request.
    """

    # -- the daemon

    @operation
    def status(self) -> Question[wire.StatusReply]:
        return ask(wire.Status(), wire.StatusReply)

    @operation
    def capabilities(self) -> Question[dict[str, str]]:
        return ask(wire.Capabilities(), wire.CapabilitiesReply, lambda reply: reply.capabilities)

    @operation
    def backstore_status(self) -> Question[wire.BackstoreReply]:
        """Return where the daemon keeps contents, and how much it keeps."""
        return ask(wire.BackstoreStatus(), wire.BackstoreReply)

    @operation
    def top(self, seconds: float = 1.0) -> Question[wire.TopReply]:
        """Observe the requests to the mount for *seconds*, then return what was seen."""
        return ask(wire.Top(seconds=seconds), wire.TopReply)

    @operation
    def audit(
        self, branch: str | None = None, *, since_ns: int = 0, until_ns: int = 0, pid: int = 0, path: str = "", kind: str = "",
        after: int = 0, limit: int = 1000,
    ) -> Question[wire.AuditReply]:  # fmt: skip
        """Return who changed what, in order. See wire.AuditList."""
        request = wire.AuditList(
            branch=branch, since_ns=since_ns, until_ns=until_ns, pid=pid, path=path, kind=kind, after=after, limit=limit
        )  # fmt: skip
        return ask(request, wire.AuditReply)

    @operation
    def fsck(self, on_progress: OnProgress | None = None, *, scrub: bool = False) -> Question[list[str]]:
        """Return problems in the stored state; the list is empty if there are none. With *scrub*, also read the contents of
        snapshots.
        """
        request = wire.Fsck(progress=on_progress is not None, scrub=scrub)
        return ask(request, wire.ProblemsReply, lambda reply: reply.problems, on_progress=on_progress)

    @operation
    def shutdown(self, *, force: bool = False) -> Question[None]:
        """Ask the daemon to unmount and end. Returns when the daemon has agreed, which is before it has ended."""
        return ask(wire.Shutdown(force=force), wire.Done, _nothing)

    # -- branches

    @operation
    def create_branch(self, name: str, source: str | None = None, *, temporary: bool = False) -> Question[wire.Branch]:
        """Create a branch.

        Args:
            name: name of the branch.
            source: the ref to create it from; None means ``main``.
            temporary: whether to delete the branch at the end of this conversation, unless it was renamed or keep_temporary() was
                called.
        """
        return ask(wire.BranchCreate(name=name, source=source, temporary=temporary), wire.BranchReply, _branch)

    @operation
    def list_branches(self, *, count: bool = True) -> Question[list[wire.Branch]]:
        """Return all branches, oldest first. Without *count* their changes are not counted. See wire.BranchList."""
        return ask(wire.BranchList(count=count), wire.BranchesReply, lambda reply: reply.branches)

    @operation
    def show_branch(self, ref: str | None = None) -> Question[wire.Branch]:
        return ask(wire.BranchShow(ref=ref), wire.BranchReply, _branch)

    @operation
    def rename_branch(self, ref: str, new_name: str) -> Question[wire.Branch]:
        return ask(wire.BranchRename(ref=ref, new_name=new_name), wire.BranchReply, _branch)

    @operation
    def delete_branch(self, ref: str) -> Question[None]:
        """Delete a branch without changes. For a branch with changes see discard()."""
        return ask(wire.BranchDelete(ref=ref), wire.Done, _nothing)

    @operation
    def discard(self, ref: str, *, keep: bool = True) -> Question[None]:
        """Delete a branch with its changes. ``main`` is not deleted but emptied. With *keep*, undo() can bring the
        changes back.
        """
        return ask(wire.Discard(ref=ref, keep=keep), wire.Done, _nothing)

    @operation
    def bind(self, pid: int, branch: str, *, descendants: bool = False) -> Question[None]:
        """Bind process *pid* to a branch.

        *descendants*: also bind what the calling process starts from now on, and what is reparented to it. The binding of the
        calling process itself does not change.
        """
        return ask(wire.BranchBind(pid=pid, branch=branch, descendants=descendants), wire.Done, _nothing)

    @operation
    def unbind(self, pid: int) -> Question[None]:
        return ask(wire.BranchUnbind(pid=pid), wire.Done, _nothing)

    @operation
    def refusals(self, branch: str | None = None) -> Question[list[wire.RefusedCount]]:
        """Return which requests to the mount were refused in a branch since the daemon started. See wire.RefusedCount."""
        return ask(wire.RefusalList(branch=branch), wire.RefusalsReply, lambda reply: reply.refusals)

    @operation
    def bindings(self) -> Question[list[wire.Binding]]:
        return ask(wire.BranchBindings(), wire.BindingsReply, lambda reply: reply.bindings)

    @operation
    def open_view(self, branch: str, io: str = "auto", *, home: str = "") -> Question[OpenedView]:
        """Return a detached mount of a branch, to attach in the caller's own namespace. It counts as in use during this
        conversation. *home*: the path of the home directory, to get a mount with the branch's changes to it, too.
        """
        return Question(wire.ViewOpen(branch=branch, io=io, home=home), wire.ViewReply, _view, brings_descriptors=3)

    # -- snapshots

    @operation
    def create_snapshot(
        self, branch: str | None = None, name: str | None = None, tag: str = "", *, around_run: bool = False,
        keep: bool = False, temporary: bool = False,
    ) -> Question[wire.BranchSnapshot]:  # fmt: skip
        """Take a snapshot of a branch.

        Args:
            around_run: it was taken automatically, so retention may delete it.
            keep: retention must not delete it.
            temporary: as for create_branch().
        """
        request = wire.SnapshotCreate(branch=branch, name=name, tag=tag, around_run=around_run, keep=keep, temporary=temporary)
        return ask(request, wire.SnapshotReply, _snapshot)

    @operation
    def keep_temporary(self) -> Question[None]:
        """Make the temporary branches and snapshots of this conversation permanent."""
        return ask(wire.TemporaryKeep(), wire.Done, _nothing)

    @operation
    def list_snapshots(self, branch: str | None = None) -> Question[list[wire.BranchSnapshot]]:
        return ask(wire.SnapshotList(branch=branch), wire.SnapshotsReply, _snapshots)

    @operation
    def show_snapshot(self, ref: str) -> Question[wire.BranchSnapshot]:
        return ask(wire.SnapshotShow(ref=ref), wire.SnapshotReply, _snapshot)

    @operation
    def delete_snapshot(self, ref: str) -> Question[None]:
        return ask(wire.SnapshotDelete(ref=ref), wire.Done, _nothing)

    @operation
    def log(self, ref: str | None = None) -> Question[list[wire.BranchSnapshot]]:
        """Return the snapshots in the history of a ref, newest first."""
        return ask(wire.Log(ref=ref), wire.SnapshotsReply, _snapshots)

    @operation
    def restore(
        self, ref: str, branch: str | None = None, paths: Sequence[str | bytes] = (), *, on_progress: OnProgress | None = None
    ) -> Question[str]:
        """Restore a branch, or only some of its paths, from a snapshot. Returns a description for people."""
        request = wire.Restore(ref=ref, branch=branch, raw_paths=_raw(paths), progress=on_progress is not None)
        return ask(request, wire.Done, lambda reply: reply.message, on_progress=on_progress)

    # -- several branches

    @operation
    def merge(
        self, sources: Sequence[str], target: str | None = None, *, favor: Literal["", "ours", "theirs", "union"] = "",
        whole_files: bool = False, markers: bool = False, leave_conflicting: bool = False, dry_run: bool = False,
        hooks: bool = False, internal: bool = False,
        histories: Literal["merge", "rebase", "squash", "beside"] = "merge", on_progress: OnProgress | None = None,
    ) -> Question[wire.MergeReply]:  # fmt: skip
        """Merge refs into a branch in the given order. If the reply has conflicts, nothing has changed, or with
        *leave_conflicting* only the sources without conflicts were merged. See wire.Merge.
        """
        request = wire.Merge(
            sources=list(sources), target=target, favor=favor, whole_files=whole_files, markers=markers,
            leave_conflicting=leave_conflicting, dry_run=dry_run, histories=histories, hooks=hooks, internal=internal,
            progress=on_progress is not None,
        )  # fmt: skip
        return ask(request, wire.MergeReply, on_progress=on_progress)

    @operation
    def commit(
        self, branch: str | None = None, paths: Sequence[str | bytes] = (), *, force: bool = False, merge: bool = False,
        dry_run: bool = False, as_branches: bool = False, hooks: bool = False, internal: bool = False,
        on_progress: OnProgress | None = None,
    ) -> Question[wire.MergeReply]:  # fmt: skip
        """Apply a branch to what it was created from. If the reply has conflicts, nothing has changed. See wire.Commit."""
        request = wire.Commit(
            branch=branch, raw_paths=_raw(paths), force=force, merge=merge, dry_run=dry_run, as_branches=as_branches,
            hooks=hooks, internal=internal,
            progress=on_progress is not None,
        )  # fmt: skip
        return ask(request, wire.MergeReply, on_progress=on_progress)

    @operation
    def end_commit(self, *, abort: bool = False, on_progress: OnProgress | None = None) -> Question[wire.MergeReply]:
        """Finish an interrupted commit, or undo it with *abort*."""
        return ask(wire.CommitEnd(abort=abort, progress=on_progress is not None), wire.MergeReply, on_progress=on_progress)

    @operation
    def undo(self) -> Question[wire.UndoEntry]:
        """Undo the last restore, merge, commit to a branch, or discard."""
        return ask(wire.Undo(), wire.UndoLogReply, lambda reply: reply.entries[0])

    @operation
    def undoable(self) -> Question[list[wire.UndoEntry]]:
        """Return what successive calls of undo() would undo."""
        return ask(wire.UndoList(), wire.UndoLogReply, lambda reply: reply.entries)

    @operation
    def prune(
        self, branch: str | None = None, *, max_count: int | None = None, max_age: str | None = None,
        keep_tagged: bool | None = None, keep_named: bool | None = None, dry_run: bool = False,
    ) -> Question[list[wire.BranchSnapshot]]:  # fmt: skip
        """Delete snapshots beyond a maximum count or age, and return them. None means the limit in the retention settings."""
        request = wire.Prune(
            branch=branch, max_count=max_count, max_age=max_age, keep_tagged=keep_tagged, keep_named=keep_named, dry_run=dry_run
        )
        return ask(request, wire.SnapshotsReply, _snapshots)

    @operation
    def collect_garbage(self, *, forget_undo: bool = False, on_progress: OnProgress | None = None) -> Question[wire.FreedReply]:
        """Delete objects that nothing refers to. With *forget_undo*, also delete what is only kept for undo()."""
        request = wire.CollectGarbage(forget_undo=forget_undo, progress=on_progress is not None)
        return ask(request, wire.FreedReply, on_progress=on_progress)

    @operation
    def policy(self) -> Question[dict[str, str]]:
        return ask(wire.PolicyGet(), wire.PolicyReply, lambda reply: reply.policy)

    @operation
    def set_policy(self, name: str, value: str) -> Question[dict[str, str]]:
        """Change one setting and return all of them. `agentfsd policy set --help` explains each."""
        return ask(wire.PolicySet(name=name, value=value), wire.PolicyReply, lambda reply: reply.policy)

    @operation
    def list_rules(self, branch: str | None = None) -> Question[list[wire.RuleInScope]]:
        """Return the rules by path: of every scope, or those that hold for processes bound to *branch*."""
        return ask(wire.RulesList(branch=branch), wire.RulesReply, lambda reply: reply.rules)

    @operation
    def add_rules(
        self, rules: Sequence[str], branch: str | None = None, *, everybody: bool = False
    ) -> Question[list[wire.RuleInScope]]:
        """Add rules such as "deny *.key", and return them. See wire.RulesChange.

        Args:
            rules: the rules.
            branch: the branch for whose processes they hold; None means all branches.
            everybody: they hold for processes outside all branches as well.
        """
        request = wire.RulesChange(add=list(rules), branch=branch, everybody=everybody)
        return ask(request, wire.RulesReply, lambda reply: reply.rules)

    @operation
    def remove_rules(
        self, rules: Sequence[str], branch: str | None = None, *, everybody: bool = False
    ) -> Question[list[wire.RuleInScope]]:
        """Remove rules, and return them. The arguments are those of add_rules()."""
        request = wire.RulesChange(remove=list(rules), branch=branch, everybody=everybody)
        return ask(request, wire.RulesReply, lambda reply: reply.rules)

    @operation
    def test_rules(self, paths: Sequence[str], branch: str | None = None) -> Question[list[wire.PathVerdict]]:
        """Return what the rules of a branch say about paths. One that ends with a slash is a directory."""
        return ask(wire.RulesTest(paths=list(paths), branch=branch), wire.VerdictsReply, lambda reply: reply.verdicts)

    @operation
    def list_asks(
        self, branch: str | None = None, *, wait: bool = False, known: Sequence[int] = ()
    ) -> Question[list[wire.PathQuestion]]:
        """Return the processes that wait for an answer. With *wait*, return once there is one that is not in *known*."""
        return ask(wire.AsksList(branch=branch, wait=wait, known=list(known)), wire.AsksReply, lambda reply: reply.asks)

    @operation
    def answer_ask(
        self, number: int, *, allow: bool, lasts: Literal["once", "session", "rule"] = "once"
    ) -> Question[wire.PathQuestion]:
        """Answer a question and return it. See wire.AsksAnswer."""
        return ask(wire.AsksAnswer(id=number, allow=allow, lasts=lasts), wire.AsksReply, lambda reply: reply.asks[0])

    @operation
    def obey_rules(self, branch: str) -> Question[str]:
        """Keep the rules of a branch in the rest of this conversation, as a process that is bound to it must."""
        return ask(wire.RulesObey(branch=branch), wire.Done, lambda reply: reply.message)

    @operation
    def diff(
        self, b: str | None = None, a: str | None = None, paths: Sequence[str | bytes] = (), *, own: bool = False
    ) -> Question[list[wire.Change]]:
        """Return the changes from *a* to *b*, sorted by path.

        Args:
            a: the ref to compare with; None means the lower.
            b: the changed ref; None means the caller's branch.
            paths: files and directories, relative to the root, to limit the result to.
            own: compare *b* with what it was created from instead of *a*.
        """
        return ask(wire.Diff(a=a, b=b, raw_paths=_raw(paths), own=own), wire.ChangesReply, lambda reply: reply.changes)

    @operation
    def changes(
        self,
        b: str | None = None,
        a: str | None = None,
        paths: Sequence[str | bytes] = (),
        *,
        own: bool = False,
        internal: bool = False,
    ) -> Question[wire.ChangesReply]:
        """Return the changes like diff(), but describe git commits instead of files in git's databases. With *internal*, return
        these files as well.
        """
        request = wire.Diff(a=a, b=b, raw_paths=_raw(paths), own=own, histories=True, internal=internal)
        return ask(request, wire.ChangesReply)

    @operation
    def changed_files(
        self, b: str | None = None, a: str | None = None, *, count: bool = False, histories: bool = False, internal: bool = True
    ) -> Question[wire.FilesDifferReply]:
        """Return the files that differ between *a* (None: the lower) and *b* (None: the caller's branch). See wire.DiffFiles."""
        return ask(wire.DiffFiles(a=a, b=b, count=count, histories=histories, internal=internal), wire.FilesDifferReply)

    @operation
    def patches(
        self,
        b: str | None = None,
        a: str | None = None,
        paths: Sequence[str | bytes] = (),
        *,
        stat_only: bool = False,
        context_lines: int = 3,
        own: bool = False,
        internal: bool = True,
        on_progress: OnProgress | None = None,
    ) -> Question[list[wire.FilePatch]]:
        """Return the changes like diff(), each file with a patch in git's format. With *stat_only*, return only the numbers of
        added and removed lines.

        Without *internal*, files in git's databases are omitted.
        """
        progress = on_progress is not None
        request = wire.DiffPatch(
            a=a,
            b=b,
            raw_paths=_raw(paths),
            stat_only=stat_only,
            context_lines=context_lines,
            progress=progress,
            own=own,
            internal=internal,
        )
        return ask(request, wire.PatchesReply, lambda reply: reply.patches, on_progress=on_progress)

    # -- real descriptors, over the socket only

    @operation
    def open_fd(
        self, path: str | bytes, flags: int, *, branch: str | None = None, permissions: int = 0o666,
        require_reflink: bool = False, no_copy: bool = False,
    ) -> Question[OpenedFd]:  # fmt: skip
        """Have the daemon open a path relative to a branch's root, as os.open() does. Later use of the descriptor bypasses the
        daemon.

        *branch* may be any ref; a snapshot can only be opened for reading. See wire.FdOpen.
        """
        request = wire.FdOpen(
            branch=branch, raw_path=os.fsencode(path), flags=flags & ~os.O_CLOEXEC, permissions=permissions,
            require_reflink=require_reflink, no_copy=no_copy,
        )  # fmt: skip
        return ask_for_descriptor(request, wire.FdReply, _opened)

    @operation
    def dup_fd(self, fd: int, *, require_reflink: bool = False, no_copy: bool = False) -> Question[OpenedFd]:
        """Return a real descriptor for the file that *fd* is open on. *fd* may belong to the mount or be a real descriptor. See
        wire.FdDup.
        """
        request = wire.FdDup(require_reflink=require_reflink, no_copy=no_copy)
        return ask_for_descriptor(request, wire.FdReply, _opened, descriptors=[fd])

    @operation
    def sync_fd(self, fd: int, *, data_only: bool = False) -> Question[None]:
        """Sync a real descriptor as fsync(2) does, and also the file's name and attributes. With *data_only*, do as
        fdatasync(2).
        """
        return ask(wire.FdSync(data_only=data_only), wire.Done, _nothing, descriptors=[fd])

    @operation
    def interpose(self) -> Question[wire.InterposeReply]:
        """Return how the daemon forwards real descriptors, and whether it can."""
        return ask(wire.InterposeGet(), wire.InterposeReply)

    @operation
    def set_interpose(self, name: str, value: str) -> Question[wire.InterposeReply]:
        """Change one setting (see wire.InterposeReply) and return all of them."""
        return ask(wire.InterposeSet(name=name, value=value), wire.InterposeReply)


def _opened(reply: wire.FdReply, fd: int) -> OpenedFd:
    return OpenedFd(fd, reply.source, reply.file)


def _raw(paths: Sequence[str | bytes]) -> list[bytes]:
    return [os.fsencode(path) for path in paths]


def _nothing(reply: wire.Done) -> None:
    pass


def _view(reply: wire.ViewReply, mount: int, *others: int) -> OpenedView:
    home = others[-1] if reply.has_home else None
    namespaces = others[:-1] if reply.has_home else others
    return OpenedView(reply, mount, namespaces[0] if namespaces else None, home)


def _branch(reply: wire.BranchReply) -> wire.Branch:
    return reply.branch


def _snapshot(reply: wire.SnapshotReply) -> wire.BranchSnapshot:
    return reply.snapshot


def _snapshots(reply: wire.SnapshotsReply) -> list[wire.BranchSnapshot]:
    return reply.snapshots
