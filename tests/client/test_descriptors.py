"""Descriptors that come with replies: none is lost, whatever a peer sends along and whenever a caller gives up.

The peer at the other end of the socket is the test's own: no daemon sends such replies.
"""

import array
import os
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from agentfs_client import wire
from agentfs_client.async_control import AsyncControlClient
from agentfs_client.control import ControlClient
from agentfs_client.descriptor_operations import OpenedFd
from agentfs_client.errors import AgentFSError, DaemonGoneError, InvalidRequestError, ProtocolError
from tests.mounted import Mounted

INFO = wire.FileInfo(path="file", kind="file", mode=0o100644)
GIVEN = wire.FdReply(source="own", file=INFO)
HELLO = wire.HelloOk(version=wire.PROTOCOL_VERSION, daemon="test", branch="main", bound=False)
REFUSED = wire.Error(errno=1, code="not-forwarded", message="no")
WAIT_S = 10


class Peer:
    """Answers the first request with hello.ok, each later one with what ``script`` does. Descriptors that it sends are ends of
    one pipe, so that ``all_closed`` tells when nobody has any of them any more."""

    def __init__(self, path: Path, script: Callable[["Peer"], None]) -> None:
        self.path, self._script = str(path / "peer.sock"), script
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.path)
        self._listener.listen(1)
        self._read_end, self.end = os.pipe()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        self.connection, _ = self._listener.accept()
        with self.connection:
            self.connection.settimeout(WAIT_S)
            self._request()
            self.send(HELLO)
            while self._request():
                self._script(self)

    def _request(self) -> bool:
        header = self.connection.recv(wire.HEADER_BYTES)
        return bool(header and self.connection.recv(wire.frame_length(header)))

    def send(self, reply: wire.Reply, descriptors: int = 0, of_it: int | None = None) -> None:
        """A reply, or its first *of_it* bytes, with so many descriptors."""
        data = wire.frame(wire.encode(reply))[:of_it]
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [self.end] * descriptors))
        self.connection.sendmsg([data], [rights] if descriptors else [])

    def all_closed(self, within_s: float = 2) -> bool:
        """What lies in a socket that was closed is closed by the kernel a little later."""
        if self.end >= 0:
            os.close(self.end)
            self.end = -1
        return bool(select.select([self._read_end], [], [], within_s)[0])

    def close(self) -> None:
        self._thread.join()
        self._listener.close()
        self.all_closed()
        os.close(self._read_end)


@contextmanager
def peer(path: Path, script: Callable[[Peer], None]) -> Iterator[Peer]:
    made = Peer(path, script)
    try:
        yield made
    finally:
        made.close()


async def opened_async(path: str, timeout_s: float) -> OpenedFd:
    async with await AsyncControlClient.connect(path) as client:
        with anyio.fail_after(timeout_s):
            return await client.open_fd("file", os.O_RDONLY)


@pytest.fixture(params=["waiting", "asyncio", "trio"])
def open_fd(request: pytest.FixtureRequest) -> Callable[..., OpenedFd]:
    """Asks the peer at a path for a descriptor, in a conversation of its own."""

    def waiting(path: str, timeout_s: float = WAIT_S) -> OpenedFd:
        with ControlClient.connect(path, timeout_s) as client:
            return client.open_fd("file", os.O_RDONLY)

    def awaiting(path: str, timeout_s: float = WAIT_S) -> OpenedFd:
        return anyio.run(opened_async, path, timeout_s, backend=request.param)

    return waiting if request.param == "waiting" else awaiting


def test_a_descriptor_that_was_asked_for_is_the_callers_and_no_child_inherits_it(
    tmp_path: Path, open_fd: Callable[..., OpenedFd]
) -> None:
    with peer(tmp_path, lambda peer: peer.send(GIVEN, 1)) as found:
        got = open_fd(found.path)
        assert (got.source, got.file.kind, os.get_inheritable(got.fd)) == ("own", "file", False)
        assert not found.all_closed(0)
        os.close(got.fd)
        assert found.all_closed()


