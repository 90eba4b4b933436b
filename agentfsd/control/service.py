"""Requests to answers: decoded request and caller in, reply out. Knows neither files nor sockets."""

import errno
import logging
import os
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any, cast

import msgspec

from agentfs_client import wire
from agentfsd.binding.table import Bindings
from agentfsd.control import audit_notes, diff_patches, file_differences, snapshot_tags
from agentfsd.control.authorize import FORBIDDEN, authorize, check_caller, no_process
from agentfsd.control.backstore_usage import backstore_status
from agentfsd.control.committing import CommitHandlers
from agentfsd.control.cooperative import drive
from agentfsd.control.daemon_info import DaemonInfo
from agentfsd.control.event_stream import EventWatcher, stream
from agentfsd.control.forwarding import ForwardHandlers
from agentfsd.control.history import Flush, author_of, wire_snapshot
from agentfsd.control.observing import ObserveHandlers
from agentfsd.control.peer import Peer
from agentfsd.control.progress_channel import ClientGone, ProgressChannel
from agentfsd.control.request_context import RequestContext
from agentfsd.core.branch_events import EventKind
from agentfsd.core.overlay import Overlay
from agentfsd.core.overlay_snapshots import KEPT, RUN
from agentfsd.errors import Refusal
from agentfsd.history.paths import among, parse
from agentfsd.metadata.rows import BranchRow
from agentfsd.telemetry.process_identity import ProcessIdentifier
from agentfsd.telemetry.request_counters import RequestCounters
from agentfsd.types import DEFAULT_BRANCH, BranchView, Change

log = logging.getLogger(__name__)

_SENTENCE_CHARACTERS = 500

_CANCELLED_ON_DISCONNECT = (
    wire.LongRequest,
    wire.Events,
    wire.Top,
    wire.FileDelete,
    wire.FileCount,
)  # given up when the client goes away


async def _nothing(branch_id: str | None = None) -> None:
    return


async def _stay(force: bool) -> None:
    return


def _pass() -> None:
    return


