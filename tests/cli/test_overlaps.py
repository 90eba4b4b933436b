"""Who collides, as people and programs are told of it: the commands, the events, and what a bound process may not know."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentfs_client import ControlClient, NotAllowedError
from tests.mounted import AGENTFSD, Mounted


@pytest.fixture
def two(mounted: Mounted) -> Mounted:
    for branch in ("one", "two"):
        mounted.cli("branch create", branch)
    return mounted


@contextmanager
def events(mounted: Mounted, *branch: str) -> Iterator[Callable[[], list[dict[str, object]]]]:
    """What `watch` tells of overlaps, in a function that waits a while for it."""
    command = [*AGENTFSD, "watch", "-m", str(mounted.path), "--json", *branch]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
        assert watching.stderr is not None
        assert "watching" in watching.stderr.readline()
        told = list[dict[str, object]]()

        def read() -> None:
            assert watching.stdout is not None
            told.extend(json.loads(line) for line in watching.stdout if '"overlap"' in line or '"conflict"' in line)

        def wait() -> list[dict[str, object]]:
            deadline = time.monotonic() + 20
            while not told and time.monotonic() < deadline:
                time.sleep(0.05)
            return told

        reader = threading.Thread(target=read)
        reader.start()
        try:
            yield wait
        finally:
            watching.kill()
            reader.join()


def test_whoever_watches_is_told_as_soon_as_two_branches_change_one_path(two: Mounted) -> None:
    with events(two) as told:
        (two.subtree("one") / "file").write_text("first\n")
        two.sh("two", "echo second >file")
        first = told()[0]
    assert (first["kind"], first["path"]) == ("conflict", "file")
    assert {first["branch"], first["name"]} == {"one", "two"}


def test_status_lists_them_and_marks_the_branches(two: Mounted) -> None:
    assert two.cli("status", "--overlaps").stdout == "no path was changed in more than one branch\n"
    for branch in ("one", "two"):
        (two.subtree(branch) / "file").write_text(f"{branch}\n")
        (two.subtree(branch) / "same").write_text("same\n")
    reply = two.json("status", "--overlaps")
    assert reply["complete"]
    assert [(each["path"], each["branches"], each["conflict"]) for each in reply["overlaps"]] == [
        ("file", ["one", "two"], "content"),
        ("same", ["one", "two"], ""),
    ]
    assert two.cli("status", "--overlaps").stdout.splitlines()[1].split() == ["content", "one,", "two", "file"]
    assert "! one, two have changed the same paths, in ways that conflict" in two.cli("status").stdout
    branches = {branch["name"]: (branch["overlaps"], branch["conflicts"]) for branch in two.json("branch list")}
    assert branches == {"main": (0, 0), "one": (2, 1), "two": (2, 1)}
    shown = two.cli("top", "--once", "--interval", "0.1").stdout.splitlines()
    assert [line.split()[4:6] for line in shown if line.startswith("one")] == [["2", "!1"]]
    two.cli("commit", "one")
    assert two.json("status", "--overlaps")["overlaps"] == []


def test_a_run_as_an_overlay_collides_too(two: Mounted) -> None:
    two.run("one", "sh", "-c", "echo first >file")
    done = two.cli("policy set", "run.io", "overlay", check=False)
    two.sh("two", "echo second >file")
    assert done.returncode == 0
    assert [each["path"] for each in two.json("status", "--overlaps")["overlaps"]] == ["file"]


def test_a_bound_process_learns_nothing_of_other_branches(two: Mounted, tmp_path: Path) -> None:
    for branch in ("one", "two"):
        (two.subtree(branch) / "file").write_text(f"{branch}\n")
    assert two.json("status", "--overlaps")["overlaps"]
    assert two.run("one", *AGENTFSD, "status", "--overlaps", check=False).returncode == 1
    shown = json.loads(two.run("one", *AGENTFSD, "status", "--json").stdout)
    assert [(each["name"], each["overlaps"]) for each in shown["branches"]] == [("one", 0)]
    script = (
        "import sys; from agentfs_client import ControlClient\n"
        "client = ControlClient.open_mount('.')\n"
        "try: client.overlaps()\n"
        "except Exception as exc: print(type(exc).__name__)\n"
    )
    assert two.run("one", sys.executable, "-c", script).stdout.strip() == NotAllowedError.__name__


def test_the_client_asks_for_them(two: Mounted) -> None:
    for branch in ("one", "two"):
        (two.subtree(branch) / "sub/inner").write_text(f"{branch}\n")
    with ControlClient.connect(two.record().socket) as daemon:
        assert [each.path_bytes for each in daemon.overlaps().overlaps] == [b"sub/inner"]
