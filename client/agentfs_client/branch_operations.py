"""The operations on branches and snapshots: their requests, and what to return of the replies. This module knows no transport."""

from collections.abc import Sequence

from agentfs_client import wire
from agentfs_client.question import OnProgress, Question, ask, no_result, operation, raw_paths


class BranchOperations:
    """What a client asks about branches, snapshots, and the processes that are bound to a branch.

    Raises:
        AgentFSError: every method raises it if the daemon refuses the request.
    """

    # -- branches

    @operation
    def create_branch(
        self, name: str, source: str | None = None, *, temporary: bool = False, frozen: bool = False,
        on_progress: OnProgress | None = None,
    ) -> Question[wire.Branch]:  # fmt: skip
        """Create a branch.

        Args:
            name: name of the branch.
            source: the ref to create it from; None means ``main``.
            temporary: whether to delete the branch at the end of this conversation, unless it was renamed or keep_temporary() was
                called.
            frozen: whether its unmodified files stay as they are now, whatever happens in the real directory.
            on_progress: is told how far the work is, for a frozen branch.
        """
        request = wire.BranchCreate(
            name=name, source=source, temporary=temporary, frozen=frozen, progress=on_progress is not None
        )  # fmt: skip
        return ask(request, wire.BranchReply, _branch, on_progress=on_progress)

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
    def set_worktree(self, ref: str, directory: str) -> Question[wire.Branch]:
        """Say which linked worktree of a git repository a branch is.

        Args:
            ref: the branch.
            directory: git's directory of the worktree, such as ``/repo/.git/worktrees/fix``; "": it is none any more.
        """
        return ask(wire.BranchWorktree(ref=ref, directory=directory), wire.BranchReply, _branch)

    @operation
    def delete_branch(self, ref: str) -> Question[None]:
        """Delete a branch without changes. For a branch with changes see discard()."""
        return ask(wire.BranchDelete(ref=ref), wire.Done, no_result)

    @operation
    def discard(self, ref: str, *, keep: bool = True) -> Question[None]:
        """Delete a branch with its changes. ``main`` is not deleted but emptied. With *keep*, undo() can bring the
        changes back.
        """
        return ask(wire.Discard(ref=ref, keep=keep), wire.Done, no_result)

    @operation
    def bind(self, pid: int, branch: str, *, descendants: bool = False) -> Question[None]:
        """Bind process *pid* to a branch.

        *descendants*: also bind what the calling process starts from now on, and what is reparented to it. The binding of the
        calling process itself does not change.
        """
        return ask(wire.BranchBind(pid=pid, branch=branch, descendants=descendants), wire.Done, no_result)

    @operation
    def unbind(self, pid: int) -> Question[None]:
        return ask(wire.BranchUnbind(pid=pid), wire.Done, no_result)

    @operation
    def refusals(self, branch: str | None = None) -> Question[list[wire.RefusedCount]]:
        """Return which requests to the mount were refused in a branch since the daemon started. See wire.RefusedCount."""
        return ask(wire.RefusalList(branch=branch), wire.RefusalsReply, lambda reply: reply.refusals)

    @operation
    def bindings(self) -> Question[list[wire.Binding]]:
        return ask(wire.BranchBindings(), wire.BindingsReply, lambda reply: reply.bindings)

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
        return ask(wire.TemporaryKeep(), wire.Done, no_result)

    @operation
    def list_snapshots(self, branch: str | None = None) -> Question[list[wire.BranchSnapshot]]:
        return ask(wire.SnapshotList(branch=branch), wire.SnapshotsReply, _snapshots)

    @operation
    def show_snapshot(self, ref: str) -> Question[wire.BranchSnapshot]:
        return ask(wire.SnapshotShow(ref=ref), wire.SnapshotReply, _snapshot)

    @operation
    def delete_snapshot(self, ref: str) -> Question[None]:
        return ask(wire.SnapshotDelete(ref=ref), wire.Done, no_result)

    @operation
    def log(self, ref: str | None = None) -> Question[list[wire.BranchSnapshot]]:
        """Return the snapshots in the history of a ref, newest first."""
        return ask(wire.Log(ref=ref), wire.SnapshotsReply, _snapshots)

    @operation
    def restore(
        self, ref: str | None, branch: str | None = None, paths: Sequence[str | bytes] = (), *,
        picked: Sequence[wire.PickedFile] = (), on_progress: OnProgress | None = None,
    ) -> Question[str]:  # fmt: skip
        """Restore a branch, or only some of its paths, from a snapshot. Returns a description for people. See wire.Restore."""
        request = wire.Restore(
            ref=ref, branch=branch, raw_paths=raw_paths(paths), picked=list(picked), progress=on_progress is not None
        )
        return ask(request, wire.Done, lambda reply: reply.message, on_progress=on_progress)


def _branch(reply: wire.BranchReply) -> wire.Branch:
    return reply.branch


def _snapshot(reply: wire.SnapshotReply) -> wire.BranchSnapshot:
    return reply.snapshot


def _snapshots(reply: wire.SnapshotsReply) -> list[wire.BranchSnapshot]:
    return reply.snapshots
