"""Which snapshot a tag means where a request has one in the place of a ref. Names and ids go before tags."""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from agentfs_client import wire
from agentfsd.core.overlay import Overlay
from agentfsd.domain_errors import Refusal

_Find = Callable[[str], object]


class SnapshotRefs(NamedTuple):
    """The fields of a request that may hold a snapshot's tag.

    Attributes:
        fields: Fields in which a snapshot can be named.
        branches: Fields that say which branch is concerned, the most telling first.
        snapshots_only: The fields name snapshots and never branches.
    """

    fields: tuple[str, ...]
    branches: tuple[str, ...] = ()
    snapshots_only: bool = False


def to_ids(request: wire.Request, refs: SnapshotRefs | None, bound_to: str | None, overlay: Overlay) -> wire.Request:
    """Put the snapshot's id in the place of each tag, so that what is authorized is what is done.

    Args:
        request: The request as it came.
        refs: Its fields that may hold a tag; None: none does.
        bound_to: The id of the branch that the caller is bound to. It knows the tags of that branch's history alone.
        overlay: Where the tags are.

    Returns:
        The request with ids.

    Raises:
        Refusal: A tag could be several branches', and none of them is concerned.
    """
    if refs is None:
        return request
    find: _Find = overlay.refs.snapshot if refs.snapshots_only else overlay.refs.find
    changed: dict[str, Any] = {}
    for field in refs.fields:
        value = getattr(request, field)
        named = value if isinstance(value, list) else [value]
        if all(ref is None or _is_known(ref, find) for ref in named):
            continue
        branches = [*_branches(request, refs.branches, overlay), bound_to or overlay.default_id]
        ids = [ref if ref is None or _is_known(ref, find) else _tagged(ref, branches, bound_to, overlay) for ref in named]
        changed[field] = ids if isinstance(value, list) else ids[0]
    return msgspec.structs.replace(request, **changed) if changed else request


def _is_known(ref: str, find: _Find) -> bool:
    try:
        find(ref)
    except Refusal as exc:
        return exc.code == "ambiguous"  # an id that is too short: looking it up then gives the error
    return True


def _branches(request: wire.Request, fields: tuple[str, ...], overlay: Overlay) -> list[str]:
    refs = [getattr(request, field) for field in fields]
    return [overlay.refs.branch(ref).id for ref in refs if ref and _is_branch(ref, overlay)]


def _is_branch(ref: str, overlay: Overlay) -> bool:
    try:
        overlay.refs.branch(ref)
    except Refusal:
        return False
    return True


def _tagged(ref: str, branches: list[str], bound_to: str | None, overlay: Overlay) -> str:
    """Return the id of the snapshot with that tag, or *ref* itself if it is no tag: looking it up then gives the error."""
    snapshot = overlay.snapshots.tagged(ref, branches, bound_to)
    return ref if snapshot is None else snapshot.id
