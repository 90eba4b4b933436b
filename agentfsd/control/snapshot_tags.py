"""Replace tags in requests by snapshot ids. A name or id takes precedence over a tag."""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from agentfs_client import wire
from agentfsd.core.overlay import Overlay
from agentfsd.domain_errors import Refusal

_Find = Callable[[str], object]


class SnapshotRefs(NamedTuple):
    """The fields of a request that may contain a snapshot's tag.

    Attributes:
        fields: Fields that can name a snapshot.
        branches: Fields that name the branch concerned, the most specific first.
        snapshots_only: The fields name snapshots and never branches.
    """

    fields: tuple[str, ...]
    branches: tuple[str, ...] = ()
    snapshots_only: bool = False


def to_ids(request: wire.Request, refs: SnapshotRefs | None, bound_to: str | None, overlay: Overlay) -> wire.Request:
    """Replace each tag by the snapshot's id, so that the request that is authorized is the one that is executed.

    Args:
        request: The request as received.
        refs: Its fields that may contain a tag; None for none.
        bound_to: The id of the branch that the caller is bound to. Only tags in that branch's history are found then.
        overlay: The overlay.

    Returns:
        The request with ids.

    Raises:
        Refusal: Several branches have snapshots with the tag, and the request names none of these branches.
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
    """Return the id of the snapshot with that tag; *ref* itself if it is no tag, so that the look-up reports the error."""
    snapshot = overlay.snapshots.tagged(ref, branches, bound_to)
    return ref if snapshot is None else snapshot.id
