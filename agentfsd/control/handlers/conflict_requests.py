"""Requests about the conflicts that a merge has left in its target."""

import errno
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from agentfs_client import wire
from agentfsd.control.audit_notes import changes_nothing, told_as_event
from agentfsd.control.authorization import own_branch, unbound_only
from agentfsd.control.client_paths import path_of
from agentfsd.control.cooperative import drive
from agentfsd.control.handler_services import Services
from agentfsd.control.operation_declaration import control_operation
from agentfsd.control.reply_records import author_of
from agentfsd.control.request_context import RequestContext
from agentfsd.control.status_text import plural
from agentfsd.core import data, inode_stat
from agentfsd.core.left_conflicts import LeftConflict
from agentfsd.core.rule_set import ALLOW
from agentfsd.core.tree import Inode
from agentfsd.core.unfinished_merges import UnfinishedMerge
from agentfsd.domain_errors import Refusal, invalid
from agentfsd.history import paths, resolving, seen_version
from agentfsd.history.resolving import ConflictState, EditedFile, MergeState
from agentfsd.repositories import reading

State = Literal["none", "unfinished", "finished", "aborted"]


@control_operation(wire.ConflictList, permission=own_branch("branch"), note=changes_nothing)
async def list_conflicts(services: Services, request: wire.ConflictList, context: RequestContext) -> wire.ConflictsReply:
    """List the conflicts that a merge has left in a branch or snapshot."""
    row = services.overlay.refs.find(request.branch or context.branch)
    found = resolving.state_of_branch(services.overlay, row.id)
    return _reply(row.name, "none" if found.merge is None else "unfinished", found, found.conflicts, context)


def _reply(
    name: str, state: State, found: MergeState, conflicts: list[ConflictState], context: RequestContext
) -> wire.ConflictsReply:  # fmt: skip
    return wire.ConflictsReply(
        branch=name,
        state=state,
        sources=found.names,
        conflicts=[
            *(_wire(one) for one in conflicts if not context.hides(one.conflict.path)),
            *(_under_way(database) for database in found.under_way),
        ],
        resolved=len(found.resolved),
        merge=found.merge.id if found.merge is not None else 0,
    )  # fmt: skip


def _under_way(database: bytes) -> wire.LeftOpenConflict:
    message = "git has a merge to finish here: run `git commit` in the branch"
    shown = wire.path_fields(database)
    return wire.LeftOpenConflict(path=shown["path"], raw_path=shown.get("raw_path", ""), kind="under-way", message=message)


def _wire(state: ConflictState) -> wire.LeftOpenConflict:
    conflict = state.conflict
    return wire.LeftOpenConflict(
        **wire.path_fields(conflict.path), kind=conflict.kind, message=conflict.message, source=state.source.name,
        decided=state.how, markers=conflict.marked,
    )  # fmt: skip


@control_operation(wire.ConflictShow, permission=own_branch("branch"), note=changes_nothing)
async def show_version(services: Services, request: wire.ConflictShow, context: RequestContext) -> wire.ConflictVersionReply:
    """Return one version of a path with a conflict."""
    if not (0 <= request.size <= wire.MAX_DATA_BYTES and 0 <= request.offset < 1 << 63):
        raise invalid("that is no part of a file", f"ask for at most {wire.MAX_DATA_BYTES} bytes")
    row = services.overlay.refs.find(request.branch or context.branch)
    (path,) = paths.parse([path_of(request.path, request.raw_path)])
    _check_readable(path, context)
    merge = services.overlay.unfinished.of(row)
    if merge is None:
        raise resolving.no_merge(row.name)
    conflict = _conflict_at(merge, path)
    for place in (conflict.base, conflict.ours, conflict.theirs):  # a side may have renamed it
        _check_readable(place, context)
    with _version(services, row.id, merge, conflict, request.side) as inode:
        seen = seen_version.name_of(inode) if request.side == "now" and not request.offset else ""
        if inode is None:
            return wire.ConflictVersionReply(kind="none", seen=seen)
        shown = inode_stat.attributes(inode)
        if inode.is_file:
            read = data.read(inode, request.size, request.offset) if request.size else b""
            return wire.ConflictVersionReply(kind="file", mode=shown.mode, size=shown.size, data=read, seen=seen)
        if stat.S_ISLNK(inode.mode):
            target = inode.tree.readlink(inode)
            return wire.ConflictVersionReply(kind="symlink", mode=shown.mode, size=shown.size, data=target, seen=seen)
        return wire.ConflictVersionReply(kind="directory" if inode.is_dir else "other", mode=shown.mode, seen=seen)


def _check_readable(path: bytes, context: RequestContext) -> None:
    if context.keeps_back(path):
        raise Refusal(errno.EACCES, "ruled", "a rule keeps you from that path", "`agentfsd rules` lists the rules")


