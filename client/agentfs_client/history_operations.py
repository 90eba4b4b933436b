"""The operations on histories: differences, merges, commits, undo and what is deleted. This module knows no transport."""

from collections.abc import Sequence
from typing import Literal

from agentfs_client import wire
from agentfs_client.question import OnProgress, Question, ask, operation, raw_paths


class HistoryOperations:
    """What a client asks about the differences between branches, and what becomes of them.

    Raises:
        AgentFSError: every method raises it if the daemon refuses the request.
    """

    # -- merges and commits

    @operation
    def rebase(
        self, branch: str | None = None, *, favor: Literal["", "branch", "base"] = "", markers: bool = False,
        dry_run: bool = False, hooks: bool = False, internal: bool = False, on_progress: OnProgress | None = None,
    ) -> Question[wire.MergeReply]:  # fmt: skip
        """Put the real directory's present state beneath a branch with a frozen base. See wire.Rebase."""
        request = wire.Rebase(
            branch=branch, favor=favor, markers=markers, dry_run=dry_run, hooks=hooks, internal=internal,
            progress=on_progress is not None,
        )  # fmt: skip
        return ask(request, wire.MergeReply, on_progress=on_progress)

    @operation
    def merge(
        self, sources: Sequence[str], target: str | None = None, *, favor: Literal["", "ours", "theirs", "union"] = "",
        whole_files: bool = False, markers: bool = False, leave_conflicting: bool = False, conflicts: bool = False,
        dry_run: bool = False, hooks: bool = False, internal: bool = False,
        histories: Literal["merge", "rebase", "squash", "beside"] = "merge",
        paths: Sequence[str | bytes] = (), picked: Sequence[wire.PickedFile] = (), on_progress: OnProgress | None = None,
    ) -> Question[wire.MergeReply]:  # fmt: skip
        """Merge refs into a branch in the given order. If the reply has conflicts, nothing has changed, or with
        *leave_conflicting* only the sources without conflicts were merged. With *conflicts*, they are left in the branch: see
        conflicts(). See wire.Merge.
        """
        request = wire.Merge(
            sources=list(sources), target=target, favor=favor, whole_files=whole_files, markers=markers,
            leave_conflicting=leave_conflicting, conflicts=conflicts, dry_run=dry_run, histories=histories, hooks=hooks,
            internal=internal, raw_paths=raw_paths(paths), picked=list(picked), progress=on_progress is not None,
        )  # fmt: skip
        return ask(request, wire.MergeReply, on_progress=on_progress)

    @operation
    def conflicts(self, branch: str | None = None) -> Question[wire.ConflictsReply]:
        """Return the conflicts that a merge has left in a branch, decided or not. See wire.ConflictList."""
        return ask(wire.ConflictList(branch=branch), wire.ConflictsReply)

    @operation
    def conflict_version(
        self, path: str | bytes, side: Literal["base", "ours", "theirs", "now"], branch: str | None = None, *, offset: int = 0,
        size: int = wire.MAX_DATA_BYTES,
    ) -> Question[wire.ConflictVersionReply]:  # fmt: skip
        """Return one version of a path with a conflict; of a file, *size* bytes of its content, from *offset* on."""
        (raw,) = raw_paths([path])
        return ask(
            wire.ConflictShow(branch=branch, raw_path=raw, side=side, offset=offset, size=size), wire.ConflictVersionReply
        )  # fmt: skip

    @operation
    def resolve(
        self, paths: Sequence[str | bytes], how: Literal["ours", "theirs", "edited", "marked"], branch: str | None = None, *,
        content: bytes | None = None, seen: str = "", merge: int = 0, on_progress: OnProgress | None = None,
    ) -> Question[wire.ConflictsReply]:  # fmt: skip
        """Decide conflicts that a merge has left in a branch, all of them or none. See wire.ConflictResolve."""
        request = wire.ConflictResolve(
            branch=branch, raw_paths=raw_paths(paths), how=how, content=content, seen=seen, merge=merge,
            progress=on_progress is not None,
        )  # fmt: skip
        return ask(request, wire.ConflictsReply, on_progress=on_progress)

    @operation
    def end_merge(
        self, branch: str | None = None, *, abort: bool = False, force: bool = False, merge: int = 0,
        on_progress: OnProgress | None = None,
    ) -> Question[wire.ConflictsReply]:  # fmt: skip
        """Finish a merge that has left conflicts in a branch, or take it back with *abort*. See wire.MergeEnd."""
        request = wire.MergeEnd(branch=branch, abort=abort, force=force, merge=merge, progress=on_progress is not None)
        return ask(request, wire.ConflictsReply, on_progress=on_progress)

    @operation
    def commit(
        self, branch: str | None = None, paths: Sequence[str | bytes] = (), *, force: bool = False, merge: bool = False,
        dry_run: bool = False, as_branches: bool = False, hooks: bool = False, internal: bool = False,
        picked: Sequence[wire.PickedFile] = (), on_progress: OnProgress | None = None,
    ) -> Question[wire.MergeReply]:  # fmt: skip
        """Apply a branch to what it was created from. If the reply has conflicts, nothing has changed. See wire.Commit."""
        request = wire.Commit(
            branch=branch, raw_paths=raw_paths(paths), picked=list(picked), force=force, merge=merge, dry_run=dry_run,
            as_branches=as_branches, hooks=hooks, internal=internal,
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
        return ask(request, wire.SnapshotsReply, lambda reply: reply.snapshots)

    @operation
    def collect_garbage(self, *, forget_undo: bool = False, on_progress: OnProgress | None = None) -> Question[wire.FreedReply]:
        """Delete objects that nothing refers to. With *forget_undo*, also delete what is only kept for undo()."""
        request = wire.CollectGarbage(forget_undo=forget_undo, progress=on_progress is not None)
        return ask(request, wire.FreedReply, on_progress=on_progress)

    # -- differences

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
        return ask(wire.Diff(a=a, b=b, raw_paths=raw_paths(paths), own=own), wire.ChangesReply, lambda reply: reply.changes)

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
        request = wire.Diff(a=a, b=b, raw_paths=raw_paths(paths), own=own, histories=True, internal=internal)
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
        ignore_space: bool = False,
        own: bool = False,
        internal: bool = True,
        on_progress: OnProgress | None = None,
    ) -> Question[list[wire.FilePatch]]:
        """Return the changes like diff(), each file with a patch in git's format. With *stat_only*, return only the numbers of
        added and removed lines.

        With *ignore_space*, lines that differ in white space only are equal. Without *internal*, files in git's databases are
        omitted.
        """
        progress = on_progress is not None
        request = wire.DiffPatch(
            a=a,
            b=b,
            raw_paths=raw_paths(paths),
            stat_only=stat_only,
            context_lines=context_lines,
            ignore_space=ignore_space,
            progress=progress,
            own=own,
            internal=internal,
        )
        return ask(request, wire.PatchesReply, lambda reply: reply.patches, on_progress=on_progress)
