"""A snapshot's tag in the place of a ref: which snapshot that is. Names and ids go before tags."""

from collections.abc import Callable
from typing import Any

import msgspec

from agentfs_client import wire
from agentfsd.core.overlay import Overlay
from agentfsd.errors import Refusal

_Find = Callable[[str], object]

# Fields in which a snapshot can be named, and those that say which branch is concerned, in that order.
_REFS: dict[type[wire.Request], tuple[tuple[str, ...], tuple[str, ...]]] = {
    wire.Diff: (("a", "b"), ("b", "a")), wire.DiffPatch: (("a", "b"), ("b", "a")), wire.DiffFiles: (("a", "b"), ("b", "a")),
    wire.Log: (("ref",), ()), wire.Restore: (("ref",), ("branch",)), wire.Merge: (("sources",), ("target",)),
    wire.SnapshotShow: (("ref",), ()), wire.SnapshotDelete: (("ref",), ()), wire.BranchCreate: (("source",), ()),
}  # fmt: skip


def to_ids(request: wire.AnyRequest, bound_to: str | None, overlay: Overlay) -> wire.AnyRequest:
    """The request with the snapshot's id for each tag, so that what is authorized is what is done. Refusal where a tag could be
    several branches' and none of them is concerned. A process of the branch *bound_to* knows its own history's tags alone."""
    if type(request) not in _REFS:
        return request
    fields, concerned = _REFS[type(request)]
    find: _Find = overlay.snapshot_row if isinstance(request, wire.SnapshotShow | wire.SnapshotDelete) else overlay.find
    changed: dict[str, Any] = {}
    for field in fields:
        value = getattr(request, field)
        refs = value if isinstance(value, list) else [value]
        if all(ref is None or _is_known(ref, find) for ref in refs):
            continue
        branches = [*_branches(request, concerned, overlay), bound_to or overlay.default_id]
        found = [ref if ref is None or _is_known(ref, find) else _tagged(ref, branches, bound_to, overlay) for ref in refs]
        changed[field] = found if isinstance(value, list) else found[0]
    return msgspec.structs.replace(request, **changed) if changed else request


def _is_known(ref: str, find: _Find) -> bool:
    try:
        find(ref)
    except Refusal as exc:
        return exc.code == "ambiguous"  # an id that is too short: whoever looks it up says so
    return True


def _branches(request: wire.AnyRequest, fields: tuple[str, ...], overlay: Overlay) -> list[str]:
    refs = [getattr(request, field) for field in fields]
    return [overlay.branch_row(ref).id for ref in refs if ref and _is_branch(ref, overlay)]


def _is_branch(ref: str, overlay: Overlay) -> bool:
    try:
        overlay.branch_row(ref)
    except Refusal:
        return False
    return True


def _tagged(ref: str, branches: list[str], bound_to: str | None, overlay: Overlay) -> str:
    """*ref* itself where it is no tag either: whoever looks it up says so."""
    found = overlay.tagged(ref, branches, bound_to)
    return ref if found is None else found.id