def test_descriptors_that_nobody_asked_for_are_closed(tmp_path: Path, open_fd: Callable[..., OpenedFd]) -> None:
    with peer(tmp_path, lambda peer: peer.send(GIVEN, 3)) as found:
        got = open_fd(found.path)
        os.close(got.fd)
        assert found.all_closed()


def test_more_descriptors_than_there_is_room_for_are_closed(tmp_path: Path, open_fd: Callable[..., OpenedFd]) -> None:
    with peer(tmp_path, lambda peer: peer.send(GIVEN, 200)) as found:
        os.close(open_fd(found.path).fd)
        assert found.all_closed()


@pytest.mark.parametrize(("reply", "kind"), [(REFUSED, AgentFSError), (wire.Done(), ProtocolError)])
def test_a_descriptor_with_another_reply_is_closed(
    tmp_path: Path, open_fd: Callable[..., OpenedFd], reply: wire.Reply, kind: type[AgentFSError]
) -> None:
    with peer(tmp_path, lambda peer: peer.send(reply, 1)) as found:
        with pytest.raises(kind):
            open_fd(found.path)
        assert found.all_closed()


def test_a_reply_that_lacks_its_descriptor_is_none(tmp_path: Path, open_fd: Callable[..., OpenedFd]) -> None:
    with peer(tmp_path, lambda peer: peer.send(GIVEN)) as found, pytest.raises(ProtocolError, match="without a descriptor"):
        open_fd(found.path)


def test_a_descriptor_that_comes_before_the_reply_is_closed(tmp_path: Path, open_fd: Callable[..., OpenedFd]) -> None:
    def script(peer: Peer) -> None:
        peer.send(wire.Progress(done=1, total=2, what="opening"), 1)
        peer.send(REFUSED)

    with peer(tmp_path, script) as found:
        with pytest.raises(AgentFSError, match="no"):
            open_fd(found.path)
        assert found.all_closed()


@pytest.mark.parametrize("of_it", [2, 4, 10])
def test_a_descriptor_that_came_before_the_caller_gave_up_is_closed(
    tmp_path: Path, open_fd: Callable[..., OpenedFd], of_it: int
) -> None:
    with peer(tmp_path, lambda peer: peer.send(GIVEN, 1, of_it)) as found:
        with pytest.raises((DaemonGoneError, TimeoutError)):
            open_fd(found.path, 0.2)
        assert found.all_closed()


def test_what_comes_with_any_other_reply_is_closed_at_once(tmp_path: Path) -> None:
    with (
        peer(tmp_path, lambda peer: peer.send(wire.CapabilitiesReply(capabilities={}), 1)) as found,
        ControlClient.connect(found.path, WAIT_S) as client,
    ):
        assert client.capabilities() == {}
        assert found.all_closed()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_wait_for_a_reply_ends_when_another_task_closes_the_client(tmp_path: Path, backend: str) -> None:
    async def main(path: str) -> None:
        client = await AsyncControlClient.connect(path)

        async def ask() -> None:
            with pytest.raises(DaemonGoneError):
                await client.status()

        with anyio.fail_after(WAIT_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                await anyio.wait_all_tasks_blocked()
                await client.aclose()

    with peer(tmp_path, lambda peer: None) as found:
        anyio.run(main, found.path, backend=backend)


def test_the_control_file_says_that_it_carries_none(mounted: Mounted) -> None:
    with ControlClient.open_mount(str(mounted.path)) as client:
        for act in (lambda: client.open_fd("file", os.O_RDONLY), lambda: client.dup_fd(0), lambda: client.sync_fd(0)):
            with pytest.raises(InvalidRequestError, match="control file") as caught:
                act()
            assert "socket" in caught.value.hint
        assert client.status().branch == "main"

    async def main() -> None:
        async with await AsyncControlClient.open_mount(str(mounted.path)) as client:
            with pytest.raises(InvalidRequestError, match="control file"):
                await client.open_fd("file", os.O_RDONLY)
            assert (await client.status()).branch == "main"

    anyio.run(main)
