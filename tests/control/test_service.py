"""The control plane without a mount: every request with wrong input is one clear sentence and changes nothing."""

import json
import os
import subprocess
from collections.abc import Iterator

import msgspec
import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentfs_client import wire
from agentfsd.binding.table import Bindings
from agentfsd.control.control_file import ControlFile
from agentfsd.control.daemon_info import DaemonInfo
from agentfsd.control.handlers import ask_requests
from agentfsd.control.peer import Peer
from agentfsd.control.service import ControlService
from agentfsd.core import directory_entries
from agentfsd.core.overlay import Overlay
from agentfsd.types import Caller
from tests.control.serving import services_for
from tests.overlays import OWNER, Opened

ME = Caller(os.getpid(), os.geteuid(), os.getegid())
STRANGER = Caller(os.getpid(), 54321, 54321)


@pytest.fixture
def service(opened: Opened) -> Iterator[ControlService]:
    opened.overlay.branches.create("one")
    opened.overlay.branches.create("two")
    opened.write("f", b"content", "one")
    opened.overlay.snapshots.create("one", "s1")
    opened.overlay.snapshots.create("two", "s2")
    bindings = Bindings()
    info = DaemonInfo("0", 0, "/lower", "/mnt", str(opened.base), "pyfuse3", "hostfs", 0, os.geteuid())
    yield ControlService(services_for(opened.overlay, bindings, info))
    bindings.close()


@pytest.fixture
def child() -> Iterator[int]:
    process = subprocess.Popen(["sleep", "60"])
    yield process.pid
    process.kill()
    process.wait()


def ask(service: ControlService, request: wire.Request | bytes, caller: Caller = ME) -> wire.Reply:
    return wire.decode_reply(ask_raw(service, request if isinstance(request, bytes) else wire.encode(request), caller))


def ask_raw(service: ControlService, body: bytes, caller: Caller = ME) -> bytes:
    peer = Peer(caller)
    try:
        return trio.run(service.answer, body, peer)
    finally:
        peer.close()


def refused(service: ControlService, request: wire.Request | bytes, caller: Caller = ME) -> str:
    before = state_of(service.services.overlay)
    reply = ask(service, request, caller)
    assert isinstance(reply, wire.Error), reply
    assert reply.errno > 0
    assert reply.message
    assert "\n" not in reply.message
    assert "Traceback" not in reply.message
    assert state_of(service.services.overlay) == before
    return reply.code


def state_of(overlay: Overlay) -> object:
    return overlay.branches.all(), overlay.snapshots.all(), overlay.fsck()


DEAD_PID = 2**22 - 1

