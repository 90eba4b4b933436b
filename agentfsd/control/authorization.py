"""Which caller may make which request.

The caller is whom the kernel names; what a request claims about its caller is not trusted.

The mount's owner and root may make every request. A process that is bound to a branch is confined to that branch. Each
operation's declaration names one of the permissions of this module.
"""

import errno
import os
from collections.abc import Callable
from typing import Any, NamedTuple

from agentfs_client import wire
from agentfsd.binding.table import IN_DOUBT
from agentfsd.control.peer import Peer
from agentfsd.core.overlay import Overlay
from agentfsd.domain_errors import Refusal
from agentfsd.types import Caller

FORBIDDEN = ("not-owner", "outside-branch", "foreign-process", "in-doubt", "not-author")  # codes: somebody may not ask that


def check_known(pid: int, bound_to: str | None) -> None:
    """Refuse a process that may have escaped from a branch while no daemon followed forks.

    Raises:
        Refusal: Which branch the process belongs to is in doubt.
    """
    if bound_to == IN_DOUBT:
        raise Refusal(
            errno.EACCES, "in-doubt", f"process {pid} may belong to a branch: it was started while the daemon was not running",
            f"from another terminal: `agentfsd bind {pid} BRANCH`, or `agentfsd unbind {pid}` if it belongs to none",
        )  # fmt: skip


class Claim(NamedTuple):
    """A caller: *peer*, and the id of the branch that it is bound to (None for none)."""

    peer: Peer
    bound_to: str | None
    overlay: Overlay


Permission = Callable[[Any, Claim], None]  # of a request; raises Refusal where the caller may not make it


def check_caller(peer: Peer, owner_uid: int) -> None:
    """Refuse a caller who may not ask anything.

    Call this once it is known which branch *peer* is bound to, and before anything is looked up: a process that has just ended
    looks unbound.

    Raises:
        Refusal: The caller is neither the owner of the mount nor root, or has ended.
    """
    peer.check_alive()
    caller = peer.caller
    if caller.uid not in (owner_uid, 0):
        raise Refusal(
            errno.EACCES,
            "not-owner",
            f"this mount belongs to uid {owner_uid}, you are uid {caller.uid}",
            "ask its owner, or root",
        )


def everybody(request: wire.Request, claim: Claim) -> None:
    """Permit every caller. The handler shows a bound process only its own branch."""


def unbound_only(request: wire.Request, claim: Claim) -> None:
    """Permit only processes that are bound to no branch."""
    if claim.bound_to is not None:
        raise _outside("that request")


def own_branch(field: str) -> Permission:
    """Return a permission that confines a bound process to its branch.

    *field* of the request names a branch; None there means its own.
    """

    def permission(request: Any, claim: Claim) -> None:
        if claim.bound_to is not None:
            _check_own(getattr(request, field), claim.bound_to, claim.overlay)

    return permission


def own_history(*fields: str) -> Permission:
    """Return a permission that confines a bound process to its branch and that branch's snapshots, in each of these fields."""

    def permission(request: Any, claim: Claim) -> None:
        if claim.bound_to is not None:
            for field in fields:
                _check_history(getattr(request, field), claim.bound_to, claim.overlay)

    return permission


def all_of(*permissions: Permission) -> Permission:
    """Return a permission that requires each of these, in order."""

    def permission(request: Any, claim: Claim) -> None:
        for each in permissions:
            each(request, claim)

    return permission


def own_snapshot(request: wire.SnapshotShow, claim: Claim) -> None:
    """Confine a bound process to the snapshots in its branch's history, even if a branch has the same name."""
    if claim.bound_to is not None:
        _check_snapshot(request.ref, claim.bound_to, claim.overlay)


def own_made_snapshot(request: wire.SnapshotDelete, claim: Claim) -> None:
    """Confine a bound process to the snapshots that this conversation has made."""
    if claim.bound_to is not None and claim.overlay.refs.snapshot(request.ref).id not in claim.peer.made:
        raise _outside("to delete a snapshot that this conversation has not made")


def own_handle(request: wire.HandleRequest, claim: Claim) -> None:
    """Confine a bound process to files of its branch. A file that it opened before it was bound may belong to another branch."""
    if claim.bound_to is None:
        return
    opened = claim.peer.files.get(request.handle)
    if (
        opened is not None
        and opened.tree_id != claim.bound_to
        and not claim.overlay.snapshots.in_history(claim.bound_to, opened.tree_id)
    ):
        raise _outside("what was opened in another branch")


def own_note(request: wire.NoteAnswerAdd | wire.NoteResolve | wire.NoteRemove, claim: Claim) -> None:
    """Confine a bound process to notes of its branch. It is not told whether another branch has that note."""
    if claim.bound_to is None:
        return
    try:
        branch_id = claim.overlay.notes.find(request.id).row.branch_id
    except Refusal:
        branch_id = ""
    if branch_id != claim.bound_to:
        raise Refusal(
            errno.EPERM, "outside-branch", f"there is no note {request.id} in the branch to which you are bound",
            "`agentfsd notes` lists those there are",
        )  # fmt: skip


def own_words(request: wire.NoteResolve | wire.NoteRemove, claim: Claim) -> None:
    """Permit a bound process only what concerns notes of its branch about which no person has said anything."""
    own_note(request, claim)
    is_agent = claim.bound_to is not None or claim.peer.obeys is not None
    if is_agent and claim.overlay.notes.find(request.id).is_of_person:
        raise Refusal(
            errno.EPERM, "not-author", f"note {request.id} has a person's words, and only a person settles or removes it",
            f"`agentfsd notes reply {request.id} TEXT` answers it",
        )  # fmt: skip


def own_process(request: wire.BranchBind, claim: Claim) -> None:
    """Permit an unbound process to bind processes of its own user; root may bind any."""
    unbound_only(request, claim)
    _check_target(request.pid, claim.peer.caller)


def _check_own(ref: str | None, bound_to: str, overlay: Overlay) -> None:
    if ref is not None and overlay.refs.resolve(ref) != ("branch", bound_to):
        raise _outside(f"{ref!r}")


def _check_history(ref: str | None, bound_to: str, overlay: Overlay) -> None:
    if ref is None:
        return
    kind, number = overlay.refs.resolve(ref)
    if (kind == "branch" and number != bound_to) or (kind == "snapshot" and not overlay.snapshots.in_history(bound_to, number)):
        raise _outside(f"{ref!r}")


def _check_snapshot(ref: str, bound_to: str, overlay: Overlay) -> None:
    if not overlay.snapshots.in_history(bound_to, overlay.refs.snapshot(ref).id):
        raise _outside(f"{ref!r}")


def _outside(action: str) -> Refusal:
    return Refusal(
        errno.EPERM, "outside-branch", f"{action} is not for a process that is bound to a branch", "ask from an unbound process"
    )


def _check_target(pid: int, caller: Caller) -> None:
    if pid < 1:
        raise Refusal(errno.EINVAL, "bad-pid", f"{pid} is not a process number", "give a number above 0")
    try:
        owner = os.stat(f"/proc/{pid}").st_uid
    except FileNotFoundError:
        raise no_process(pid) from None
    if caller.uid not in (0, owner):
        raise Refusal(errno.EPERM, "foreign-process", f"process {pid} belongs to uid {owner}, not to you")


def no_process(pid: int) -> Refusal:
    """Return the refusal for a process that does not exist."""
    return Refusal(errno.ESRCH, "no-such-process", f"there is no process {pid}", "it may have ended already")
