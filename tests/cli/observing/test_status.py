"""status: what a mount is doing, as people and programs see it."""

import os
import re
import stat
import time

from agentfs_client import wire
from agentfsd.control import status_text
from agentfsd.lower import commit_writer
from agentfsd.lower.commit_plan import ABSENT, FileAttributes, Put
from agentfsd.lower.host_lower import HostLower
from tests.cli.observing.observed import Shared, line, working
from tests.mounted import AGENTFSD, Mounted


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
    assert "\nand 70 others: `agentfsd branch list` shows all\n" in shown
    assert shown.index("BRANCH") < shown.index("daemon"), "what people look for comes first"
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
    assert re.search(r"^one +1, committed, more since ", branches.cli("status").stdout, re.M)
    branches.cli("branch create", "next", "--from", "two")
    assert branches.json("branch list")[-1]["committed_ns"] == 0
    branches.cli("branch delete", "next")
