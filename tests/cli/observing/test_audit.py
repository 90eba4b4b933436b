"""audit and the log: who did what, and what took long."""

import json
import os
import re
import subprocess
import time
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from agentfsd.domain_errors import Refusal
from tests.cli.observing.observed import Shared, line
from tests.mounted import AGENTFSD, Mounted
from tests.overlays import Opened


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
