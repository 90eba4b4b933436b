"""Who may ask what: the one place. The caller is who the kernel says; nothing in a request is believed."""

import errno
import os

from agentfs_client import wire
from agentfsd.control.peer import Peer
from agentfsd.core.overlay import Overlay
from agentfsd.errors import Refusal
from agentfsd.types import Caller

# What a bound process may ask at all; each is then held to its own branch.
_FOR_BOUND = (
    wire.Hello, wire.Status, wire.Capabilities, wire.BranchShow, wire.SnapshotCreate, wire.SnapshotList,
    wire.SnapshotShow, wire.SnapshotDelete, wire.Diff, wire.DiffPatch, wire.DiffFiles, wire.Log, wire.Restore, wire.Events,
    wire.FileRequest, wire.HandleRequest, wire.FdDup, wire.FdSync, wire.InterposeGet,
    wire.Top, wire.AuditList,
)  # fmt: skip


FORBIDDEN = ("not-owner", "outside-branch", "foreign-process")  # codes for what somebody may not ask for


def check_caller(peer: Peer, owner_uid: int) -> None:
    """Refusal for who may not ask anything. Call once it is known where *peer* is bound, before anything is looked up."""
    peer.check_alive()  # after *bound_to* was looked up: a process that has just ended looks unbound
    caller = peer.caller
    if caller.uid not in (owner_uid, 0):
        raise Refusal(
            errno.EACCES,
            "not-owner",
            f"this mount belongs to uid {owner_uid}, you are uid {caller.uid}",
            "ask its owner, or root",
        )


def authorize(request: wire.AnyRequest, peer: Peer, bound_to: str | None, overlay: Overlay) -> None:
    """Refusal when *peer*, bound to that branch id or to none, may not make the request. After check_caller()."""
    if bound_to is not None:
        _hold_to_branch(request, bound_to, overlay)
        if isinstance(request, wire.HandleRequest):
            _check_file(request.handle, peer, bound_to, overlay)
        if isinstance(request, wire.SnapshotDelete) and overlay.refs.snapshot(request.ref).id not in peer.made:
            raise _outside("to delete a snapshot that this conversation has not made")
    if isinstance(request, wire.BranchBind):
        _check_target(request.pid, peer.caller)


def _hold_to_branch(request: wire.AnyRequest, bound_to: str, overlay: Overlay) -> None:
    if not isinstance(request, _FOR_BOUND):
        raise _outside("that request")
    if isinstance(request, wire.BranchShow | wire.Log):
        _check_own(request.ref, bound_to, overlay)
    elif isinstance(request, wire.SnapshotCreate | wire.SnapshotList | wire.Events | wire.AuditList):
        _check_own(request.branch, bound_to, overlay)
    elif isinstance(request, wire.SnapshotShow):
        _check_snapshot(request.ref, bound_to, overlay)
    elif isinstance(request, wire.Restore):
        _check_own(request.branch, bound_to, overlay)
        _check_history(request.ref, bound_to, overlay)
    elif isinstance(request, wire.FileRequest):
        _check_history(request.branch, bound_to, overlay)
    elif isinstance(request, wire.Diff | wire.DiffPatch | wire.DiffFiles):
        for ref in (request.a, request.b):
            _check_history(ref, bound_to, overlay)


def _check_own(ref: str | None, bound_to: str, overlay: Overlay) -> None:
    if ref is not None and overlay.refs.resolve(ref) != ("branch", bound_to):
        raise _outside(f"{ref!r}")


def _check_history(ref: str | None, bound_to: str, overlay: Overlay) -> None:
    """Its own branch, or a snapshot of that branch's history."""
    if ref is None:
        return
    kind, number = overlay.refs.resolve(ref)
    if (kind == "branch" and number != bound_to) or (kind == "snapshot" and not overlay.snapshots.in_history(bound_to, number)):
        raise _outside(f"{ref!r}")


def _check_snapshot(ref: str, bound_to: str, overlay: Overlay) -> None:
    """A snapshot of its branch's history, also where a branch has the same name."""
    if not overlay.snapshots.in_history(bound_to, overlay.refs.snapshot(ref).id):
        raise _outside(f"{ref!r}")


def _check_file(handle: int, peer: Peer, bound_to: str, overlay: Overlay) -> None:
    """What was opened before the process was bound may be another branch's."""
    opened = peer.files.get(handle)
    if opened is not None and opened.tree_id != bound_to and not overlay.snapshots.in_history(bound_to, opened.tree_id):
        raise _outside("what was opened in another branch")


def _outside(what: str) -> Refusal:
    return Refusal(
        errno.EPERM, "outside-branch", f"{what} is not for a process that is bound to a branch", "ask from an unbound process"
    )


def _check_target(pid: int, caller: Caller) -> None:
    """Only one's own processes; root may bind any."""
    if pid < 1:
        raise Refusal(errno.EINVAL, "bad-pid", f"{pid} is no process number", "give a number above 0")
    try:
        owner = os.stat(f"/proc/{pid}").st_uid
    except FileNotFoundError:
        raise no_process(pid) from None
    if caller.uid not in (0, owner):
        raise Refusal(errno.EPERM, "foreign-process", f"process {pid} belongs to uid {owner}, not to you")


def no_process(pid: int) -> Refusal:
    return Refusal(errno.ESRCH, "no-such-process", f"there is no process {pid}", "it may have ended already")
