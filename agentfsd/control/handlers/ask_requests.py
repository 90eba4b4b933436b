"""Requests about processes that wait for an answer: which there are, and the answer. Nobody in a branch may answer."""

import math
import re

import msgspec
import trio

from agentfs_client import wire
from agentfsd.asking.questions import PendingQuestion
from agentfsd.control.audit_notes import changes_nothing, noted_answer
from agentfsd.control.authorization import own_branch, unbound_only
from agentfsd.control.handler_services import Services
from agentfsd.control.operation_declaration import control_operation
from agentfsd.control.request_context import RequestContext

_WAIT_S = 1.0  # on the control file, where no signal ends a process that waits for its reply


@control_operation(wire.AsksList, permission=own_branch("branch"), note=changes_nothing, cancellable=True, waits=True)
async def list_asks(services: Services, request: wire.AsksList, context: RequestContext) -> wire.AsksReply:
    branch_id = services.overlay.refs.branch(request.branch).id if request.branch is not None else context.bound_to
    while True:
        waiting = services.questions.waiting(branch_id)
        if not request.wait or any(question.id not in request.known for question in waiting):
            return wire.AsksReply(asks=[_wire_ask(services, question) for question in waiting])
        with trio.move_on_after(math.inf if context.channel is not None else _WAIT_S) as limit:
            await services.questions.changed()
        if limit.cancelled_caught:
            request = msgspec.structs.replace(request, wait=False)


@control_operation(wire.AsksAnswer, permission=unbound_only, note=noted_answer)
async def answer_ask(services: Services, request: wire.AsksAnswer, context: RequestContext) -> wire.AsksReply:
    questions = services.questions
    question = questions.answer(request.id, allowed=request.allow, for_session=request.lasts == "session")
    if request.lasts == "rule":
        verb = "allow" if request.allow else "deny"
        services.overlay.rules.change(question.branch_id, [f"{verb} /{_literal(question.path)}"])
    await services.settle()
    return wire.AsksReply(asks=[_wire_ask(services, question)])


def _literal(path: bytes) -> str:
    """Return a pattern that matches this path alone."""
    return re.sub(r"([*?\\[\\\\ ])", r"\\\1", path.decode("utf-8", "backslashreplace"))


def _wire_ask(services: Services, question: PendingQuestion) -> wire.PathQuestion:
    return wire.PathQuestion(
        id=question.id, branch=services.branch_name(question.branch_id), pid=question.pid, command=question.command,
        path=question.path.decode("utf-8", "backslashreplace"), what=question.what, asked_ns=question.asked_ns,
    )  # fmt: skip
