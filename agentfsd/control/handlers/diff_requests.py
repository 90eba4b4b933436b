"""Requests for the differences between two states: of a branch, a snapshot or the real directory."""

from collections.abc import Generator
from contextlib import AbstractContextManager, nullcontext

from agentfs_client import wire
from agentfsd.control import diff_patches, file_differences
from agentfsd.control.audit_notes import (
    changes_nothing,
)
from agentfsd.control.authorization import (
    own_history,
)
from agentfsd.control.client_paths import requested_paths
from agentfsd.control.cooperative import drive
from agentfsd.control.handler_services import Services
from agentfsd.control.operation_declaration import control_operation
from agentfsd.control.reply_records import wire_change, wire_repository
from agentfsd.control.request_context import RequestContext
from agentfsd.control.snapshot_tags import SnapshotRefs
from agentfsd.core import declared_settings
from agentfsd.core.tree import Tree
from agentfsd.history import kept_bases, other_lower
from agentfsd.history.executed_files import why_executed
from agentfsd.history.paths import among, parse
from agentfsd.repositories.git_internals import GitInternals
from agentfsd.repositories.telling import tell
from agentfsd.types import PathChange


@control_operation(wire.Diff, permission=own_history("a", "b"), note=changes_nothing, refs=SnapshotRefs(("a", "b"), ("b", "a")))
async def diff(services: Services, request: wire.Diff, context: RequestContext) -> wire.ChangesReply:
    """List the changes between two states."""
    wanted = parse(requested_paths(request))
    a, b = services.pin(request.a), services.pin(request.b or context.branch)
    await services.flush()
    await _prepare(services, b)
    with _old_side(services, a, b, wanted, own=request.own) as old, _new_side(services, b, old) as new:
        changes = among(await drive(services.overlay.comparison.diff_in_steps(old, new, wanted), context), wanted)
        changes = [change for change in changes if not context.hides(change.path, change.old_path)]
        repositories = []
        if request.histories:
            repositories = await drive(tell(services.overlay.parts, old, new, [change.path for change in changes]), context)
        shown = changes
        if not request.internal and not wanted:
            shown = GitInternals(old, new).without(changes, lambda change: change.path)
        described = await drive(_described(services, old, new, changes, shown), context)
    return wire.ChangesReply(changes=described, repositories=[wire_repository(one) for one in repositories])


def _described(
    services: Services, old: Tree, new: Tree, changes: list[PathChange], shown: list[PathChange]
) -> Generator[tuple[int, int, str], None, list[wire.Change]]:
    """Describe the changes that are *shown*, and those of the others that are executed."""
    patterns = declared_settings.read(services.overlay.parts.store)["executed.paths"].split()
    places = (services.info.lower, services.info.mountpoint)
    paths = {change.path for change in shown}
    looked_at = [change for change in changes if change.path in paths or b"/objects/" not in change.path]
    described = []
    for done, change in enumerate(looked_at):
        why = why_executed(old, new, change.path, patterns, places)
        if why or change.path in paths:
            described.append(wire_change(change, why))
        yield done, len(looked_at), "looking for files that are executed"
    return described


@control_operation(
    wire.DiffFiles,
    permission=own_history("a", "b"),
    note=changes_nothing,
    cancellable=True,
    refs=SnapshotRefs(("a", "b"), ("b", "a")),
)
async def diff_files(services: Services, request: wire.DiffFiles, context: RequestContext) -> wire.FilesDifferReply:
    """List the regular files that differ between two states."""
    a, b = services.pin(request.a), services.pin(request.b or context.branch)
    await services.flush()
    with services.overlay.trees.frozen(a) as old, services.overlay.trees.frozen(b, over=old.lower) as new:
        steps = file_differences.files(
            services.overlay.parts, old, new, count=request.count, hides=context.hides, histories=request.histories,
            internal=request.internal,
        )  # fmt: skip
        return await drive(steps, context)


@control_operation(
    wire.DiffPatch,
    permission=own_history("a", "b"),
    note=changes_nothing,
    cancellable=True,
    refs=SnapshotRefs(("a", "b"), ("b", "a")),
)
async def diff_patch(services: Services, request: wire.DiffPatch, context: RequestContext) -> wire.PatchesReply:
    """Return the changes between two states as patches."""
    diff_patches.check(request)
    a, b = services.pin(request.a), services.pin(request.b or context.branch)
    await services.flush()
    wanted = parse(requested_paths(request))
    await _prepare(services, b)
    with _old_side(services, a, b, wanted, own=request.own) as old, _new_side(services, b, old) as new:
        return wire.PatchesReply(
            patches=await diff_patches.make(services.overlay, old, new, request, context, services.info.state)
        )


def _old_side(
    services: Services, a: str | None, b: str | None, wanted: tuple[bytes, ...], *, own: bool
) -> AbstractContextManager[Tree]:  # fmt: skip
    """Return the tree to compare *b* with at the *wanted* paths: what it was made from (*own*), or *a*."""
    if own and b is not None:
        return kept_bases.made_from(services.overlay.trees, b, wanted)
    return nullcontext(services.overlay.trees.side(a))


async def _prepare(services: Services, b: str | None) -> None:
    """Prepare a branch for being compared with the real directory."""
    if b is not None:
        await drive(other_lower.prepare(services.overlay, [b], services.overlay.lowers.live))


def _new_side(services: Services, b: str | None, old: Tree) -> AbstractContextManager[Tree]:
    """Return the tree of *b* over the same lower as *old*: what a frozen base has in other files is no change of a branch."""
    tree = services.overlay.trees.side(b)
    if b is None or tree.lower is old.lower:
        return nullcontext(tree)
    return services.overlay.trees.frozen(b, over=old.lower)
