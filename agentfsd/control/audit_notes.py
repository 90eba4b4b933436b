"""Entries of the audit trail for requests that change no branch, and for refused requests.

The audit trail learns of changes to branches by their events. Each operation's declaration names the function of this module that
makes its entry.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from agentfs_client import wire

REFUSED = "refused"  # the kind for what somebody may not ask for
_NAMES = 5
_SUBJECTS = ("path", "ref", "branch", "name", "sources", "pid")  # fields of requests that say what they are about


class AuditNote(NamedTuple):
    """One entry of the audit trail. ``branch`` is a ref; None means the caller's branch."""

    kind: str
    name: str
    branch: str | None = None


NoteMaker = Callable[[Any, Any], AuditNote | None]  # of a request and its reply; None: nothing is to be noted


def changes_nothing(request: wire.Request, reply: wire.Reply) -> None:
    """Make no entry: the request only reads, or concerns this conversation alone."""


def told_as_event(request: wire.Request, reply: wire.Reply) -> None:
    """Make no entry: the audit trail receives the event of the change."""


def noted_by_handler(request: wire.Request, reply: wire.Reply) -> None:
    """Make no entry: the handler makes it itself, at the right moment."""


def noted_setting(kind: str) -> NoteMaker:
    """Return a function that makes entries about one setting and its value."""
    return lambda request, reply: AuditNote(kind, f"{request.name} = {request.value}")


def noted_worktree(request: wire.BranchWorktree, reply: wire.BranchReply) -> AuditNote:
    """Note which worktree of git a branch is from now on."""
    return AuditNote("worktree", request.directory or "none", reply.branch.id)


def noted_rules(request: wire.RulesChange, reply: wire.RulesReply) -> AuditNote:
    """Note which rules by path were added and removed."""
    texts = [*(f"+ {text}" for text in request.add), *(f"- {text}" for text in request.remove)]
    more = f" and {len(texts) - _NAMES} others" if len(texts) > _NAMES else ""
    return AuditNote("rules", ", ".join(texts[:_NAMES]) + more, request.branch)


def noted_answer(request: wire.AsksAnswer, reply: wire.AsksReply) -> AuditNote:
    """Note what was answered to whom."""
    asked = reply.asks[0]
    answer = "allowed" if request.allow else "denied"
    what = f"{answer} ({request.lasts}): {asked.what} {asked.path} by {asked.command}, process {asked.pid}"
    return AuditNote("asked", what, asked.branch)


def noted_prune(request: wire.Prune, reply: wire.SnapshotsReply) -> AuditNote | None:
    """Note which snapshots were deleted, if any."""
    if request.dry_run or not reply.snapshots:
        return None
    names = [snapshot.name for snapshot in reply.snapshots]
    more = f" and {len(names) - _NAMES} others" if len(names) > _NAMES else ""
    return AuditNote("prune", ", ".join(names[:_NAMES]) + more, request.branch)


def noted_abort(request: wire.CommitEnd, reply: wire.MergeReply) -> AuditNote | None:
    """Record a commit that was undone. A finished commit is an event."""
    return AuditNote("commit-aborted", reply.into) if request.abort and not reply.conflicts else None


def noted_collection(request: wire.CollectGarbage, reply: wire.FreedReply) -> AuditNote:
    """Note that garbage was collected."""
    return AuditNote("gc", "what undo needs too" if request.forget_undo else "")


def noted_shutdown(request: wire.Shutdown, reply: wire.Done) -> AuditNote:
    """Note that somebody asked to unmount."""
    return AuditNote("unmount", "by force" if request.force else "")


def noted_restart(request: wire.Restart, reply: wire.Done) -> AuditNote:
    """Note that somebody had the daemon replaced."""
    return AuditNote("restart", "")


def noted_view(request: wire.ViewOpen, reply: wire.ViewReply) -> AuditNote:
    """Note that somebody got a private mount of a branch."""
    return AuditNote("attached", f"a private mount ({reply.io})", request.branch)


def noted_refusal(request: wire.Request) -> AuditNote:
    """Record a request that the caller was not permitted to make."""
    tag = str(type(request).__struct_config__.tag)
    return AuditNote(REFUSED, f"{tag} {subject(request)}".rstrip())


def subject(request: wire.Request) -> str:
    """Describe what a request is about; "" if it names nothing."""
    for field in _SUBJECTS:
        value = getattr(request, field, None)
        if value:
            return " ".join(value) if isinstance(value, list) else str(value)
    return ""
