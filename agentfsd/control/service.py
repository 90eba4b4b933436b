"""Answer requests: take a decoded request and its caller, return a reply. This module sees no file and no socket."""

import contextlib
import errno
import logging
import os
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, cast

import msgspec
import trio

from agentfs_client import wire
from agentfsd.asking.questions import AnswerNeeded
from agentfsd.control import snapshot_tags
from agentfsd.control.asked_branches import asked_branches, seals
from agentfsd.control.audit_notes import noted_refusal
from agentfsd.control.authorization import FORBIDDEN, Claim, check_caller, check_known
from agentfsd.control.daemon_status import status
from agentfsd.control.handler_services import Services
from agentfsd.control.operation_declaration import ControlOperation
from agentfsd.control.operation_table import OPERATIONS
from agentfsd.control.peer import Peer
from agentfsd.control.progress_channel import ClientGone, ProgressChannel
from agentfsd.control.request_context import RequestContext
from agentfsd.control.request_metering import metered
from agentfsd.core.branch_events import EventKind
from agentfsd.core.rule_checks import RuledCaller
from agentfsd.domain_errors import Missing, Refusal
from agentfsd.metadata.rows import BranchRow

log = logging.getLogger(__name__)

_SENTENCE_CHARACTERS = 500


class ControlService:
    """Answers requests as their declarations say.

    Attributes:
        services: What handlers get. It may be replaced as the daemon is put together.
        under_way: How many requests are carried out now, without those that wait for something to happen.
    """

    def __init__(self, services: Services) -> None:
        self.services = services
        self.under_way = 0
        self._is_idle = trio.Event()

    async def answer(self, body: bytes, peer: Peer, channel: ProgressChannel | None = None) -> bytes:
        """Answer one encoded request. No content of a request makes this raise another exception than ClientGone.

        Args:
            body: The request in msgpack or JSON; the reply has the same encoding.
            peer: The caller.
            channel: The connection to the client during the work; None on the control file.

        Returns:
            The encoded reply.

        Raises:
            ClientGone: The client closed its end, and the request was cancelled.
        """
        as_json = wire.is_json(body)
        try:
            return wire.encode(await self.handle(_decode(body), peer, channel), json=as_json)
        except ClientGone:
            raise
        except OSError as exc:
            self._suggest(exc, peer)
            reply = error_reply(exc)
        except sqlite3.Error as exc:
            message = f"the metadata database failed: {exc}"
            log.error("%s", message)
            reply = wire.Error(errno=errno.EIO, code="state-corrupt", message=message, hint="`agentfsd fsck` says more")
        except Exception:  # a fault in one request must not take the daemon down
            log.exception("a control request failed")
            reply = wire.Error(errno=errno.EIO, code="internal", message="the daemon failed on that request; its log says why")
        return wire.encode(reply, json=as_json)

    def _suggest(self, exc: OSError, peer: Peer) -> None:
        """Name what the caller may have meant by a ref, unless it may not know of other branches."""
        services = self.services
        if isinstance(exc, Missing) and services.bindings.branch_of(peer.caller.pid) is None:
            like = services.overlay.refs.like(exc.ref)
            exc.message += f"; did you mean {like!r}?" if like else ""

    async def handle(self, request: wire.Request, peer: Peer, channel: ProgressChannel | None = None) -> wire.Reply:
        """Authorize a request, call its handler, and make its entry in the audit trail.

        Raises:
            OSError: The request failed; a Refusal says why.
            ClientGone: See answer().
        """
        if request.version != wire.PROTOCOL_VERSION:
            raise _wrong_version(request.version)
        services, operation = self.services, OPERATIONS[type(request)]
        bound_to = services.bindings.branch_of(peer.caller.pid)
        progress = isinstance(request, wire.LongRequest) and request.progress
        ruled = _ruled(services, peer, bound_to or peer.obeys) if services.overlay.rules.active else None
        context = RequestContext(peer, bound_to, services.branch_name(bound_to), channel, progress, ruled)
        try:
            check_caller(peer, services.info.owner_uid)
            check_known(peer.caller.pid, bound_to)
            request = snapshot_tags.to_ids(request, operation.refs, bound_to, services.overlay)
            operation.permission(request, Claim(peer, bound_to, services.overlay))
        except Refusal as exc:
            if exc.code in FORBIDDEN:
                services.note(noted_refusal(request), context)
            raise
        if services.runs is not None and services.runs.live:
            await services.runs.look(asked_branches(request, bound_to, services.overlay), own=seals(request))
        with metered(services, operation, request, context), self._counted(operation):
            work = _with_answers(lambda: operation.handler(services, request, context))
            if channel is not None and (operation.cancellable or (ruled is not None and ruled.rules.asks)):
                reply = await channel.hold(work)
            else:
                reply = await work()
            await services.push()
        services.note(operation.note(request, reply), context)
        return reply

    @contextlib.contextmanager
    def _counted(self, operation: ControlOperation[Any]) -> Iterator[None]:
        self.under_way += not operation.waits
        try:
            yield
        finally:
            self.under_way -= not operation.waits
            if not self.under_way:
                self._is_idle.set()

    async def idle(self) -> None:
        """Return when no request is carried out any more."""
        while self.under_way:
            self._is_idle = trio.Event()
            await self._is_idle.wait()

    async def status(self, bound_to: str | None) -> wire.StatusReply:
        """Return the status for a process that is bound to the branch with that id, or to none."""
        return await status(self.services, bound_to)

    def leave(self, peer: Peer) -> None:
        """End a conversation: remove its temporary branches and snapshots, except a branch in which a process works."""
        busy = {binding.branch_id for binding in self.services.bindings.bindings()} if peer.temporary else set()
        try:
            for row in self.services.overlay.temporary.drop(peer.temporary - busy):
                kind, branch_id = ("discard", row.id) if isinstance(row, BranchRow) else ("snapshot-deleted", row.branch_id)
                of = row.name if isinstance(row, BranchRow) else row.branch
                name = "" if isinstance(row, BranchRow) else row.name
                self.services.tell(cast(EventKind, kind), branch_id, peer.caller.pid, branch=of, name=name)
        except (OSError, sqlite3.Error) as exc:  # a full disk, for example: it goes at the next start
            log.warning("what a client has left behind stays for now: %s", exc)