WRONG: dict[str, tuple[str, wire.Request]] = {
    "create-bad-name": ("bad-name", wire.BranchCreate(name="../x")),
    "create-long-name": ("bad-name", wire.BranchCreate(name="x" * 200)),
    "create-taken": ("branch-exists", wire.BranchCreate(name="one")),
    "create-from-nothing": ("no-such-branch or snapshot", wire.BranchCreate(name="new", source="missing")),
    "show-missing": ("no-such-branch", wire.BranchShow(ref="missing")),
    "rename-missing": ("no-such-branch", wire.BranchRename(ref="missing", new_name="x")),
    "rename-taken": ("branch-exists", wire.BranchRename(ref="one", new_name="two")),
    "rename-bad": ("bad-name", wire.BranchRename(ref="one", new_name="a b")),
    "rename-main": ("default-branch", wire.BranchRename(ref="main", new_name="other")),
    "delete-missing": ("no-such-branch", wire.BranchDelete(ref="missing")),
    "delete-main": ("default-branch", wire.BranchDelete(ref="main")),
    "delete-changed": ("branch-has-changes", wire.BranchDelete(ref="one")),
    "discard-missing": ("no-such-branch", wire.Discard(ref="missing")),
    "discard-snapshot": ("no-such-branch", wire.Discard(ref="s1")),
    "bind-dead": ("no-such-process", wire.BranchBind(pid=DEAD_PID, branch="one")),
    "bind-zero": ("bad-pid", wire.BranchBind(pid=0, branch="one")),
    "bind-negative": ("bad-pid", wire.BranchBind(pid=-1, branch="one")),
    "bind-missing-branch": ("no-such-branch", wire.BranchBind(pid=os.getpid(), branch="missing")),
    "unbind-unbound": ("not-bound", wire.BranchUnbind(pid=os.getpid())),
    "unbind-dead": ("not-bound", wire.BranchUnbind(pid=DEAD_PID)),
    "snapshot-missing-branch": ("no-such-branch", wire.SnapshotCreate(branch="missing")),
    "snapshot-bad-name": ("bad-name", wire.SnapshotCreate(name="-")),
    "snapshot-taken": ("snapshot-exists", wire.SnapshotCreate(name="s1")),
    "snapshot-list-missing": ("no-such-branch", wire.SnapshotList(branch="missing")),
    "snapshot-show-missing": ("no-such-snapshot", wire.SnapshotShow(ref="missing")),
    "snapshot-delete-missing": ("no-such-snapshot", wire.SnapshotDelete(ref="missing")),
    "step-missing-branch": ("no-such-branch", wire.StepTake(session="s", branch="missing")),
    "step-of-no-session": ("invalid", wire.StepTake(session="")),
    "step-too-long": ("invalid", wire.StepTake(session="s", title="x" * 1001)),
    "step-none": ("no-such-step", wire.StepChanges(session="s")),
    "step-list-missing": ("no-such-branch", wire.StepList(branch="missing")),
    "diff-missing": ("no-such-branch or snapshot", wire.Diff(b="missing")),
    "patch-missing": ("no-such-branch or snapshot", wire.DiffPatch(b="missing")),
    "patch-outside": ("bad-path", wire.DiffPatch(b="one", paths=["../x"])),
    "patch-absolute": ("bad-path", wire.DiffPatch(b="one", raw_paths=[b"/etc"])),
    "patch-context": ("invalid", wire.DiffPatch(b="one", context_lines=-1)),
    "diff-outside": ("bad-path", wire.Diff(b="one", paths=["a/../../x"])),
    "diff-missing-a": ("no-such-branch or snapshot", wire.Diff(a="missing", b="one")),
    "log-missing": ("no-such-branch or snapshot", wire.Log(ref="missing")),
    "restore-missing": ("no-such-branch or snapshot", wire.Restore(ref="missing")),
    "restore-missing-branch": ("no-such-branch", wire.Restore(ref="s1", branch="missing")),
    "restore-itself": ("invalid", wire.Restore(ref="one", branch="one")),
    "events-by-file": ("socket-only", wire.Events()),
    "version": ("wrong-version", wire.Status(version=99)),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_request_is_refused_in_one_sentence(service: ControlService, case: str) -> None:
    code, request = WRONG[case]
    assert refused(service, request) == code


GARBAGE: dict[str, tuple[str, bytes]] = {
    "empty": ("empty", b""),
    "no-message": ("bad-request", b"hello\n"),
    "truncated-json": ("bad-request", b'{"op":"branch.cre'),
    "truncated-msgpack": ("bad-request", wire.encode(wire.BranchCreate(name="new"))[:-2]),
    "unknown-op": ("bad-request", b'{"op":"rm -rf"}'),
    "no-op": ("bad-request", b"{}"),
    "unknown-field": ("bad-request", b'{"op":"status","extra":1}'),
    "wrong-type": ("bad-request", b'{"op":"branch.create","name":7}'),
    "missing-field": ("bad-request", b'{"op":"branch.create"}'),
    "not-utf8": ("bad-request", b'{"op":"branch.create","name":"\xff"}'),
    "list": ("bad-request", msgspec.msgpack.encode([1, 2])),
    "oversized": ("too-long", b'{"op":"branch.create","name":"' + b"x" * wire.MAX_REQUEST_BYTES + b'"}'),
}


@pytest.mark.parametrize("case", GARBAGE)
def test_garbage_is_refused_in_one_sentence(service: ControlService, case: str) -> None:
    code, body = GARBAGE[case]
    assert refused(service, body) == code


@given(body=st.binary(max_size=200) | st.text(max_size=50).map(lambda text: b'{"op":"' + text.encode() + b'"}'))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=300)
def test_random_bytes_always_get_a_reply(service: ControlService, body: bytes) -> None:
    ask(service, body)


def test_json_is_answered_in_json_and_msgpack_in_msgpack(service: ControlService) -> None:
    answer = ask_raw(service, b'{"op":"branch.list"}')
    assert [branch["name"] for branch in json.loads(answer)["branches"]] == ["main", "one", "two"]
    assert answer.endswith(b"\n")
    assert ask_raw(service, wire.encode(wire.BranchList()))[:1] != b"{"


# -- who may


def test_a_stranger_may_nothing(service: ControlService) -> None:
    for request in (wire.Hello(), wire.Status(), wire.SnapshotCreate(), wire.Shutdown()):
        assert refused(service, request, STRANGER) == "not-owner"


def test_foreign_process_is_not_bound_but_by_root(service: ControlService, child: int) -> None:
    somebody = Caller(0, 54321, 54321)
    service.services.info.owner_uid = 54321
    assert refused(service, wire.BranchBind(pid=child, branch="one"), somebody) == "foreign-process"
    assert isinstance(ask(service, wire.BranchBind(pid=child, branch="one"), Caller(0, 0, 0)), wire.Done)


