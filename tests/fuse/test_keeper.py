"""The process that keeps descriptors, without a daemon: whom it kills, and when it gives up."""

import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentfsd.fuse.keeper import Keeper, KeeperPlace
from agentfsd.process.kept_descriptors import KeeperLink

LONG_S = 301.0


@pytest.fixture
def daemons() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two processes that stand still in place of daemons."""
    made = [subprocess.Popen(["sleep", "1000"]) for _ in range(2)]
    yield made
    for process in made:
        process.kill()
        process.wait()


@pytest.fixture
def linked(tmp_path: Path) -> Iterator[tuple[Keeper, KeeperLink]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield Keeper(theirs, KeeperPlace(str(tmp_path / "log"), str(tmp_path / "given-up"), "/mnt")), KeeperLink(ours)


def test_next_daemon_that_never_serves_after_an_update_is_killed(
    linked: tuple[Keeper, KeeperLink], daemons: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    (keeper, link), (before, after) = linked, daemons
    link.connection.sendmsg([b'{"do": "serving", "pid": %d}' % before.pid])
    assert keeper.answer()
    link.succeeded_by(after.pid)
    assert keeper.answer()
    before.kill()
    before.wait()
    assert keeper.tick(61.0)  # the limit for one that serves does not count
    assert after.poll() is None
    assert not keeper.tick(LONG_S)
    assert after.wait(10) == -signal.SIGKILL
    assert "no daemon serves within 300 s" in (tmp_path / "given-up").read_text()


def test_daemon_that_stays_after_all_is_watched_again(
    linked: tuple[Keeper, KeeperLink], daemons: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    (keeper, link), (stays, after) = linked, daemons
    link.succeeded_by(after.pid)
    link.connection.sendmsg([b'{"do": "serving", "pid": %d}' % stays.pid])
    assert keeper.answer()
    assert keeper.answer()
    assert keeper.tick(59.0)
    assert keeper.tick(2.0)
    assert stays.wait(10) == -signal.SIGKILL
    assert after.poll() is None
    assert "the daemon hangs" in (tmp_path / "log").read_text()