def _ruled(services: Services, peer: Peer, branch_id: str | None) -> RuledCaller | None:
    rules, questions = services.overlay.rules, services.questions
    holding = rules.for_everybody if branch_id is None else rules.for_branch(branch_id)
    if holding is None:
        return None
    asked_in = branch_id or services.overlay.default_id
    return RuledCaller(holding, lambda path, what: questions.check(peer.caller.pid, asked_in, path, what))


def _with_answers(work: Callable[[], Awaitable[wire.Reply]]) -> Callable[[], Awaitable[wire.Reply]]:
    """Return *work*, begun again whenever somebody has answered a question that it needs."""

    async def repeated() -> wire.Reply:
        while True:
            try:
                return await work()
            except AnswerNeeded as exc:
                question = exc
            await question.over()

    return repeated


def _decode(body: bytes) -> wire.Request:
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
            errno.EINVAL, "bad-request", f"this is not a request of this protocol: {exc}",
            'one whole message, msgpack, or JSON such as {"op":"status"}',
        ) from None  # fmt: skip


def _wrong_version(version: int) -> Refusal:
    return Refusal(
        errno.EPROTO, "wrong-version", f"this daemon speaks version {wire.PROTOCOL_VERSION}, not {version}",
        "use the agentfsd of the same version",
    )  # fmt: skip


def too_long(size: int) -> Refusal:
    """Return the refusal of a request of that many bytes."""
    return Refusal(
        errno.EMSGSIZE, "too-long", f"a request of {size} bytes is too long", f"at most {wire.MAX_REQUEST_BYTES} bytes"
    )


def error_reply(exc: OSError) -> wire.Error:
    """Return the reply for an exception."""
    number = exc.errno or errno.EIO
    if isinstance(exc, Refusal):
        return wire.Error(errno=number, code=exc.code, message=_sentence(exc.message), hint=_sentence(exc.hint))
    message = _sentence(exc.strerror or os.strerror(number))
    return wire.Error(errno=number, code=errno.errorcode.get(number, "EIO"), message=message)


def _sentence(text: str) -> str:
    """Make one printable line of a text that may contain names and fields of the request."""
    if len(text) > _SENTENCE_CHARACTERS:
        text = text[:_SENTENCE_CHARACTERS] + "..."
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)
