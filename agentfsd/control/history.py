"""Requests about what was and what comes of several branches: merge, restore, undo, prune."""

import logging
import os
from collections.abc import Awaitable, Callable
from typing import Protocol

import trio

from agentfs_client import wire
from agentfsd import runtime
from agentfsd.binding.table import Bindings
from agentfsd.control.cooperative import drive
from agentfsd.control.daemon_info import DaemonInfo
from agentfsd.control.request_context import RequestContext
from agentfsd.core.branch_events import BranchEvent, EventKind
from agentfsd.core.overlay import Overlay
from agentfsd.core.policy_settings import parse_age
from agentfsd.core.undo import Retention
from agentfsd.history import merging, paths
from agentfsd.history.merge import Conflict, Rules
from agentfsd.history.merging import Author
from agentfsd.types import SnapshotInfo

log = logging.getLogger(__name__)

_WEIGHTY = (
    "restore",
    "merge",
    "commit",
    "undo",
    "discard",
    "branch-renamed",
    "branch-deleted",
)  # what somebody may ask about later


class Flush(Protocol):
    async def __call__(self, branch_id: str | None = None) -> None: ...


class HistoryHandlers:
    """Part of ControlService, which has the rest."""

    overlay: Overlay
    bindings: Bindings
    info: DaemonInfo
    _flush: Flush
    _settle: Callable[[], Awaitable[None]]

    def _tell(self, kind: EventKind, branch_id: str, pid: int, *, branch: str = "", name: str = "", by: int = 0) -> None:
        """At once after it was done: before anything is awaited. *by*: see BranchEvent."""
        self.overlay.tell(BranchEvent(kind, branch_id, pid, branch=branch, name=name, by=by))
        level = logging.INFO if kind in _WEIGHTY else logging.DEBUG
        if log.isEnabledFor(level):
            of = branch or (self.overlay.branch_row(branch_id).name if self.overlay.has_tree(branch_id) else branch_id)
            log.log(level, "%s: %s%s, by process %d", of, kind, f" {name}" if name else "", pid, extra={"branch": of})

    async def _merge(self, request: wire.Merge, context: RequestContext) -> wire.MergeReply:
        target = self.overlay.branch_row(request.target or context.branch)
        sources = [self.overlay.find(source).id for source in request.sources]
        names = [self.overlay.find(source).name for source in sources]
        rules = Rules(request.favor, request.whole_files, request.markers)
        await self._flush()
        steps = merging.merge_branches(self.overlay, sources, target.id, rules, author_of(context), dry_run=request.dry_run)
        merged = await drive(steps, context)
        if merged.how != "nothing" and not merged.conflicts and not request.dry_run:
            self._tell("merge", target.id, context.caller.pid, name=" ".join(names))
        await self._settle()
        return merge_reply(merged, target.name)

    async def _restore(self, request: wire.Restore, context: RequestContext) -> wire.Done:
        found, branch = self.overlay.find(request.ref), self.overlay.branch_row(request.branch or context.branch)
        author, wanted = author_of(context), paths.parse(asked_paths(request))
        await self._flush()
        if wanted:
            steps = merging.restore_paths(self.overlay, branch.id, found.id, wanted, author)
            changed = await drive(steps, context)
            if changed:
                self._tell("restore", branch.id, author.pid, name=found.name)
            message = f"as in {found.name} again: {len(changed)} path{'' if len(changed) == 1 else 's'} of {branch.name}"
        else:
            self.overlay.restore(branch.id, found.id, author.pid, author.command)
            self._tell("restore", branch.id, author.pid, name=found.name)
            message = f"{branch.name} is at {found.name} again"
        await self._settle()
        return wire.Done(message=message)

    async def _undo(self, request: wire.Undo, context: RequestContext) -> wire.DeedsReply:
        author = author_of(context)
        await self._flush()
        undone = self.overlay.undo(author.pid, author.command)
        self._tell("undo", undone.branch_id, author.pid, name=undone.snapshot)
        await self._settle()
        return wire.DeedsReply(deeds=[wire.Deed(kind=undone.kind, branch=undone.branch, snapshot=undone.snapshot)])

    async def _undo_list(self, request: wire.UndoList, context: RequestContext) -> wire.DeedsReply:
        found = self.overlay.undo_entries()
        return wire.DeedsReply(deeds=[wire.Deed(kind=deed.kind, branch=deed.branch, snapshot=deed.snapshot) for deed in found])

    async def _prune(self, request: wire.Prune, context: RequestContext) -> wire.SnapshotsReply:
        policy = self.overlay.retention
        retention = Retention(
            policy.max_count if request.max_count is None else request.max_count,
            policy.max_age_s if request.max_age is None else parse_age(request.max_age),
            policy.keep_tagged if request.keep_tagged is None else request.keep_tagged,
            policy.keep_named if request.keep_named is None else request.keep_named,
        )
        pruned = self.overlay.prune(retention, request.branch, dry_run=request.dry_run)
        await self._settle()
        return wire.SnapshotsReply(snapshots=[wire_snapshot(info) for info in pruned])

    async def _gc(self, request: wire.CollectGarbage, context: RequestContext) -> wire.FreedReply:
        before = await trio.to_thread.run_sync(self.overlay.backstore.usage)
        if request.forget_undo:
            self.overlay.forget_undo()
        await drive(self.overlay.collecting(), context)
        after = await trio.to_thread.run_sync(self.overlay.backstore.usage)
        freed = {name: max(0, before[name] - after[name]) for name in ("objects", "bytes")}
        return wire.FreedReply(objects=freed["objects"], freed_bytes=freed["bytes"])


def author_of(context: RequestContext) -> Author:
    return Author(context.caller.pid, runtime.command_of(context.caller.pid) if context.caller.pid else "")


def asked_paths(request: wire.Restore | wire.Commit) -> list[bytes]:
    return [os.fsencode(path) for path in request.paths] + request.raw_paths


def merge_reply(merged: merging.Merged, into: str) -> wire.MergeReply:
    return wire.MergeReply(
        how=merged.how,
        into=into,
        changed=[wire.PathName(**wire.path_fields(path)) for path in sorted(set(merged.changed))],
        conflicts=[_wire_conflict(conflict) for conflict in merged.conflicts],
    )


def _wire_conflict(conflict: Conflict) -> wire.Conflict:
    return wire.Conflict(kind=conflict.kind, message=conflict.message, **wire.path_fields(conflict.path))


def wire_snapshot(info: SnapshotInfo) -> wire.Snapshot:
    return wire.Snapshot(
        name=info.name, id=info.id, branch=info.branch, parent=info.parent, created_ns=info.created_ns, tag=info.tag,
        author_pid=info.author_pid, file_count=info.file_count, bytes_changed=info.bytes_changed, kind=info.kind,
        author=info.author, merged=info.merged,
    )  # fmt: skip
