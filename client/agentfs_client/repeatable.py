"""The requests that may be sent again if the daemon died before it answered: doing them twice has the same effect as once."""

from agentfs_client import wire

REPEATABLE: frozenset[type[wire.Request]] = frozenset(
    {
        wire.Hello, wire.Status, wire.OverlapsList, wire.BranchWorktree, wire.Capabilities, wire.BackstoreStatus, wire.Top,
        wire.RefusalList, wire.AuditList, wire.BranchList, wire.BranchShow, wire.BranchBind, wire.BranchUnbind,
        wire.BranchBindings, wire.ViewOpen, wire.ViewLeave, wire.SnapshotList, wire.SnapshotShow, wire.Diff, wire.DiffPatch,
        wire.DiffFiles, wire.Log, wire.UndoList, wire.PolicyGet, wire.PolicySet, wire.RulesList, wire.RulesTest,
        wire.RulesObey, wire.AsksList, wire.Fsck, wire.InterposeGet, wire.InterposeSet, wire.StatFile, wire.FileList,
        wire.FileCount, wire.FileContents, wire.FileListings, wire.RunList, wire.StepList, wire.StepChanges,
        wire.ConflictList, wire.ConflictShow, wire.NoteList, wire.NoteResolve,
    }
)  # fmt: skip