def _conflict_at(merge: UnfinishedMerge, path: bytes) -> LeftConflict:
    conflict = next((one for one in merge.record.conflicts if one.path == path), None)
    if conflict is None:
        raise Refusal(
            errno.ENOENT,
            "no-such-conflict",
            f"{paths.shown(path)} is no conflict of that merge",
            "`agentfsd conflicts` lists them",
        )
    return conflict


@contextmanager
def _version(
    services: Services,
    row_id: str,
    merge: UnfinishedMerge,
    conflict: LeftConflict,
    side: Literal["base", "ours", "theirs", "now"],
) -> Iterator[Inode | None]:
    """Open the version of a path."""
    if side == "now":
        yield reading.at(services.overlay.trees.of(row_id), conflict.path)
        return
    source = merge.record.sources[conflict.source]
    with services.overlay.trees.kept(getattr(source, side)) as tree:
        inode = reading.at(tree, getattr(conflict, side))
        try:
            yield inode
        finally:
            if inode is not None:
                inode.release_files()


@control_operation(wire.ConflictResolve, permission=own_branch("branch"), note=told_as_event, cancellable=True)
async def resolve(services: Services, request: wire.ConflictResolve, context: RequestContext) -> wire.ConflictsReply:
    """Decide conflicts."""
    branch, author = services.overlay.refs.branch(request.branch or context.branch), author_of(context)
    wanted = paths.parse([path.encode() for path in request.paths] + request.raw_paths)
    if not wanted:
        raise invalid("no paths were named", "name the paths that are decided")
    _check_rules(services, branch.id, wanted, context)
    edited = EditedFile(request.content, request.seen) if request.content is not None or request.seen else None
    if request.content is not None and request.how != "edited":
        raise invalid("only an edited file has a content", "leave out the content")
    await services.flush()
    async with services.standing_still(branch.id, context, changes=True):
        _check_merge(services, branch.id, request.merge)
        steps = resolving.resolve(services.overlay, branch.id, wanted, request.how, author, edited)
        found = await drive(steps, context)
        services.tell("merge", branch.id, author.pid, name=f"settled {plural(len(found.resolved), 'conflict')}: {request.how}")
        await services.push()
    await services.settle()
    return _reply(branch.name, "unfinished", found, found.conflicts, context)


def _check_rules(services: Services, branch_id: str, wanted: tuple[bytes, ...], context: RequestContext) -> None:
    merge = services.overlay.unfinished.of(services.overlay.refs.find(branch_id))
    for conflict in merge.record.conflicts if merge is not None and context.ruled is not None else ():
        if paths.touches(wanted, conflict.path) and context.ruled and context.ruled.rules.verdict_of_path(conflict.path) != ALLOW:
            raise Refusal(
                errno.EACCES, "ruled", "a rule keeps you from changing one of these paths", "`agentfsd rules` lists the rules"
            )


def _check_merge(services: Services, branch_id: str, seen: int) -> None:
    """Refuse if a branch is in another merge than the one that was *seen* (0: none was named)."""
    branch = services.overlay.refs.branch(branch_id)
    merge = services.overlay.unfinished.of(branch)
    if seen and merge is not None and merge.id != seen:
        message = f"{branch.name} is in another merge than the one that was seen; nothing was done"
        raise Refusal(errno.EBUSY, "conflict-changed", message, "look at its conflicts again")


@control_operation(wire.MergeEnd, permission=unbound_only, note=told_as_event, cancellable=True)
async def end_merge(services: Services, request: wire.MergeEnd, context: RequestContext) -> wire.ConflictsReply:
    """Finish a merge that has left conflicts, or take it back."""
    branch, author = services.overlay.refs.branch(request.branch or context.branch), author_of(context)
    await services.flush()
    merge = services.overlay.unfinished.of(services.overlay.refs.find(branch.id))
    names = [source.name for source in merge.record.sources] if merge is not None else []
    async with services.standing_still(branch.id, context, changes=True):
        _check_merge(services, branch.id, request.merge)
        if request.abort:
            changed = await drive(resolving.abort(services.overlay, branch.id, author, force=request.force), context)
            reply = wire.ConflictsReply(
                branch=branch.name, state="unfinished" if changed else "aborted", sources=names,
                merge=merge.id if merge is not None else 0,
                changed=[wire.PathName(**wire.path_fields(path)) for path in changed],
            )  # fmt: skip
        else:
            found = await drive(resolving.finish(services.overlay, branch.id, author), context)
            is_open = bool(found.undecided or found.under_way)
            reply = _reply(branch.name, "unfinished" if is_open else "finished", found, found.undecided, context)
        if reply.state != "unfinished":
            kind: Literal["merge", "restore"] = "restore" if request.abort else "merge"
            name = f"the state before the merge of {' '.join(names)}" if request.abort else " ".join(names)
            services.tell(kind, branch.id, author.pid, name=name)
        await services.push()
    await services.settle()
    return reply
