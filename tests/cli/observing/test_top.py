"""top: operations, branches and processes as they go on."""

import fcntl
import io
import json
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time

import pytest
from rich.console import Console

from agentfs_client import wire
from agentfsd.cli.commands import cmd_top
from tests.cli.observing.observed import working
from tests.mounted import AGENTFSD, Mounted

BUSY = "while :; do echo x >> busy; cat file >/dev/null; done"


def test_top_shows_operations_branches_and_processes(branches: Mounted) -> None:
    with working(branches, "one", BUSY):
        found = branches.json("top", "--once", "--interval", "0.5")
        shown = branches.cli("top", "--interval", "0.3", "--operations").stdout
        agents = branches.cli("top", "--interval", "0.3").stdout
        bound = json.loads(branches.run("two", *AGENTFSD, "top", "--once", "--interval", "0.3", "--json", view="pid").stdout)
    operations = {one["name"]: one for one in found["operations"]}
    assert {"lookup", "open", "write"} <= set(operations)
    assert all(0 < one["p50_ns"] <= one["p99_ns"] <= one["longest_ns"] for one in operations.values())
    assert found["written_bytes"] == sum(one["written_bytes"] for one in found["processes"]) >= operations["write"]["count"] > 0
    assert {one["branch"] for one in found["processes"] if one["pid"]} == {"one"}
    assert {"sh", "cat"} <= {one["command"] for one in found["processes"]}
    assert re.search(r"^\d+ requests/s, .* busy \d+%", shown)
    assert re.search(r"^write +\d+ +\d+ us +\d+ [um]s", shown, re.M)
    assert re.search(r"^\d+ +sh +one ", shown, re.M)
    (activity,) = [one for one in found["agents"] if one["branch"] == "one"]
    assert activity["changed"] > 0 and "sh" in activity["commands"] and activity["processes"] > 0
    row = rf"^one +[a-z, .]*sh[a-z, .]* +\d+ +~?{activity['changed']} +- +{re.escape(activity['last_path'])} +\d+ s$"
    assert re.search(row, agents, re.M), agents
    assert "OPERATION" not in agents
    assert [one["branch"] for one in bound["agents"]] == ["two"]
    assert {one["branch"] for one in bound["processes"]} <= {"two"}
    assert "write" not in {one["name"] for one in bound["operations"]}


@pytest.mark.parametrize(("width", "height"), [(40, 24), (80, 24), (200, 50)])
def test_top_never_shows_more_than_the_screen_holds(width: int, height: int) -> None:
    processes = [
        wire.ProcessLoad(
            pid=number, command="cc1", branch=f"agent-{number % 40}", requests=5, read_bytes=9, written_bytes=9, busy_ns=5
        )
        for number in range(1, 100)
    ]
    operations = [
        wire.OperationLoad(name=f"op-{one}", count=9, p50_ns=10**4, p99_ns=10**5, longest_ns=10**6) for one in range(30)
    ]
    found = wire.TopReply(
        span_ns=2 * 10**9, operations=operations, processes=processes, read_bytes=1, written_bytes=10**9, lag_ns=10**6
    )
    console = Console(width=width, height=height, file=io.StringIO(), force_terminal=True, color_system=None)
    console.print(cmd_top._picture(found, "busy", True, width, height))
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().rstrip("\n").splitlines()
    assert len(lines) <= height
    assert lines[-1].startswith("q ends this")
    for needed in ("OPERATION ", "BRANCH ", "COMMAND ", "op-0 ", "agent-0 ", "cc1 "):
        assert any(needed in row for row in lines), needed
    assert sum(row.startswith("+") for row in lines) == 3


def test_top_on_a_terminal_sorts_and_ends_by_keys(branches: Mounted) -> None:
    terminal, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    with working(branches, "one", BUSY):
        process = subprocess.Popen([*AGENTFSD, "top", "-m", str(branches.path)], stdin=end, stdout=end, stderr=end)
        os.close(end)
        await_text(terminal, b"sorts (by busy)")
        os.write(terminal, b"s")
        await_text(terminal, b"sorts (by requests)")
        os.write(terminal, b"o")
        await_text(terminal, b"o shows agents")
        os.write(terminal, b"q")
        await_text(terminal, b"")
        assert process.wait(10) == 0
    os.close(terminal)


def await_text(terminal: int, wanted: bytes) -> None:
    """Until that is on the screen; for nothing, until the other end has gone."""
    seen, deadline = b"", time.monotonic() + 60
    while not wanted or wanted not in seen:
        assert select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))[0], seen
        try:
            seen += re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", os.read(terminal, 1 << 16))
        except OSError:
            assert not wanted, seen
            return
