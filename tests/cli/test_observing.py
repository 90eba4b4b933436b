"""status, top, audit, metrics and the log: what a mount is doing, as people and programs see it."""

import fcntl
import io
import json
import os
import pty
import re
import select
import socket
import stat
import struct
import subprocess
import termios
import time
import urllib.error
import urllib.request
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from agentfs_client import wire
from agentfs_client.control import ControlClient
from agentfs_host import mount_table
from agentfsd.cli.commands import cmd_top
from agentfsd.cli.main import main
from agentfsd.control import status_text
from agentfsd.domain_errors import Refusal
from agentfsd.lower import commit_writer
from agentfsd.lower.commit_plan import ABSENT, FileAttributes, Put
from agentfsd.lower.host_lower import HostLower
from agentfsd.state import daemon_config
from tests.mounted import AGENTFSD, Mounted, agentfsd, needs_fuse
from tests.overlays import Opened

Make = Callable[..., Mounted]
ADDRESS = "127.0.0.1:0"
BUSY = "while :; do echo x >> busy; cat file >/dev/null; done"


@contextmanager
def working(mounted: Mounted, branch: str, script: str) -> Iterator[None]:
    """A shell in that branch, which has begun."""
    process = mounted.start(branch, "sh", "-c", f"echo; {script}", stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield
    finally:
        process.kill()
        while pids := [one["pid"] for one in mounted.json("status")["bindings"]]:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, 9)
            time.sleep(0.01)
        process.wait()


