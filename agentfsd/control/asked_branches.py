"""Which branches a request is about, so that what their runs have written without the daemon is brought into them first."""

import contextlib

from agentfs_client import wire
from agentfsd.core.overlay import Overlay
from agentfsd.domain_errors import Refusal

# The handlers of the three before the notes see to it themselves. Discarding what cannot be taken over has to be possible.
_CONCERN_NONE = (
    wire.ViewOpen, wire.ViewLeave, wire.BranchBind, wire.BranchUnbind, wire.Capabilities, wire.PolicyGet, wire.Discard,
    wire.SnapshotCreate, wire.StepTake, wire.Restore,
    wire.NoteAnswerAdd, wire.NoteResolve, wire.NoteRemove,
)  # fmt: skip

_SAID = ("text",)  # fields that name nothing, though their words may be a branch's name


def seals(request: wire.Request) -> bool:
    """Return whether a request seals the state of branches, which copies what their runs may still write."""
    return isinstance(request, (wire.Merge, wire.Commit, wire.BranchCreate, wire.DiffFiles))


def asked_branches(request: wire.Request, bound_to: str | None, overlay: Overlay) -> set[str] | None:
    """Return the ids of the branches that a request may be about; None for all of them.

    Args:
        request: The request.
        bound_to: The id of the branch that the caller is bound to, if any.
        overlay: All branches.
    """
    if isinstance(request, _CONCERN_NONE):
        return set()
    named: set[str] = set()
    for field in request.__struct_fields__:
        if field in _SAID:
            continue
        value = getattr(request, field)
        for ref in value if isinstance(value, list) else [value]:
            if isinstance(ref, str) and ref:
                with contextlib.suppress(Refusal):
                    named.add(overlay.refs.branch(ref).id)
    if bound_to is not None:
        return named | {bound_to}
    return named or None
