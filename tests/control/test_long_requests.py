"""Requests that take long: they tell how far they are, others go on meanwhile, and they end with their client."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
import trio

from agentfs_client import wire
from agentfs_client.async_control import AsyncControlClient
from agentfs_client.control import ControlClient
from agentfs_client.errors import AgentFSError, DaemonGoneError
from agentfsd.control.control_file import ControlFile
from agentfsd.control.cooperative import cancelled, drive
from agentfsd.control.handler_services import Services
from agentfsd.control.operation_table import OPERATIONS
from agentfsd.control.peer import Peer
from agentfsd.control.request_context import RequestContext
from agentfsd.control.service import ControlService
from agentfsd.types import Caller
from tests.control.serving import serving

STEPS = 200
WAIT_S = 10


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, ControlService]]:
    with serving(tmp_path) as found:
        yield found


class Work:
    """What fsck is replaced with: STEPS steps of 2 ms, and notes of what became of them."""

    def __init__(self) -> None:
        self.begun, self.ended = threading.Event(), threading.Event()
        self.done = 0

    def steps(self, *, scrub: bool = False) -> Iterator[tuple[int, int, str]]:
        self.begun.set()
        try:
            for self.done in range(1, STEPS + 1):
                time.sleep(0.002)
                yield self.done, STEPS, f"step {self.done}"
        finally:
            self.ended.set()
        return ["worked"]  # type: ignore[return-value]


@pytest.fixture
def work(served: tuple[str, ControlService], monkeypatch: pytest.MonkeyPatch) -> Work:
    made = Work()
    monkeypatch.setattr(served[1].services.overlay, "fsck_in_steps", made.steps)
    return made


def test_progress_comes_before_the_reply_and_not_too_often(served: tuple[str, ControlService], work: Work) -> None:
    told: list[wire.Progress] = []
    with ControlClient.connect(served[0], WAIT_S) as daemon:
        began = time.monotonic()
        assert daemon.fsck(told.append) == ["worked"]
        took_s = time.monotonic() - began
        assert daemon.status().branches
    assert 2 <= len(told) <= took_s / 0.1 + 1
    assert [found.done for found in told] == sorted({found.done for found in told})
    assert {found.total for found in told} == {STEPS}
    assert told[0].what == f"step {told[0].done}"


def test_who_does_not_ask_for_progress_gets_the_reply_alone(served: tuple[str, ControlService], work: Work) -> None:
    with ControlClient.connect(served[0], WAIT_S) as daemon:
        assert isinstance(wire.decode_reply(daemon._transport.exchange(wire.encode(wire.Fsck()))), wire.ProblemsReply)


def test_the_control_file_gives_the_reply_alone(served: tuple[str, ControlService], work: Work) -> None:
    channel = ControlFile(served[1]).open(Caller(os.getpid(), os.geteuid(), os.getegid()))
    trio.run(channel.write, wire.encode(wire.Fsck(progress=True)))
    assert wire.decode_reply(channel.read(1 << 20)) == wire.ProblemsReply(problems=["worked"])
    channel.close()


def test_others_are_answered_meanwhile(served: tuple[str, ControlService], work: Work) -> None:
    def ask() -> None:
        with ControlClient.connect(served[0], WAIT_S) as daemon:
            daemon.fsck()

    thread = threading.Thread(target=ask)
    thread.start()
    assert work.begun.wait(WAIT_S)
    with ControlClient.connect(served[0], WAIT_S) as daemon:
        assert daemon.list_branches()
    assert not work.ended.is_set()
    thread.join(WAIT_S)


def test_a_client_that_goes_away_ends_its_request(served: tuple[str, ControlService], work: Work) -> None:
    daemon = ControlClient.connect(served[0], WAIT_S)
    daemon._transport._socket.sendall(wire.frame(wire.encode(wire.Fsck())))  # type: ignore[attr-defined]
    assert work.begun.wait(WAIT_S)
    daemon.close()
    assert work.ended.wait(WAIT_S)
    assert work.done < STEPS


def test_an_exception_in_the_progress_callback_ends_the_request(served: tuple[str, ControlService], work: Work) -> None:
    def interrupt(progress: wire.Progress) -> None:
        raise KeyboardInterrupt

    with ControlClient.connect(served[0], WAIT_S) as daemon:
        with pytest.raises(KeyboardInterrupt):
            daemon.fsck(interrupt)
        assert work.ended.wait(WAIT_S)
        assert work.done < STEPS
        with pytest.raises(DaemonGoneError, match="has ended"):
            daemon.status()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_cancelled_task_ends_its_request(served: tuple[str, ControlService], work: Work, backend: str) -> None:
    async def ask_and_give_up() -> None:
        async with await AsyncControlClient.connect(served[0]) as daemon:
            with anyio.CancelScope() as scope:
                await daemon.fsck(lambda told: scope.cancel())
            assert await anyio.to_thread.run_sync(work.ended.wait, WAIT_S)

    anyio.run(ask_and_give_up, backend=backend)
    assert work.done < STEPS


def test_ctrl_c_ends_the_request(served: tuple[str, ControlService], work: Work) -> None:
    script = f"from agentfs_client.control import ControlClient; ControlClient.connect({served[0]!r}).fsck(print)"
    with subprocess.Popen([sys.executable, "-u", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as client:
        assert client.stdout is not None
        assert client.stdout.readline().startswith(b"Progress(")
        client.send_signal(signal.SIGINT)
        assert work.ended.wait(WAIT_S)
        assert work.done < STEPS


def test_a_client_that_has_said_all_still_gets_its_reply(served: tuple[str, ControlService], work: Work) -> None:
    daemon = ControlClient.connect(served[0], WAIT_S)
    channel = daemon._transport._socket  # type: ignore[attr-defined]
    channel.sendall(wire.frame(wire.encode(wire.Fsck())))
    channel.shutdown(1)
    assert wire.decode_reply(daemon._transport.further()) == wire.ProblemsReply(problems=["worked"])
    daemon.close()


def test_a_fault_in_a_step_is_an_answer(served: tuple[str, ControlService], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*, scrub: bool = False) -> Iterator[tuple[int, int, str]]:
        yield 1, 2, "one"
        raise OSError(5, "the disk is broken")

    monkeypatch.setattr(served[1].services.overlay, "fsck_in_steps", fail)
    with ControlClient.connect(served[0], WAIT_S) as daemon:
        with pytest.raises(AgentFSError, match="the disk is broken"):
            daemon.fsck()
        assert daemon.list_branches()


Handler = Callable[[Services, wire.Fsck, RequestContext], object]


@pytest.fixture
def handle(served: tuple[str, ControlService], monkeypatch: pytest.MonkeyPatch) -> Callable[[Handler], None]:
    """Has another handler take the place of fsck's."""
    return lambda handler: monkeypatch.setitem(OPERATIONS, wire.Fsck, replace(OPERATIONS[wire.Fsck], handler=handler))