class Shared(Mounted):
    """Its commands are run in this process, which takes a tenth of the time; `run` and `start` as ever."""

    def cli(self, command: str, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        words = [*command.split(), "-m", str(self.path), *arguments]
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 0 or not check, f"{words}: {done.stderr}{done.stdout}"
        return subprocess.CompletedProcess(words, done.exit_code, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """One mount for all that can share it."""
    needs_fuse()
    mounted = Shared(tmp_path_factory.mktemp("observed"), None, "--metrics", ADDRESS, "--log-format", "json")
    (mounted.lower / "file").write_text("lower\n")
    with pytest.MonkeyPatch.context() as patch:
        at_home(mounted, patch)
        mounted.mount()
    yield mounted
    mounted.end()


def at_home(mounted: Mounted, patch: pytest.MonkeyPatch) -> None:
    """Where that mount is registered, which is not where this test's own would be."""
    patch.setenv("AGENTFS_STATE_HOME", str(mounted.path.parent / "state-home"))
    patch.setenv("AGENTFS_RUNTIME_DIR", str(mounted.path.parent / "run"))


@pytest.fixture
def branches(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shared]:
    """The branches *one* and *two*, new for each test."""
    at_home(shared, monkeypatch)
    with ControlClient.connect(shared.record().socket) as daemon:
        for name in ("one", "two"):
            daemon.create_branch(name)
    yield shared
    with ControlClient.connect(shared.record().socket) as daemon:
        for name in {branch.name for branch in daemon.list_branches()} & {"one", "two"}:
            daemon.discard(name)


# -- status


def line(text: str, beginning: str) -> str:
    return next(line.strip() for line in text.splitlines() if line.strip().startswith(beginning))


def test_status_shows_processes_snapshots_and_when_a_branch_was_changed(branches: Mounted) -> None:
    branches.cli("snapshot create", "-b", "one", "before")
    (branches.subtree("one") / "new").write_text("x")
    with working(branches, "one", "exec sleep 60"):
        while "sleep" not in (shown := branches.cli("status").stdout):
            time.sleep(0.01)  # its shell becomes it in a moment
        found = branches.json("status")
        assert (branches.path / ".agentfs" / "status").read_text().splitlines()[0] == shown.splitlines()[0]
    assert shown.startswith(f"{branches.lower} is mounted on {branches.path}\n")
    one = line(shown, "one ")
    assert re.fullmatch(r"one +1 +\d+ s ago +before, \d+ s ago +\d: .*sleep.* +\(the lower\)", one)
    assert re.fullmatch(r"two +0 +- +- +- +\(the lower\)", line(shown, "two "))
    assert "native" in line(shown, "session")
    assert re.search(r"[0-9.]+ [KMGT]iB of [0-9.]+ [KMGT]iB are free", line(shown, "contents"))
    assert "interrupted" not in shown
    named = {branch["name"]: branch for branch in found["branches"]}
    assert named["one"]["last_name"] == "before"
    assert 0 < named["one"]["last_ns"] <= named["one"]["changed_ns"] <= time.time_ns()
    assert {"rss_bytes", "disk_free_bytes", "notifications", "garbage_objects", "lag_us"} <= set(found["resources"])


def test_status_shows_private_mounts_and_how_they_carry_data(branches: Mounted) -> None:
    shown = branches.run("one", *AGENTFSD, "status").stdout
    assert "private mounts: one (zero-message)" in line(shown, "session")
    assert not [row for row in shown.splitlines() if row.startswith("two")]


def test_status_of_many_branches_shows_those_in_which_something_goes_on() -> None:
    branches = [
        wire.Branch(name=f"b{one:03}", id=f"id{one}", base="", created_ns=1, changed=0, processes=int(one == 70), changed_ns=one)
        for one in range(100)
    ]
    shown = status_text.status(
        wire.StatusReply(
            daemon="0", pid=1, lower="/lower", mountpoint="/mnt", state="/state", session="native", backstore="hostfs",
            started_ns=1, branch="main", bound=False, branches=branches, bindings=[], usage={}, audit=True,
        ), 50,
    )  # fmt: skip
    rows = [row.split()[0] for row in shown.splitlines() if row.startswith("b")]
    assert rows == ["b070", *(f"b{one:03}" for one in range(71, 100))]
    assert shown.endswith("and 70 others: `agentfsd branch list` shows all\n")
    assert max(map(len, shown.splitlines())) <= 50


class Text:
    size = 4

    def open(self) -> int:
        fd = os.memfd_create("text")
        os.write(fd, b"text")
        os.lseek(fd, 0, os.SEEK_SET)
        return fd


def test_status_tells_of_a_commit_that_was_interrupted(shared: Shared) -> None:
    mounted = shared
    lower = HostLower(str(mounted.lower))
    attributes = FileAttributes(stat.S_IFREG | 0o644, os.geteuid(), os.getegid(), 1, 1)
    note = {"branch": "", "layer": "0", "whole": "", "paths": "[]", "same": "[]", "id": "1"}
    commit_writer.stage(lower, str(mounted.state), [Put(b"committed", attributes, Text(), expected=ABSENT)], note=note)
    lower.close()
    pending = line(mounted.cli("status").stdout, "pending")
    assert "(1 path) was interrupted while applying: `agentfsd commit --resume`" in pending
    assert mounted.json("status")["pending_commit"] == {"branch": "", "phase": "applying", "paths": 1, "running": False}
    (mounted.lower / "committed").write_text("theirs")
    refused = mounted.cli("commit", "--resume", check=False)
    assert refused.returncode == 1
    assert "1 conflict: the commit was not finished, and not taken back" in refused.stderr
    assert "--force" not in refused.stderr
    assert mounted.json("status")["pending_commit"]["phase"] == "applying"
    assert mounted.cli("commit", "--abort").stdout.startswith("took back the commit into")
    assert (mounted.lower / "committed").read_text() == "theirs"
    assert mounted.json("status")["pending_commit"] is None
    lower = HostLower(str(mounted.lower))
    commit_writer.stage(lower, str(mounted.state), [Put(b"committed", attributes, Text())], note=note).apply(clean=False)
    lower.close()
    assert "it is too late to take it back" in mounted.cli("commit", "--abort").stdout
    assert mounted.json("status")["pending_commit"] is None
    assert (mounted.lower / "committed").read_text() != "theirs"


def test_a_branch_that_is_all_committed_says_so(branches: Mounted) -> None:
    (branches.subtree("one") / "made").write_text("x")
    branches.cli("commit", "one")
    rows = {line.split()[0]: line for line in branches.cli("branch list").stdout.splitlines()}
    assert re.match(r"one +0, committed +\d", rows["one"]) and re.match(r"two +0 +\d", rows["two"])
    (branches.subtree("one") / "more").write_text("x")
    assert re.search(r"^one +1 ", branches.cli("status").stdout, re.M)
    branches.cli("branch create", "next", "--from", "two")
    assert branches.json("branch list")[-1]["committed_ns"] == 0
    branches.cli("branch delete", "next")


# -- top


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


# -- audit


def entries(mounted: Mounted, *arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = mounted.json("audit", *arguments)
    return found


def test_audit_says_who_did_what_where(branches: Mounted) -> None:
    branches.sh("one", "mkdir d; echo x > d/f; chmod 600 d/f; mv d/f d/g; rm d/g")
    branches.cli("snapshot create", "-b", "one", "s")
    branches.cli("restore", "-b", "one", "s")
    found = entries(branches, "one")
    assert [(one["kind"], one["command"], one["path"]) for one in found if one["path"]] == [
        ("created", "mkdir", "d"), ("created", "sh", "d/f"), ("modified", "sh", "d/f"), ("attributes", "chmod", "d/f"),
        ("renamed", "mv", "d/g"), ("deleted", "rm", "d/g"),
    ]  # fmt: skip
    assert {one["uid"] for one in found if one["path"]} == {os.geteuid()}
    assert [one["kind"] for one in found if one["kind"] in ("snapshot", "restore")] == ["snapshot", "restore"]
    assert "bound" in {one["kind"] for one in found}
    assert [one["kind"] for one in entries(branches, "two")] == ["branch-created"]
    assert [one["kind"] for one in entries(branches, "--path", "d/*", "--op", "renamed")] == ["renamed"]
    assert {one["command"] for one in entries(branches, "--pid", str(found[-3]["pid"]))}
    assert entries(branches, "--since", "0.001") == []
    assert "rm " in line(branches.cli("audit", "one", "--op", "deleted").stdout, "20")


def test_audit_outlives_the_branch_and_the_daemon(branches: Mounted) -> None:
    branches.sh("one", "echo x > file")
    branches.cli("discard", "one")
    entries(branches, "one")  # a query writes first
    branches.kill()
    branches.mount()
    found = entries(branches, "one")
    assert {"modified", "discard", "branch-deleted"} <= {one["kind"] for one in found}
    assert (found[-1]["kind"], found[-1]["name"]) == ("lost", "killed")
    assert "the daemon was killed: its last second may be missing" in branches.cli("audit", "two").stdout


def test_a_bound_process_reads_the_trail_of_its_own_branch(branches: Mounted) -> None:
    branches.sh("one", "echo x > mine")
    branches.sh("two", "echo x > other")
    seen = json.loads(branches.run("one", *AGENTFSD, "audit", "--json").stdout)
    assert {one["branch"] for one in seen if one["kind"] != "lost"} == {"one"}
    refused = branches.run("one", *AGENTFSD, "audit", "two", check=False)
    assert refused.returncode == 1
    assert "'two' is not for a process that is bound" in refused.stderr


def test_audit_tells_of_requests_that_change_no_branch_and_of_who_asked(branches: Shared) -> None:
    sleeper = subprocess.Popen(["sleep", "60"])
    branches.cli("bind", str(sleeper.pid), "one")
    branches.cli("unbind", str(sleeper.pid))
    sleeper.kill()
    sleeper.wait()
    branches.cli("interpose set", "min_read_bytes=2")
    branches.cli("gc")
    branches.cli("policy set", "audit.enabled", "no")
    branches.cli("policy set", "audit.enabled", "yes")
    refused = branches.run("one", *AGENTFSD, "policy", "set", "log.slow_ms", "7", check=False, view="pid")
    assert refused.returncode == 1
    found = {(one["kind"], one["name"]): one for one in entries(branches)}
    me = (os.getpid(), os.geteuid(), Path("/proc/self/comm").read_text().strip())
    for asked in (
        ("bound", f"process {sleeper.pid} sleep"), ("unbound", f"process {sleeper.pid} sleep"), ("gc", ""),
        ("interpose", "min_read_bytes = 2"), ("policy", "audit.enabled = no"), ("policy", "audit.enabled = yes"),
    ):  # fmt: skip
        assert (found[asked]["pid"], found[asked]["uid"], found[asked]["command"]) == me, asked
    assert found["refused", "policy.set log.slow_ms"]["branch"] == "one"


@pytest.mark.parametrize("name", ["plain", "a\n\x1b[31mb", os.fsdecode(b"raw\xff")])
def test_audit_shows_any_name_on_one_line(branches: Shared, name: str) -> None:
    (branches.subtree("one") / name).mkdir()
    (shown,) = branches.cli("audit", "one", "--op", "created").stdout.splitlines()
    assert shown.isprintable()
    (found,) = entries(branches, "one", "--op", "created")
    assert os.fsencode(name) == (b64decode(found["raw_path"]) if found.get("raw_path") else os.fsencode(found["path"]))


def test_audit_takes_spans_of_time(branches: Shared) -> None:
    (branches.subtree("one") / "d").mkdir()
    assert entries(branches, "one", "--until", "1m") == []
    assert entries(branches, "one", "--since", "2020-01-01", "--until", "2020-01-02 13:30") == []
    assert entries(branches, "one", "--since", "9998-01-01") == []
    assert entries(branches, "one", "--since", "999999999999", "--until", "9998-01-01") == entries(branches, "one")
    assert [one["path"] for one in entries(branches, "one", "--since", "1m", "--until", "0") if one["path"]] == ["d"]
    for words in ("99:99", "2026-13-01", "soon"):
        refused = branches.cli("audit", "--since", words, check=False)
        assert (refused.returncode, "is no" in refused.stderr) == (1, True)


def test_audit_follows(branches: Mounted) -> None:
    command = [*AGENTFSD, "audit", "-m", str(branches.path), "two", "--op", "created", "--follow", "--json"]
    (branches.subtree("two") / "before").write_text("")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        seen = [json.loads(follower.stdout.readline())["path"]]
        (branches.subtree("two") / "after").write_text("")
        seen.append(json.loads(follower.stdout.readline())["path"])
        follower.kill()
    assert seen == ["before", "after"]


def test_audit_can_be_switched_off_and_bounded(branches: Mounted) -> None:
    branches.cli("policy set", "audit.enabled", "no")
    refused = branches.cli("audit", check=False)
    assert refused.returncode == 1
    assert "policy set audit.enabled yes" in refused.stderr
    (branches.subtree("one") / "unseen").write_text("")
    branches.cli("policy set", "audit.max_bytes", "64K")
    branches.cli("policy set", "audit.enabled", "yes")
    for number in range(1500):
        (branches.path / f"file-{number}").touch()
    found = entries(branches, "--limit", "10000")
    branches.cli("policy set", "audit.max_bytes", "16M")
    assert "unseen" not in {one["path"] for one in found}
    assert 100 < len(found) < 1500
    assert found[-1]["path"] == "file-1499"


@pytest.mark.parametrize(
    ("name", "value"), [("audit.max_bytes", "1"), ("audit.max_bytes", "many"), ("audit.enabled", "1"), ("log.slow_ms", "-1")]
)
def test_settings_that_make_no_sense_are_refused(opened: Opened, name: str, value: str) -> None:
    with pytest.raises(Refusal):
        opened.overlay.settings.set(name, value)


# -- the log


def test_slow_requests_are_logged_and_seen_in_status(shared: Shared) -> None:
    mounted = shared
    mounted.cli("policy set", "log.slow_ms", "1")
    name = "big\n\x1b[31m"  # which must not look like a line of its own
    (mounted.lower / name).write_bytes(bytes(64 << 20))
    with open(mounted.path / name, "r+b") as file:
        file.write(b"copied up first")
        os.fsync(file.fileno())
    slow = logged_as_slow(mounted, "open", "write")
    assert slow[0]["level"] == "WARNING"
    assert slow[0]["branch"] == "main"
    assert slow[0]["duration"] >= 0.001
    assert r" big\n\x1b[31m took " in slow[0]["message"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", slow[0]["time"])
    assert re.match(r"slow +\d+ since it began; .* took ", line(mounted.cli("status").stdout, "slow"))
    mounted.cli("policy set", "log.slow_ms", "0")
    before = mounted.json("status")["resources"]["slow_requests"]
    (mounted.path / name).unlink()
    assert mounted.json("status")["resources"]["slow_requests"] == before
    (mounted.lower / name).unlink()


def logged_as_slow(mounted: Mounted, *operations: str) -> list[dict[str, Any]]:
    """What is in the log, which comes after the answer."""
    deadline = time.monotonic() + 20
    while True:
        lines = [json.loads(text) for text in (mounted.state / "daemon.log").read_text().splitlines()]
        found = [one for one in lines if one["logger"] == "agentfsd.telemetry.slow_requests" and one.get("op") in operations]
        if found:
            return found
        assert time.monotonic() < deadline
        time.sleep(0.02)


# -- metrics


def scrape(address: str) -> dict[str, Metric]:
    """By HTTP, as Prometheus does; over a Unix socket likewise."""
    if address.startswith("unix:"):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(address.removeprefix("unix:"))
            connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            body = connection.makefile("rb").read().partition(b"\r\n\r\n")[2]
    else:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as reply:
            body = reply.read()
    return {family.name: family for family in text_string_to_metric_families(body.decode())}


def value(found: dict[str, Metric], name: str, **labels: str) -> float:
    (sample,) = (one for one in found[name].samples if one.name in (name, f"{name}_total") and one.labels == labels)
    return float(sample.value)


def test_metrics_count_what_happens(branches: Shared) -> None:
    mounted = branches
    address = mounted.json("status")["metrics"]
    (mounted.path / "first").write_bytes(b"1")
    before = scrape(address)
    for number in range(10):
        (mounted.path / f"f{number}").write_bytes(b"12345")
    after = scrape(address)
    write = {"channel": "fuse", "op": "write"}
    assert value(after, "agentfsd_requests", **write) - value(before, "agentfsd_requests", **write) == 10
    assert value(after, "agentfsd_written_bytes") - value(before, "agentfsd_written_bytes") == 50
    assert value(after, "agentfsd_branches") == 3
    assert value(after, "agentfsd_backstore_objects") - value(before, "agentfsd_backstore_objects") == 10
    assert value(after, "agentfsd_requests", channel="control", op="branch.create") >= 2
    assert 0 <= value(after, "agentfsd_loop_lag_seconds") < 10
    times = [one for one in after["agentfsd_request_seconds"].samples if write.items() <= one.labels.items()]
    buckets = [one.value for one in times if one.name.endswith("_bucket")]
    assert buckets == sorted(buckets)
    assert buckets[-1] == next(one.value for one in times if one.name.endswith("_count"))
    assert 0 < next(one.value for one in times if one.name.endswith("_sum")) < 10
    assert all(family.documentation for family in after.values())


@pytest.mark.parametrize(
    ("host", "status"), [("rebound.example", 421), ("10.0.0.1:80", 421), ("[", 421), ("localhost", 200), ("[::1]:1", 200)]
)
def test_metrics_are_for_whoever_asks_this_machine_by_its_own_name(branches: Shared, host: str, status: int) -> None:
    asked = urllib.request.Request(f"http://{branches.json('status')['metrics']}/metrics", headers={"Host": host})
    try:
        with urllib.request.urlopen(asked, timeout=10) as reply:
            assert reply.status == status
    except urllib.error.HTTPError as refused:
        assert refused.code == status
        assert b"agentfsd_" not in refused.read()


def test_metrics_on_a_unix_socket_are_the_owners(make_mount: Make, tmp_path: Path) -> None:
    path = tmp_path / "metrics.sock"
    mounted = make_mount(None, "--metrics", f"unix:{path}")
    assert value(scrape(f"unix:{path}"), "agentfsd_bound_processes") == 0
    assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
    mounted.kill()
    mounted.mount()  # over the socket that a killed daemon has left
    assert value(scrape(f"unix:{path}"), "agentfsd_branches") == 1
    agentfsd("umount", str(mounted.path))
    assert not path.exists()


def test_clients_of_metrics_that_ask_for_nothing_take_few_threads(branches: Shared) -> None:
    host, port = branches.json("status")["metrics"].rsplit(":", 1)
    tasks = Path(f"/proc/{branches.record().pid}/task")
    before = len(os.listdir(tasks))
    clients = [socket.create_connection((host, int(port))) for _ in range(100)]
    try:
        assert clients[-1].recv(1) == b""
        assert len(os.listdir(tasks)) < before + 30
    finally:
        for client in clients:
            client.close()
    deadline = time.monotonic() + 30
    while "agentfsd_branches" not in scrape_or_nothing(f"{host}:{port}"):
        assert time.monotonic() < deadline


def scrape_or_nothing(address: str) -> dict[str, Metric]:
    try:
        return scrape(address)
    except OSError:
        return {}


@pytest.mark.parametrize(
    "address", ["0.0.0.0:9100", "[::]:9100", "10.0.0.1:80", "9100", "127.0.0.1:99999", "unix:relative", "x:1"]
)
def test_metrics_where_others_could_reach_them_are_refused(address: str) -> None:
    with pytest.raises(Refusal) as refused:
        daemon_config.parse_address(address)
    assert refused.value.hint.startswith("give unix:/PATH or 127.0.0.1:PORT")


def test_an_address_that_is_taken_leaves_no_mount(tmp_path: Path) -> None:
    for name in ("lower", "mnt"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").write_text("mine")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for address in (f"127.0.0.1:{taken.getsockname()[1]}", f"unix:{tmp_path}/file"):
            refused = agentfsd("mount", str(tmp_path / "lower"), str(tmp_path / "mnt"), "--metrics", address, check=False)
            assert refused.returncode == 1
            assert f"metrics cannot be served at {address}: Address already in use" in refused.stderr
            assert mount_table.mount_at(str(tmp_path / "mnt")) is None
    assert (tmp_path / "file").read_text() == "mine"