def test_the_daemon_itself_is_not_bound(service: ControlService, child: int) -> None:
    service.services.info.pid = child
    assert refused(service, wire.BranchBind(pid=child, branch="one")) == "bad-pid"


BOUND_MAY: list[wire.Request] = [
    wire.Hello(), wire.Status(), wire.Capabilities(), wire.BranchShow(), wire.BranchShow(ref="one"), wire.SnapshotCreate(),
    wire.SnapshotList(), wire.SnapshotShow(ref="s1"), wire.Diff(), wire.Diff(a="s1", b="one"), wire.Log(),
    wire.DiffPatch(), wire.DiffPatch(a="s1", b="one"),
    wire.Restore(ref="s1"), wire.StepTake(session="s"), wire.StepTake(session="s", branch="one", prompt=True), wire.StepList(),
]  # fmt: skip

BOUND_MAY_NOT: list[wire.Request] = [
    wire.BranchList(), wire.BranchCreate(name="x"), wire.BranchRename(ref="one", new_name="x"), wire.BranchDelete(ref="one"),
    wire.Discard(ref="one"), wire.BranchBind(pid=1, branch="one"), wire.BranchUnbind(pid=1), wire.BranchBindings(),
    wire.SnapshotDelete(ref="s1"), wire.BranchShow(ref="two"), wire.SnapshotCreate(branch="two"),
    wire.SnapshotShow(ref="s2"), wire.Diff(b="two"), wire.Diff(a="main", b="one"), wire.Log(ref="two"),
    wire.DiffPatch(b="two"), wire.DiffPatch(a="main", b="one"),
    wire.Restore(ref="s2"), wire.Restore(ref="s1", branch="two"), wire.Fsck(), wire.Shutdown(), wire.Events(branch="two"),
    wire.BackstoreStatus(), wire.StepTake(session="s", branch="two"), wire.StepList(branch="two"),
    wire.StepChanges(session="s", branch="two"),
]  # fmt: skip


def test_backstore_status_counts_contents_and_what_is_to_be_freed(service: ControlService, opened: Opened) -> None:
    opened.write("large", b"x" * 8192, "two")
    opened.overlay.branches.discard("two", keep=False)
    found = ask(service, wire.BackstoreStatus())
    assert isinstance(found, wire.BackstoreReply)
    assert (found.objects, found.garbage_objects, found.garbage_bytes) == (2, 1, 8192)
    opened.reap()
    found = ask(service, wire.BackstoreStatus())
    assert isinstance(found, wire.BackstoreReply)
    assert (found.kind, found.objects, found.garbage_objects, found.garbage_bytes) == ("hostfs", 1, 0, 0)


def test_a_bound_process_sees_the_steps_of_its_branch_alone(service: ControlService, child: int) -> None:
    for branch in ("one", "two"):
        ask(service, wire.StepTake(session=f"of {branch}", branch=branch))
    ask(service, wire.BranchBind(pid=child, branch="one"))
    found = ask(service, wire.StepList(), Caller(child, ME.uid, ME.gid))
    assert isinstance(found, wire.StepsReply)
    assert [step.session for step in found.steps] == ["of one"]
    assert refused(service, wire.StepChanges(session="of two"), Caller(child, ME.uid, ME.gid)) == "no-such-step"


def test_the_changes_since_a_step_are_counted_and_some_are_listed(service: ControlService, opened: Opened) -> None:
    opened.write("gone", b"x", "one")
    ask(service, wire.StepTake(session="s", branch="one", key="call"))
    for name in ("a", "b", "c"):
        opened.write(name, b"new", "one")
    tree = opened.tree("one")
    directory_entries.unlink(tree, tree.walk(b""), b"gone")
    ask(service, wire.StepTake(session="s", branch="one", key="later"))
    found = ask(service, wire.StepChanges(session="s", branch="one", key="call", most=2))
    assert isinstance(found, wire.StepChangesReply)
    assert (found.counts, found.step.key, found.replaced) == ({"A": 3, "D": 1}, "call", False)
    assert [(change.status, change.path) for change in found.changes] == [("D", "gone"), ("A", "a")]
    found = ask(service, wire.StepChanges(session="s", branch="one"))
    assert isinstance(found, wire.StepChangesReply) and found.counts == {}


@pytest.mark.parametrize("request_", BOUND_MAY, ids=repr)
def test_a_bound_process_may_act_on_its_branch(service: ControlService, child: int, request_: wire.Request) -> None:
    ask(service, wire.BranchBind(pid=child, branch="one"))
    reply = ask(service, request_, Caller(child, ME.uid, ME.gid))
    assert not isinstance(reply, wire.Error), reply


