"""What it takes to answer, over a socket without a mount."""

import os
import time
from pathlib import Path

import pytest

from agentfs_client import wire
from agentfs_client.control import ControlClient
from agentfs_client.errors import AgentFSError
from agentfs_client.transport import SocketTransport
from agentfsd.control.service import ControlService
from tests.control.serving import serving


def looked_at(service: ControlService) -> int:
    return len(service.services.traffic.profiles)


def test_requests_are_looked_at_only_while_somebody_waits_for_that(tmp_path: Path) -> None:
    with serving(tmp_path) as (path, service):
        transport = SocketTransport(path, None)
        os.write(transport._socket.fileno(), wire.frame(wire.encode(wire.Top(seconds=60))))
        while not looked_at(service):
            time.sleep(0.005)
        transport.close()
        while looked_at(service):
            time.sleep(0.005)
        with ControlClient.connect(path) as daemon:
            assert daemon.top(0.05).span_ns >= 50_000_000
            for seconds in (0.0, 61.0, float("nan")):
                with pytest.raises(AgentFSError, match="cannot measure for"):
                    daemon.top(seconds)
        assert looked_at(service) == 0


def test_control_requests_are_counted_with_their_errors(tmp_path: Path) -> None:
    with serving(tmp_path) as (path, service), ControlClient.connect(path) as daemon:
        daemon.create_branch("one")
        with pytest.raises(AgentFSError):
            daemon.create_branch("one")
        tally = service.services.traffic.tally("control", "branch.create")
        assert (tally.count, tally.errors) == (2, 1)
        assert 0 < tally.total_ns < 10**10


def test_a_slow_request_is_noted_with_what_it_was_about(tmp_path: Path) -> None:
    with serving(tmp_path) as (path, service), ControlClient.connect(path) as daemon:
        service.services.traffic.slow.limit_ns = 0
        daemon.create_branch("one")
        (slow,) = daemon.status().slow
        assert (slow.request, slow.where, slow.pid) == ("branch.create", "one", os.getpid())


def test_the_last_snapshot_of_a_branch_is_one_that_was_taken_of_it(tmp_path: Path) -> None:
    with serving(tmp_path) as (path, _), ControlClient.connect(path) as daemon:
        daemon.create_snapshot("main", "of-main")
        daemon.create_branch("one")
        assert {branch.name: branch.last_name for branch in daemon.list_branches()} == {"main": "of-main", "one": ""}
        taken = daemon.create_snapshot("one")
        shown = daemon.show_branch("one")
        assert (shown.last_name, shown.last_ns) == (taken.name, taken.created_ns)
        assert daemon.show_branch("main").last_name == "of-main"
