"""Which requests the audit trail is told of that no listener hears of, since they change no branch; and in which words."""

from collections.abc import Callable
from typing import Any, NamedTuple

from agentfs_client import wire

REFUSED = "refused"  # the kind for what somebody may not ask for
_NAMES = 5


class AuditNote(NamedTuple):
    """``branch``: a ref, None for none."""

    kind: str
    name: str
    branch: str | None = None


def note_of(request: wire.AnyRequest, reply: wire.AnyReply) -> AuditNote | None:
    """What was done, where that is to be noted."""
    make = _NOTES.get(type(request))
    return None if make is None else make(request, reply)


def refusal_of(request: wire.AnyRequest) -> AuditNote:
    """What was asked for in vain."""
    tag = str(type(request).__struct_config__.tag)
    return AuditNote(REFUSED, f"{tag} {subject(request)}".rstrip())


def subject(request: wire.AnyRequest) -> str:
    """What a request is about, for people; "" for nothing that it names."""
    for field in _SUBJECTS:
        value = getattr(request, field, None)
        if value:
            return " ".join(value) if isinstance(value, list) else str(value)
    return ""


_SUBJECTS = ("path", "ref", "branch", "name", "sources", "pid")  # fields of requests that say what they are about


def _setting(kind: str) -> Callable[[Any, Any], AuditNote]:
    return lambda request, reply: AuditNote(kind, f"{request.name} = {request.value}")


def _prune(request: wire.Prune, reply: wire.SnapshotsReply) -> AuditNote | None:
    if request.dry_run or not reply.snapshots:
        return None
    names = [found.name for found in reply.snapshots]
    more = f" and {len(names) - _NAMES} others" if len(names) > _NAMES else ""
    return AuditNote("prune", ", ".join(names[:_NAMES]) + more, request.branch)


def _commit_end(request: wire.CommitEnd, reply: wire.MergeReply) -> AuditNote | None:
    """One that is finished is told as a commit."""
    return AuditNote("commit-aborted", reply.into) if request.abort and not reply.conflicts else None


_NOTES: dict[type[wire.Request], Callable[[Any, Any], AuditNote | None]] = {
    wire.PolicySet: _setting("policy"), wire.InterposeSet: _setting("interpose"), wire.Prune: _prune,
    wire.CommitEnd: _commit_end,
    wire.CollectGarbage: lambda request, reply: AuditNote("gc", "what undo needs too" if request.forget_undo else ""),
    wire.Shutdown: lambda request, reply: AuditNote("unmount", "by force" if request.force else ""),
    wire.ViewOpen: lambda request, reply: AuditNote("attached", f"a private mount ({reply.io})", request.branch),
}  # fmt: skip
