"""Conversations with the preloaded library: who says nothing, too much, or goes without a word."""

import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agentfs_client.interpose import VERSION
from agentfsd.handoff.forwarding_settings import load
from agentfsd.handoff.interpose_server import InterposeServer
from tests.handoff.asking import HELLO
from tests.overlays import Opened


@pytest.fixture
def doorway(tmp_path: Path) -> Iterator[InterposeServer]:
    made = InterposeServer(str(tmp_path / "handoff.sock"), os.geteuid())
    yield made
    made.close()


def connect(doorway: InterposeServer, said: bytes = b"") -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made.connect(doorway.path)
    if said:
        made.send(said)
    return made


def hello(cookie: int) -> bytes:
    return HELLO.pack(b"AGENTFS\1", VERSION, 0, cookie)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_whoever_connects_without_a_word_keeps_nobody_out(doorway: InterposeServer, tmp_path: Path) -> None:
    opened = Opened(tmp_path)
    settings = replace(load(opened.store), enabled=True)
    opened.close()
    silent, before = list[socket.socket](), descriptors()
    for _ in range(5):
        silent += [connect(doorway) for _ in range(100)]
        doorway.sweep()
    assert descriptors() - before - len(silent) < 150
    with connect(doorway, hello(7)):
        assert doorway.find(7, os.getpid(), VERSION, settings).pid == os.getpid()
    for one in silent:
        one.close()
    doorway.sweep()
    assert len(doorway) == 0


def test_one_process_has_a_few_conversations_at_most(doorway: InterposeServer) -> None:
    open_now = [connect(doorway, hello(cookie)) for cookie in range(1, 101)]
    doorway.sweep()
    assert len(doorway) <= 8
    assert open_now[0].recv(1) == b""  # told that it was left
    for one in open_now:
        one.close()
    doorway.sweep()
    assert len(doorway) == 0


def test_who_goes_after_saying_too_much_is_let_go_all_the_same(doorway: InterposeServer) -> None:
    with connect(doorway, hello(1)) as chatty:
        chatty.send(b"and another thing")
    doorway.sweep()
    doorway.sweep()
    assert len(doorway) == 0


def test_the_door_goes_with_the_daemon(tmp_path: Path) -> None:
    InterposeServer(str(tmp_path / "handoff.sock"), os.geteuid()).close()
    assert not (tmp_path / "handoff.sock").exists()
