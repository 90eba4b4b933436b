"""The daemon's socket with real clients: slow, vanished, oversized, many at once."""

import os
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from agentfs_client import wire
from agentfs_client.control import ControlClient, SocketTransport
from agentfs_client.errors import (
    BusyError,
    DaemonGoneError,
    ExistsError,
    InvalidRequestError,
    NotAllowedError,
    NotFoundError,
    ProtocolError,
)
from agentfsd.control import control_socket
from agentfsd.control.control_socket import ControlSocketServer
from tests.control.serving import serving


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    with serving(tmp_path) as (path, _):
        yield path


def raw(path: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.settimeout(10)
    made.connect(path)
    return made


def test_a_client_that_has_come_and_gone_is_recent_once(tmp_path: Path) -> None:
    async def main() -> None:
        service: Any = SimpleNamespace(leave=lambda peer: None)
        server, path = ControlSocketServer(service), str(tmp_path / "socket")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.serve, control_socket.listen(path))
            with raw(path):
                await trio.testing.wait_all_tasks_blocked(0.01)
                assert server.clients == 1
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert server.clients == 0
            assert (server.recent_clients(), server.recent_clients()) == (1, 0)
            nursery.cancel_scope.cancel()

    trio.run(main)


def test_typed_client_does_it_all(address: str) -> None:
    with ControlClient.connect(address) as daemon:
        assert (daemon.hello.branch, daemon.hello.bound, daemon.hello.version) == ("main", False, wire.PROTOCOL_VERSION)
        assert daemon.create_branch("one").name == "one"
        assert daemon.show_branch("one").base == ""
        assert daemon.create_snapshot("one", "s", tag="t").tag == "t"
        assert [found.name for found in daemon.list_snapshots("one")] == ["s"]
        assert daemon.show_snapshot("s").author_pid == os.getpid()
        assert [found.name for found in daemon.log("one")] == ["s"]
        daemon.restore("s", "one")
        assert daemon.diff("one") == []
        assert daemon.rename_branch("one", "two").name == "two"
        assert daemon.capabilities() == {"cap.fd_forwarding": "off"}
        assert daemon.fsck() == []
        assert [branch.name for branch in daemon.status().branches] == ["main", "two"]
        daemon.delete_snapshot("s")
        daemon.delete_branch("two")
        assert [branch.name for branch in daemon.list_branches()] == ["main"]


def test_refusals_are_exceptions_of_their_kind(address: str) -> None:
    with ControlClient.connect(address) as daemon:
        daemon.create_branch("one")
        for kind, act in (
            (NotFoundError, lambda: daemon.show_branch("missing")),
            (ExistsError, lambda: daemon.create_branch("one")),
            (NotAllowedError, lambda: daemon.delete_branch("main")),
            (InvalidRequestError, lambda: daemon.create_branch("a/b")),
        ):
            with pytest.raises(kind) as caught:
                act()
            assert caught.value.message
            assert caught.value.code
        daemon.bind(os.getpid(), "one")
        with pytest.raises(NotAllowedError):
            daemon.discard("one")
    assert issubclass(BusyError, OSError)


def test_wrong_version_is_a_protocol_error(address: str) -> None:
    transport = SocketTransport(address, 10)
    reply = wire.decode_reply(transport.exchange(wire.encode(wire.Hello(version=2))))
    assert isinstance(reply, wire.Error)
    assert reply.code == "wrong-version"
    transport.close()
    assert issubclass(ProtocolError, OSError)


def test_nobody_there_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(DaemonGoneError, match="nobody answers"):
        ControlClient.connect(str(tmp_path / "none.sock"))
    with pytest.raises(DaemonGoneError, match="cannot be opened"):
        ControlClient.open_mount(str(tmp_path))


def test_only_its_owner_may_connect(address: str) -> None:
    assert os.stat(address).st_mode & 0o777 == 0o600


def test_json_over_the_socket(address: str) -> None:
    client = raw(address)
    client.sendall(wire.frame(b'{"op":"hello"}'))
    length = struct.unpack("<I", client.recv(4))[0]
    assert client.recv(length).startswith(b'{"op":"hello.ok"')
    client.close()


def test_oversized_frame_is_answered_and_the_conversation_ended(address: str) -> None:
    client = raw(address)
    client.sendall(struct.pack("<I", 1 << 31))
    length = struct.unpack("<I", client.recv(4))[0]
    reply = wire.decode_reply(client.recv(length))
    assert isinstance(reply, wire.Error)
    assert reply.code == "too-long"
    assert client.recv(1) == b""
    client.close()


def test_clients_that_stop_in_mid_sentence_hurt_nobody(address: str) -> None:
    slow = raw(address)
    slow.sendall(b"\x10")
    for part in (b"", b"\x05", struct.pack("<I", 100) + b"half", struct.pack("<I", 3) + b"\xc1\xc1\xc1"):
        gone = raw(address)
        gone.sendall(part)
        gone.close()
    with ControlClient.connect(address, timeout_s=10) as daemon:
        assert daemon.list_branches()
    slow.close()


def test_many_clients_at_once(address: str) -> None:
    failures: list[OSError] = []

    def work(number: int) -> None:
        try:
            with ControlClient.connect(address, timeout_s=30) as daemon:
                for step in range(10):
                    daemon.create_branch(f"b{number}-{step}")
                    daemon.create_snapshot(f"b{number}-{step}")
        except OSError as exc:
            failures.append(exc)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with ControlClient.connect(address) as daemon:
        assert len(daemon.list_branches()) == 201
