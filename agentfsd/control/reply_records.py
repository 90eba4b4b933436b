"""Convert the daemon's records to those of replies."""

import stat
from typing import Literal

from agentfs_client import wire
from agentfsd.control.request_context import RequestContext
from agentfsd.core.inode import Attributes
from agentfsd.history import merging
from agentfsd.history.applying import Author
from agentfsd.history.merge_records import PathConflict
from agentfsd.linux import process_info
from agentfsd.repositories.telling import Told
from agentfsd.types import PathChange, SnapshotSummary, StepSummary


def _kind(mode: int) -> Literal["file", "directory", "symlink", "other"]:
    if stat.S_ISREG(mode):
        return "file"
    return "directory" if stat.S_ISDIR(mode) else "symlink" if stat.S_ISLNK(mode) else "other"


def typed_info(name: bytes, mode: int) -> wire.FileInfo:
    """Describe a name in a directory by its kind alone."""
    shown = wire.path_fields(name)
    return wire.FileInfo(
        kind=_kind(mode),
        mode=stat.S_IFMT(mode),
        is_link=stat.S_ISLNK(mode),
        path=shown["path"],
        raw_path=shown.get("raw_path", ""),
    )


def info_of(path: bytes, attributes: Attributes, is_link: bool = False, target: bytes = b"") -> wire.FileInfo:
    """Describe a file.

    Args:
        path: The path from the root of the branch, or a name in a directory.
        attributes: The attributes to show: the file's, or those of a symlink's target.
        is_link: Whether *path* is a symlink.
        target: The text of that symlink.
    """
    shown = wire.path_fields(path) | wire.path_fields(target, "target")
    return wire.FileInfo(
        path=shown["path"], raw_path=shown.get("raw_path", ""), kind=_kind(attributes.mode), size=attributes.size,
        mode=attributes.mode, uid=attributes.uid, gid=attributes.gid, nlink=attributes.nlink, ino=attributes.ino,
        mtime_ns=attributes.mtime_ns, ctime_ns=attributes.ctime_ns, created_ns=attributes.btime_ns, is_link=is_link,
        target=shown["target"], raw_target=shown.get("raw_target", ""),
    )  # fmt: skip


def author_of(context: RequestContext) -> Author:
    """Return the author to record in a snapshot."""
    return Author(context.caller.pid, process_info.command_of(context.caller.pid) if context.caller.pid else "")


def merge_reply(merged: merging.Merged, into: str, *, internal: bool = False) -> wire.MergeReply:
    """Describe a merge or commit.

    Args:
        merged: What was merged or committed.
        into: The branch or directory that has it now.
        internal: Also list git's own files.
    """
    changes, internals = merged.listed
    shown = sorted([*changes, *internals], key=lambda change: change.path) if internal else changes
    return wire.MergeReply(
        how=merged.how,
        into=into,
        changed=[
            wire.MergedPath(
                status=change.status,
                sources=_sources(merged, change),
                **wire.path_fields(change.path),
                **wire.path_fields(change.old_path, "old_path"),
            )
            for change in shown
        ],
        conflicts=[_wire_conflict(conflict) for conflict in merged.conflicts],
        merged=merged.merged,
        left=merged.left,
        decided=[
            *(
                wire.Decision(**wire.path_fields(path), source=source, kind=kind, winner=winner)
                for source, (path, kind, winner) in merged.decided
            ),
            *(wire.Decision(**wire.path_fields(path), source=source, kind="markers") for source, path in merged.marked),
        ],
        said=merged.said,
        internal=len(internals),
        undecided=[
            wire.LeftOpenConflict(
                **wire.path_fields(left.path), kind=left.kind, message=left.message, source=source, markers=left.marked
            )
            for source, left in merged.undecided
        ],
    )


def _sources(merged: merging.Merged, change: PathChange) -> list[str]:
    both = [*merged.sources.get(change.path, ()), *merged.sources.get(change.old_path, ())]
    return [source for source in merged.merged if source in both]


def _wire_conflict(conflict: PathConflict) -> wire.Conflict:
    ours, theirs = conflict.excerpt
    return wire.Conflict(
        kind=conflict.kind, message=conflict.message, **wire.path_fields(conflict.path), source=conflict.source,
        against=list(conflict.against), ours=ours, theirs=theirs,
    )  # fmt: skip


def wire_repository(repository: Told) -> wire.RepositoryChange:
    """Describe what a branch did with git."""
    return wire.RepositoryChange(
        **wire.path_fields(repository.path), branch=repository.branch, ahead=repository.ahead, behind=repository.behind,
        uncommitted=repository.uncommitted, refs=list(repository.refs), sentence=repository.sentence(),
        commits=[wire.GitCommit(id=oid, title=title) for oid, title in repository.commits],
    )  # fmt: skip


def wire_snapshot(info: SnapshotSummary) -> wire.BranchSnapshot:
    """Describe a snapshot."""
    return wire.BranchSnapshot(
        name=info.name, id=info.id, branch=info.branch, parent=info.parent, created_ns=info.created_ns, tag=info.tag,
        author_pid=info.author_pid, file_count=info.file_count, bytes_changed=info.bytes_changed, kind=info.kind,
        author=info.author, merged=info.merged,
    )  # fmt: skip


def wire_step(step: StepSummary, bound_to: str | None) -> wire.SessionStep:
    """Describe a step of a session. *bound_to*: the id of the branch that the caller is bound to, and None for none."""
    home = step.home_id if bound_to in (None, step.home_id) else ""  # a bound process is told of no other branch
    return wire.SessionStep(
        id=step.id, session=step.session, agent=step.agent, branch=step.branch, branch_id=step.branch_id,
        turn=step.turn, call=step.call, key=step.key, title=step.title, created_ns=step.created_ns, snapshot=step.snapshot,
        snapshot_id=step.snapshot_id, replaced=step.replaced, home_id=home,
    )  # fmt: skip


def wire_change(change: PathChange, executed: str = "") -> wire.Change:
    """Describe a change of a diff. *executed*: why a program of the user would run the file."""
    return wire.Change(
        status=change.status, old_size=change.old_size, new_size=change.new_size, lower_moved=change.lower_moved,
        what=change.what, executed=executed, **wire.path_fields(change.path), **wire.path_fields(change.old_path, "old_path"),
    )  # fmt: skip