class ControlService(CommitHandlers, ForwardHandlers, ObserveHandlers):
    """``flush(branch id)`` brings the kernel's dirty pages to us before a state is fixed; ``settle`` waits until the kernel has
    dropped what a restore made stale, ``write_back`` also until it has written back what was dirty; ``shutdown(force)`` asks the
    daemon to end; ``measure`` says what it takes; ``open_view(branch id, io)`` makes a mount of one branch."""

    def __init__(
        self,
        overlay: Overlay,
        bindings: Bindings,
        info: DaemonInfo,
        *,
        flush: Flush = _nothing,
        settle: Callable[[], Awaitable[None]] = _nothing,
        write_back: Callable[[], Awaitable[None]] = _nothing,
        shutdown: Callable[[bool], Awaitable[None]] = _stay,
        measure: Callable[[], dict[str, int]] = dict,
        open_view: Callable[[str, str], Awaitable[BranchView]] | None = None,
    ) -> None:
        self.overlay, self.bindings, self.info = overlay, bindings, info
        self._flush, self._settle, self._shutdown, self._measure = flush, settle, shutdown, measure
        self._open_view, self._write_back = open_view, write_back
        self.traffic, self.identify = RequestCounters(), ProcessIdentifier(bindings, overlay)
        self.follow_policy: Callable[[], None] = _pass
        self.connections: Callable[[], list[tuple[str, str, str]]] = list

    async def answer(self, body: bytes, peer: Peer, channel: ProgressChannel | None = None) -> bytes:
        """One encoded request to its encoded reply; never raises for what the request holds. ClientGone."""
        as_json = wire.is_json(body)
        try:
            return wire.encode(await self.handle(_decode(body), peer, channel), json=as_json)
        except ClientGone:
            raise
        except OSError as exc:
            reply = error_reply(exc)
        except sqlite3.Error as exc:
            message = f"the metadata database failed: {exc}"
            log.error("%s", message)
            reply = wire.Error(errno=errno.EIO, code="state-corrupt", message=message, hint="`agentfsd fsck` says more")
        except Exception:  # a fault in one request must not take the daemon down
            log.exception("a control request failed")
            reply = wire.Error(errno=errno.EIO, code="internal", message="the daemon failed on that request; its log says why")
        return wire.encode(reply, json=as_json)

    async def handle(self, request: wire.AnyRequest, peer: Peer, channel: ProgressChannel | None = None) -> wire.AnyReply:
        """OSError (Refusal) for what cannot be done. A long request is given up when its client goes away."""
        if request.version != wire.PROTOCOL_VERSION:
            raise _wrong_version(request.version)
        bound_to = self.bindings.branch_of(peer.caller.pid)
        progress = isinstance(request, wire.LongRequest) and request.progress
        context = RequestContext(peer, bound_to, self._branch_name(bound_to), channel, progress)
        try:
            check_caller(peer, self.info.owner_uid)
            request = snapshot_tags.to_ids(request, bound_to, self.overlay)
            authorize(request, peer, bound_to, self.overlay)
        except Refusal as exc:
            if exc.code in FORBIDDEN:
                self._note(audit_notes.refusal_of(request), context)
            raise
        handler = cast(Any, _HANDLERS[type(request)])
        reply: wire.AnyReply
        with self._counted(request, context):
            if channel is not None and isinstance(request, _CANCELLED_ON_DISCONNECT):
                reply = await channel.hold(lambda: handler(self, request, context))
            else:
                reply = await handler(self, request, context)
        if not isinstance(request, wire.PolicySet):  # which has seen to that itself
            self._note(audit_notes.note_of(request, reply), context)
        if isinstance(request, wire.SnapshotCreate) and isinstance(reply, wire.SnapshotReply):
            peer.made.add(reply.snapshot.id)
        return reply

    def _pin(self, ref: str | None) -> str | None:
        """The id: what was authorized is what is done, though names move while we wait."""
        return None if ref is None else self.overlay.find(ref).id

    # -- the daemon

    async def _hello(self, request: wire.Hello, context: RequestContext) -> wire.HelloOk:
        return wire.HelloOk(
            version=wire.PROTOCOL_VERSION, daemon=self.info.version, branch=context.branch, bound=context.bound_to is not None
        )

    async def _capabilities(self, request: wire.Capabilities, context: RequestContext) -> wire.CapabilitiesReply:
        return wire.CapabilitiesReply(capabilities=self.info.capabilities | {"cap.fd_forwarding": self._forwards()})

    async def _backstore_status(self, request: wire.BackstoreStatus, context: RequestContext) -> wire.BackstoreReply:
        return await backstore_status(self.overlay, self.info)

    async def _fsck(self, request: wire.Fsck, context: RequestContext) -> wire.ProblemsReply:
        return wire.ProblemsReply(problems=await drive(self.overlay.checking(scrub=request.scrub), context))

    async def _shut(self, request: wire.Shutdown, context: RequestContext) -> wire.Done:
        await self._shutdown(request.force)
        return wire.Done(message="unmounting")

    async def _events(self, request: wire.Events, context: RequestContext) -> wire.Done:
        branch_id = self.overlay.branch_row(request.branch).id if request.branch is not None else context.bound_to
        await stream(EventWatcher(self.overlay, branch_id), context, self.bindings)
        return wire.Done(message="the branch has gone")

    # -- branches

    async def _branch_create(self, request: wire.BranchCreate, context: RequestContext) -> wire.BranchReply:
        source = self._pin(request.source)
        await self._flush()
        made = self.overlay.create_branch(request.name, source, temporary=request.temporary)
        context.peer.temporary |= {made.id} if request.temporary else set()
        self._tell("branch-created", made.id, context.caller.pid, name=made.base)
        return wire.BranchReply(branch=self._wire_branch(made))

    async def _branch_list(self, request: wire.BranchList, context: RequestContext) -> wire.BranchesReply:
        return wire.BranchesReply(branches=await self._branches())

    async def _branch_show(self, request: wire.BranchShow, context: RequestContext) -> wire.BranchReply:
        info = self.overlay.branch_info(request.ref or context.branch)
        busy = sum(binding.branch_id == info.id for binding in self.bindings.bindings())
        return wire.BranchReply(branch=self._wire_branch(info, busy))

    async def _branch_rename(self, request: wire.BranchRename, context: RequestContext) -> wire.BranchReply:
        old = self.overlay.branch_row(request.ref).name
        renamed = self.overlay.rename_branch(request.ref, request.new_name)
        self._tell("branch-renamed", renamed.id, context.caller.pid, name=old)
        return wire.BranchReply(branch=self._wire_branch(renamed))

    async def _branch_delete(self, request: wire.BranchDelete, context: RequestContext) -> wire.Done:
        row = self._unused(request.ref)
        self.overlay.delete_branch(row.id)
        self._tell("branch-deleted", row.id, context.caller.pid, branch=row.name)
        await self._settle()
        return wire.Done(message=f"deleted branch {request.ref}")

    async def _discard(self, request: wire.Discard, context: RequestContext) -> wire.Done:
        row = self._unused(request.ref)
        self.overlay.discard(row.id, keep=request.keep)
        self._tell("discard", row.id, context.caller.pid, branch=row.name)
        if not self.overlay.has_tree(row.id):
            self._tell("branch-deleted", row.id, context.caller.pid, branch=row.name)
        await self._settle()
        return wire.Done(message=f"discarded {request.ref}")

    def _unused(self, ref: str) -> BranchRow:
        """A branch in which no process is."""
        row = self.overlay.branch_row(ref)
        pids = [binding.pid for binding in self.bindings.bindings() if binding.branch_id == row.id]
        if pids:
            shown = ", ".join(map(str, pids[:5])) + (" and others" if len(pids) > 5 else "")
            raise Refusal(
                errno.EBUSY, "branch-in-use", f"branch {row.name!r} is in use by {len(pids)} processes ({shown})",
                "end them, or unbind them with `agentfsd unbind PID`",
            )  # fmt: skip
        return row

    async def _bind(self, request: wire.BranchBind, context: RequestContext) -> wire.Done:
        row = self.overlay.branch_row(request.branch)
        if request.pid == self.info.pid:
            raise Refusal(errno.EINVAL, "bad-pid", f"process {request.pid} is the daemon itself", "name another process")
        try:
            self.bindings.on_bind(row.id)  # before anybody sees another branch, the kernel has forgotten what all saw
            await self._settle()
            self.bindings.bind(request.pid, row.id)
            if request.brood and context.caller.pid:
                self.bindings.bind_children(context.caller.pid, row.id)
        except ProcessLookupError:
            raise no_process(request.pid) from None
        self._tell("bound", row.id, request.pid, by=context.caller.pid)
        await self._settle()
        return wire.Done(message=f"process {request.pid} sees {row.name} from now on")

    async def _view_open(self, request: wire.ViewOpen, context: RequestContext) -> wire.ViewReply:
        row = self.overlay.branch_row(request.branch)
        if self._open_view is None or context.channel is None:
            raise Refusal(errno.EOPNOTSUPP, "no-views", "the control file carries no mounts", "ask over the daemon's socket")
        if context.caller.uid != self.info.owner_uid:
            raise Refusal(errno.EACCES, "not-owner", f"only uid {self.info.owner_uid} can enter the namespace of that mount")
        view = await self._open_view(row.id, request.io)
        context.peer.at_end.append(view.leave)
        context.peer.outgoing += [view.mount, *([view.user_namespace] if view.user_namespace is not None else [])]
        await self._settle()  # what the mount had cached of the branch
        return wire.ViewReply(io=view.io, joined=view.joined)

    async def _unbind(self, request: wire.BranchUnbind, context: RequestContext) -> wire.Done:
        branch_id = self.bindings.branch_of(request.pid)
        if not self.bindings.unbind(request.pid):
            raise Refusal(
                errno.ESRCH, "not-bound", f"process {request.pid} has no binding of its own", "`agentfsd bindings` shows them"
            )
        if branch_id is not None:
            self._tell("unbound", branch_id, request.pid, by=context.caller.pid)
        return wire.Done(message=f"process {request.pid} sees {DEFAULT_BRANCH} from now on")

    async def _branch_bindings(self, request: wire.BranchBindings, context: RequestContext) -> wire.BindingsReply:
        return wire.BindingsReply(bindings=self._bindings())

    # -- snapshots

    async def _snapshot_create(self, request: wire.SnapshotCreate, context: RequestContext) -> wire.SnapshotReply:
        branch = self.overlay.branch_row(request.branch or context.branch).id
        await self._flush(branch)
        author, kind = author_of(context), KEPT if request.keep else RUN if request.around_run else ""
        made = self.overlay.create_snapshot(
            branch, request.name, request.tag, author.pid, author.command, kind, temporary=request.temporary
        )
        context.peer.temporary |= {made.id} if request.temporary else set()
        self.overlay.apply_retention(branch)
        self._tell("snapshot", branch, author.pid, name=made.name)
        return wire.SnapshotReply(snapshot=wire_snapshot(made))

    async def _snapshot_list(self, request: wire.SnapshotList, context: RequestContext) -> wire.SnapshotsReply:
        branch = request.branch if context.bound_to is None else context.branch
        found = self.overlay.list_snapshots(branch)
        return wire.SnapshotsReply(snapshots=[wire_snapshot(self.overlay.count_snapshot(info.id)) for info in found])

    async def _snapshot_show(self, request: wire.SnapshotShow, context: RequestContext) -> wire.SnapshotReply:
        return wire.SnapshotReply(snapshot=wire_snapshot(self.overlay.count_snapshot(request.ref)))

    async def _snapshot_delete(self, request: wire.SnapshotDelete, context: RequestContext) -> wire.Done:
        row = self.overlay.snapshot_row(request.ref)
        self.overlay.delete_snapshot(row.id)
        branch = "" if self.overlay.has_tree(row.branch_id) else row.branch
        self._tell("snapshot-deleted", row.branch_id, context.caller.pid, branch=branch, name=row.name)
        await self._settle()
        return wire.Done(message=f"deleted snapshot {row.name}")

    async def _temporary_keep(self, request: wire.TemporaryKeep, context: RequestContext) -> wire.Done:
        self.overlay.keep_temporary(context.peer.temporary)
        context.peer.temporary.clear()
        return wire.Done()

    def leave(self, peer: Peer) -> None:
        """After the last request of a conversation: what it had for the time being goes, unless a process works in it."""
        busy = {binding.branch_id for binding in self.bindings.bindings()} if peer.temporary else set()
        try:
            for row in self.overlay.drop_temporary(peer.temporary - busy):
                kind, branch_id = ("discard", row.id) if isinstance(row, BranchRow) else ("snapshot-deleted", row.branch_id)
                of = row.name if isinstance(row, BranchRow) else row.branch
                name = "" if isinstance(row, BranchRow) else row.name
                self._tell(cast(EventKind, kind), branch_id, peer.caller.pid, branch=of, name=name)
        except (OSError, sqlite3.Error) as exc:  # a full disk, for example: it goes at the next start
            log.warning("what a client has left behind stays for now: %s", exc)

    async def _log(self, request: wire.Log, context: RequestContext) -> wire.SnapshotsReply:
        return wire.SnapshotsReply(snapshots=[wire_snapshot(info) for info in self.overlay.log(request.ref or context.branch)])

    async def _diff(self, request: wire.Diff, context: RequestContext) -> wire.ChangesReply:
        wanted = parse(diff_patches.asked_paths(request))
        a, b = self._pin(request.a), self._pin(request.b or context.branch)
        await self._flush()
        with self.overlay.made_from(b) if request.own and b is not None else nullcontext(self.overlay.side(a)) as old:
            found = await drive(self.overlay.diffing(old, self.overlay.side(b)), context)
        return wire.ChangesReply(changes=[_wire_change(change) for change in among(found, wanted)])

    async def _diff_files(self, request: wire.DiffFiles, context: RequestContext) -> wire.FilesDifferReply:
        a, b = self._pin(request.a), self._pin(request.b or context.branch)
        await self._flush()
        with self.overlay.frozen(a) as old, self.overlay.frozen(b) as new:
            return await drive(file_differences.files(self.overlay.parts, old, new, count=request.count), context)

    async def _diff_patch(self, request: wire.DiffPatch, context: RequestContext) -> wire.PatchesReply:
        diff_patches.check(request)
        a, b = self._pin(request.a), self._pin(request.b or context.branch)
        await self._flush()
        return wire.PatchesReply(patches=await diff_patches.make(self.overlay, a, b, request, context, self.info.state))


