"""The declarations of control operations: one for each request, and nothing more open than it should be."""

from typing import get_args

import pytest

from agentfs_client import replies, wire
from agentfs_client.repeatable import REPEATABLE
from agentfsd.control import audit_notes
from agentfsd.control.authorization import Claim
from agentfsd.control.operation_table import OPERATIONS
from agentfsd.control.peer import Peer
from agentfsd.core import branch_events
from agentfsd.domain_errors import Refusal
from agentfsd.types import Caller
from tests.overlays import Opened

FOR_BOUND_PROCESSES = {
    "hello", "status", "capabilities", "top", "events", "audit.list", "refusal.list", "interpose.get",
    "branch.show", "snapshot.create", "snapshot.list", "snapshot.show", "snapshot.delete", "log", "restore",
    "diff", "diff.files", "diff.patch", "fd.open", "fd.dup", "fd.sync",
    "file.stat", "file.list", "file.count", "file.open", "file.read", "file.create", "file.write", "file.commit", "file.close",
    "file.mkdir", "file.rename", "file.delete", "file.contents", "file.listings",
    "rules.list", "rules.test", "rules.obey", "asks.list", "run.list", "step.take", "step.list", "step.changes",
    "conflict.list", "conflict.show", "conflict.resolve",
    "note.add", "note.list", "note.answer", "note.resolve", "note.remove", "note.tell",
}  # fmt: skip


DONE_ONCE = {  # a client does not repeat these after the daemon has died
    "asks.answer", "branch.create", "branch.delete", "branch.rename", "commit", "commit.end", "conflict.resolve", "discard",
    "events", "fd.dup", "fd.open", "fd.sync", "file.close", "file.commit", "file.create", "file.delete", "file.mkdir",
    "file.open", "file.read", "file.rename", "file.write", "gc", "merge", "merge.end", "note.add", "note.answer", "note.remove",
    "note.tell", "prune", "rebase", "restart", "restore",
    "rules.change", "run.add", "shutdown", "snapshot.create", "snapshot.delete", "step.take", "temporary.keep", "undo",
}  # fmt: skip


def tag(request: type[wire.Request]) -> str:
    return str(request.__struct_config__.tag)


def test_every_request_has_a_declared_operation_and_every_operation_a_request() -> None:
    assert set(OPERATIONS) == set(wire.REQUEST_TYPES)
    assert len({tag(request) for request in wire.REQUEST_TYPES}) == len(wire.REQUEST_TYPES) > 50


def test_every_request_is_said_to_be_repeatable_or_not() -> None:
    assert {tag(request) for request in wire.REQUEST_TYPES} - {tag(request) for request in REPEATABLE} == DONE_ONCE


def test_client_knows_the_kinds_of_events() -> None:
    assert set(get_args(replies.EventKind)) == {*get_args(branch_events.EventKind), "lost"}


@pytest.mark.parametrize("request_type", OPERATIONS, ids=tag)
def test_operation_has_a_handler_a_permission_and_a_note(request_type: type[wire.Request]) -> None:
    operation = OPERATIONS[request_type]
    assert operation.request is request_type
    assert operation.handler.__annotations__["request"] is request_type
    assert callable(operation.permission)
    assert operation.note.__module__ == audit_notes.__name__
    assert operation.cancellable or not issubclass(request_type, wire.LongRequest)
    assert operation.cancellable or not operation.waits


@pytest.mark.parametrize("request_type", OPERATIONS, ids=tag)
def test_snapshot_refs_name_fields_of_the_request(request_type: type[wire.Request]) -> None:
    refs = OPERATIONS[request_type].refs
    assert refs is None or {*refs.fields, *refs.branches} <= set(request_type.__struct_fields__)
    assert refs is None or refs.fields


@pytest.mark.parametrize("request_type", [one for one in OPERATIONS if tag(one) not in FOR_BOUND_PROCESSES], ids=tag)
def test_a_bound_process_is_refused_what_is_not_meant_for_it(request_type: type[wire.Request], opened: Opened) -> None:
    claim = Claim(Peer(Caller(0, 0, 0)), opened.overlay.default_id, opened.overlay)
    with pytest.raises(Refusal, match="bound to a branch"):
        OPERATIONS[request_type].permission(object(), claim)  # whatever the request says