@pytest.mark.parametrize("request_", BOUND_MAY_NOT, ids=repr)
def test_a_bound_process_cannot_act_outside_its_branch(service: ControlService, child: int, request_: wire.Request) -> None:
    ask(service, wire.BranchBind(pid=child, branch="one"))
    assert refused(service, request_, Caller(child, ME.uid, ME.gid)) == "outside-branch"


def test_a_bound_process_deletes_only_what_its_conversation_has_made(service: ControlService, child: int) -> None:
    service.services.bindings.bind(child, service.services.overlay.refs.branch("one").id)
    bound = Caller(child, ME.uid, ME.gid)
    assert refused(service, wire.SnapshotDelete(ref="s1"), bound) == "outside-branch"
    peers = Peer(bound), Peer(bound)

    def ask_of(peer: Peer, request: wire.Request) -> wire.Reply:
        return wire.decode_reply(trio.run(service.answer, wire.encode(request), peer))

    assert isinstance(ask_of(peers[0], wire.SnapshotCreate(name="mine")), wire.SnapshotReply)
    assert isinstance(ask_of(peers[1], wire.SnapshotDelete(ref="mine")), wire.Error)
    assert isinstance(ask_of(peers[0], wire.SnapshotDelete(ref="mine")), wire.Done)
    for peer in peers:
        peer.close()


def test_a_bound_process_is_told_of_its_own_branch_only(service: ControlService, child: int) -> None:
    ask(service, wire.BranchBind(pid=child, branch="one"))
    bound = Caller(child, ME.uid, ME.gid)
    status = ask(service, wire.Status(), bound)
    assert isinstance(status, wire.StatusReply)
    assert [branch.name for branch in status.branches] == ["one"]
    assert b"two" not in trio.run(ControlFile(service).status_text, bound)
    snapshots = ask(service, wire.SnapshotList(branch="two"), bound)
    assert isinstance(snapshots, wire.Error)


def test_a_branch_in_use_is_not_discarded(service: ControlService, child: int) -> None:
    ask(service, wire.BranchBind(pid=child, branch="one"))
    assert refused(service, wire.Discard(ref="one")) == "branch-in-use"
    refusal = ask(service, wire.Discard(ref="one"))
    assert isinstance(refusal, wire.Error) and f"in use by 1 process ({child})" in refusal.message
    assert isinstance(ask(service, wire.BranchUnbind(pid=child)), wire.Done)
    assert isinstance(ask(service, wire.Discard(ref="one")), wire.Done)


def test_renaming_a_branch_keeps_its_processes(service: ControlService, child: int) -> None:
    ask(service, wire.BranchBind(pid=child, branch="one"))
    ask(service, wire.BranchRename(ref="one", new_name="first"))
    found = ask(service, wire.BranchBindings())
    assert isinstance(found, wire.BindingsReply)
    assert [(binding.pid, binding.branch) for binding in found.bindings] == [(child, "first")]


def test_a_fault_in_a_handler_is_an_answer_too(service: ControlService, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(service.services.overlay, "fsck_in_steps", fail)
    reply = ask(service, wire.Fsck())
    assert isinstance(reply, wire.Error)
    assert reply.code == "internal"


# -- the control file


def test_a_second_request_replaces_an_unread_reply(service: ControlService) -> None:
    channel = ControlFile(service).open(ME)
    trio.run(channel.write, b'{"op":"status"}')
    trio.run(channel.write, b'{"op":"hello"}')
    parts: list[bytes] = []
    while part := channel.read(7):
        parts.append(part)
    assert json.loads(b"".join(parts))["op"] == "hello.ok"
    assert channel.read(100) == b""


def test_paths_that_are_no_utf8_are_exact_in_both_encodings(service: ControlService, opened: Opened) -> None:
    name, tree = b"\xff\nname", opened.tree("two")
    directory_entries.make(tree, tree.root, name, 0o100644, OWNER)
    for json_ in (True, False):
        body = wire.encode(wire.Diff(b="two"), json=json_)
        reply = wire.decode_reply(ask_raw(service, body))
        assert isinstance(reply, wire.ChangesReply)
        assert [change.path_bytes for change in reply.changes] == [name]


def test_who_waits_for_questions_on_the_control_file_is_answered_soon(
    service: ControlService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No signal ends a write(2) there: a process that is told to end would wait for the next question."""
    monkeypatch.setattr(ask_requests, "_WAIT_S", 0.01)

    async def wait() -> bytes:
        with trio.fail_after(30):
            return await service.answer(wire.encode(wire.AsksList(wait=True)), Peer(ME))

    assert wire.decode_reply(trio.run(wait)) == wire.AsksReply(asks=[])