def _decode(body: bytes) -> wire.AnyRequest:
    if len(body) > wire.MAX_REQUEST_BYTES:
        raise too_long(len(body))
    if not body:
        raise Refusal(errno.EINVAL, "empty", "the request is empty", 'send msgpack, or JSON such as {"op":"status"}')
    try:
        return wire.decode_request(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        version = wire.claimed_version(body)
        if version != wire.PROTOCOL_VERSION:
            raise _wrong_version(version) from None
        raise Refusal(
            errno.EINVAL, "bad-request", f"that is no request of this protocol: {exc}",
            'one whole message, msgpack, or JSON such as {"op":"status"}',
        ) from None  # fmt: skip


def _wrong_version(version: int) -> Refusal:
    return Refusal(
        errno.EPROTO, "wrong-version", f"this daemon speaks version {wire.PROTOCOL_VERSION}, not {version}",
        "use the agentfsd of the same version",
    )  # fmt: skip


def too_long(size: int) -> Refusal:
    return Refusal(
        errno.EMSGSIZE, "too-long", f"a request of {size} bytes is too long", f"at most {wire.MAX_REQUEST_BYTES} bytes"
    )


def error_reply(exc: OSError) -> wire.Error:
    """The same in the words of the protocol."""
    number = exc.errno or errno.EIO
    if isinstance(exc, Refusal):
        return wire.Error(errno=number, code=exc.code, message=_sentence(exc.message), hint=_sentence(exc.hint))
    message = _sentence(exc.strerror or os.strerror(number))
    return wire.Error(errno=number, code=errno.errorcode.get(number, "EIO"), message=message)


def _sentence(text: str) -> str:
    """One line that can be shown, whatever names and fields the request held."""
    if len(text) > _SENTENCE_CHARACTERS:
        text = text[:_SENTENCE_CHARACTERS] + "..."
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def _wire_change(change: Change) -> wire.Change:
    return wire.Change(
        status=change.status, old_size=change.old_size, new_size=change.new_size, lower_moved=change.lower_moved,
        what=change.what, **wire.path_fields(change.path), **wire.path_fields(change.old_path, "old_path"),
    )  # fmt: skip


_S = ControlService
_HANDLERS: dict[type[wire.Request], object] = {
    wire.Hello: _S._hello, wire.Status: _S._status, wire.Capabilities: _S._capabilities, wire.Fsck: _S._fsck,
    wire.BackstoreStatus: _S._backstore_status, wire.Events: _S._events, wire.Shutdown: _S._shut,
    wire.Top: _S._top, wire.AuditList: _S._audit_list,
    wire.BranchCreate: _S._branch_create, wire.BranchList: _S._branch_list,
    wire.BranchShow: _S._branch_show, wire.BranchRename: _S._branch_rename, wire.BranchDelete: _S._branch_delete,
    wire.Discard: _S._discard, wire.BranchBind: _S._bind, wire.BranchUnbind: _S._unbind,
    wire.BranchBindings: _S._branch_bindings, wire.ViewOpen: _S._view_open, wire.SnapshotCreate: _S._snapshot_create,
    wire.TemporaryKeep: _S._temporary_keep,
    wire.SnapshotList: _S._snapshot_list, wire.SnapshotShow: _S._snapshot_show,
    wire.SnapshotDelete: _S._snapshot_delete, wire.Diff: _S._diff,
    wire.DiffPatch: _S._diff_patch, wire.DiffFiles: _S._diff_files,
    wire.Log: _S._log, wire.Restore: _S._restore, wire.Merge: _S._merge,
    wire.Undo: _S._undo, wire.UndoList: _S._undo_list,
    wire.Prune: _S._prune, wire.CollectGarbage: _S._gc, wire.PolicyGet: _S._policy_get, wire.PolicySet: _S._policy_set,
    wire.Commit: _S._commit, wire.CommitEnd: _S._commit_end,
    wire.FileStat: _S._file_stat, wire.FileList: _S._file_list, wire.FileOpen: _S._file_open, wire.FileRead: _S._file_read,
    wire.FileCreate: _S._file_create, wire.FileWrite: _S._file_write, wire.FileCommit: _S._file_commit,
    wire.FileCount: _S._file_count, wire.FileClose: _S._file_close, wire.FileMkdir: _S._file_mkdir,
    wire.FileRename: _S._file_rename, wire.FileDelete: _S._file_delete, wire.FdOpen: _S._fd_open, wire.FdDup: _S._fd_dup,
    wire.FdSync: _S._fd_sync, wire.InterposeGet: _S._interpose_get, wire.InterposeSet: _S._interpose_set,
}  # fmt: skip