def leave_at_once(address: str, begun: threading.Event) -> None:
    daemon = ControlClient.connect(address, WAIT_S)
    daemon._transport._socket.sendall(wire.frame(wire.encode(wire.Fsck(progress=True))))  # type: ignore[attr-defined]
    assert begun.wait(WAIT_S)
    daemon.close()


def test_what_is_shielded_is_finished(served: tuple[str, ControlService], handle: Callable[[Handler], None]) -> None:
    begun, notes = threading.Event(), []
    ended = threading.Event()

    async def handler(services: Services, request: wire.Fsck, context: RequestContext) -> wire.ProblemsReply:
        try:
            with trio.CancelScope(shield=True):
                begun.set()
                await trio.sleep(0.3)
                notes.append("finished")
            await trio.sleep(WAIT_S)
            notes.append("never")
        finally:
            ended.set()
        return wire.ProblemsReply(problems=[])

    handle(handler)
    leave_at_once(served[0], begun)
    assert ended.wait(WAIT_S)
    assert notes == ["finished"]


def test_a_thread_is_told_and_may_tell_how_far_it_is(
    served: tuple[str, ControlService], handle: Callable[[Handler], None]
) -> None:
    begun, ended, rounds = threading.Event(), threading.Event(), []

    async def handler(services: Services, request: wire.Fsck, context: RequestContext) -> wire.ProblemsReply:
        def work() -> None:
            begun.set()
            for number in range(1000):
                context.progress(number, 1000, "in a thread")
                if cancelled():
                    break
                rounds.append(number)
                time.sleep(0.01)
            ended.set()

        await trio.to_thread.run_sync(work)
        return wire.ProblemsReply(problems=[])

    handle(handler)
    leave_at_once(served[0], begun)
    assert ended.wait(WAIT_S)
    assert len(rounds) < 1000


def test_work_in_slices_lets_the_loop_run() -> None:
    """A generator of 100 ms holds nobody up for more than some milliseconds."""
    gaps: list[float] = []

    def steps() -> Iterator[tuple[int, int, str]]:
        for number in range(1000):
            ends = time.monotonic() + 0.0001
            while time.monotonic() < ends:
                pass
            yield number, 1000, ""

    async def watch() -> None:
        last = time.monotonic()
        while True:
            await trio.lowlevel.checkpoint()
            now = time.monotonic()
            gaps.append(now - last)
            last = now

    async def main() -> None:
        context = RequestContext(Peer(Caller(0, 0, 0)), None, "main")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            await drive(steps(), context)  # type: ignore[arg-type]
            nursery.cancel_scope.cancel()

    trio.run(main)
    assert len(gaps) >= 10
    assert sorted(gaps)[len(gaps) // 2] < 0.02
