"""What watchers are told of ordinary programs on a real mount: everything, in order, of the right branch, by whom."""

import contextlib
import json
import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentfs_client import wire
from agentfs_client.control import ControlClient, EventStream
from agentfs_client.errors import DaemonGoneError, NotFoundError
from agentfsd.control.event_stream import LIMIT
from agentfsd.state import state_directory
from tests.mounted import AGENTFSD, Mounted, agentfsd, needs_namespaces, needs_root
from tests.rounds import rounds

WAIT_S = 20
BURST = 2000  # with its events nearly as many as wait for a slow reader


@pytest.fixture(autouse=True)
def _namespaces() -> None:
    needs_namespaces()


@contextlib.contextmanager
def watching(mounted: Mounted, branch: str | None = None) -> Iterator[EventStream]:
    with ControlClient.connect(mounted.record().socket, WAIT_S) as daemon, daemon.events(branch) as events:
        yield events


def until_marked(mounted: Mounted, events: EventStream, branch: str = "b") -> list[wire.Event]:
    """Everything that was told before a snapshot that is made now."""
    mounted.cli("snapshot create", "-b", branch, "mark")
    mounted.cli("snapshot delete", "mark")
    told: list[wire.Event] = []
    for event in events:
        if event.name == "mark":
            if event.kind == "snapshot-deleted":
                break
            continue
        if event.kind not in ("bound", "unbound"):
            told.append(event)
    return told


def command(mounted: Mounted, *arguments: str) -> subprocess.Popen[str]:
    """`agentfsd watch`, when it watches."""
    words = [*AGENTFSD, "watch", "-m", str(mounted.path), *arguments]
    mounted.started.append(subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    stderr = mounted.started[-1].stderr
    assert stderr is not None
    assert "watching" in stderr.readline()
    return mounted.started[-1]


def lines(told: list[wire.Event]) -> list[str]:
    return [f"{e.kind} {e.old_path + ' ' if e.old_path else ''}{e.path}{'/' * e.is_dir}{e.name}" for e in told]


SCRIPT = """
mkdir d; printf one > d/new; mv d/new d/moved; ln d/moved linked; ln -s d symlink; chmod 600 d/moved
setfattr -n user.x -v y d/moved 2>/dev/null || python3 -c 'import os; os.setxattr("d/moved", "user.x", b"y")'
: > file; mv d e; rm linked e/moved symlink; rmdir e; rm -r sub
"""
TOLD = [
    "created d/", "created d/new", "modified d/new", "renamed d/new d/moved", "created linked", "created symlink",
    "attributes d/moved", "attributes d/moved", "modified file", "renamed d e/", "deleted linked", "deleted e/moved",
    "deleted symlink", "deleted e/", "deleted sub/deep/leaf", "deleted sub/deep/", "deleted sub/inner", "deleted sub/",
]  # fmt: skip


@pytest.mark.parametrize("view", ["namespace", "pid", "subtree"])
def test_ordinary_programs_are_told_in_order(mounted: Mounted, view: str) -> None:
    mounted.cli("branch create", "b")
    with watching(mounted) as events:
        if view == "subtree":
            subprocess.run(["sh", "-ec", SCRIPT], cwd=mounted.subtree("b"), check=True)
        else:
            mounted.run("b", "sh", "-ec", SCRIPT, view=view)
        told = until_marked(mounted, events)
    found = lines(told)
    last = len(TOLD) - 4  # in which order rm removes what is in a directory is its own affair
    assert found[:last] == TOLD[:last]
    assert sorted(found[last:]) == sorted(TOLD[last:])
    assert found[-1] == "deleted sub/"
    assert {event.branch for event in told} == {"b"}
    assert all(event.pid > 0 for event in told)
    assert [event.time_ns for event in told] == sorted(event.time_ns for event in told)


@pytest.mark.parametrize(("view", "burst"), [("namespace", BURST), ("pid", rounds("files of a slow burst", 200, BURST))])
def test_nothing_is_lost_in_a_burst(mounted: Mounted, view: str, burst: int) -> None:
    mounted.cli("branch create", "b")
    script = f"""
import os
for number in range({burst}):
    with open(f"f{{number}}", "w") as file:
        file.write("x")
for number in range({burst}):
    os.rename(f"f{{number}}", f"g{{number}}")
for number in range({burst}):
    os.unlink(f"g{{number}}")
print(os.getpid())
"""
    with watching(mounted, "b") as events:
        pid = int(mounted.run("b", sys.executable, "-c", script, view=view).stdout.split()[0])
        told = until_marked(mounted, events)
    assert "lost" not in {event.kind for event in told}
    for kind, letter in (("created", "f"), ("modified", "f"), ("renamed", "g"), ("deleted", "g")):
        assert [e.path for e in told if e.kind == kind and e.path[:1] in "fg"] == [f"{letter}{n}" for n in range(burst)]
    assert {event.pid for event in told} == {pid}


def test_a_file_that_is_written_all_the_time_is_told_now_and_then(mounted: Mounted) -> None:
    mounted.cli("branch create", "b")
    script = """
import os, time
fd = os.open("file", os.O_WRONLY)
ends = time.monotonic() + 1
while time.monotonic() < ends:
    os.pwrite(fd, b"x", 0)
print(time.time_ns())
"""
    with watching(mounted, "b") as events:
        ended_ns = int(mounted.run("b", sys.executable, "-c", script).stdout.split()[0])
        time.sleep(0.5)
        told = until_marked(mounted, events)
    assert set(lines(told)) == {"modified file"}
    assert 3 <= len(told) <= 8
    assert told[-1].time_ns > ended_ns - 10**7


def test_a_write_is_told_before_the_snapshot_that_holds_it(mounted: Mounted) -> None:
    mounted.cli("branch create", "b")
    with watching(mounted, "b") as events:
        (mounted.subtree("b") / "file").write_text("first")
        with open(mounted.subtree("b") / "file", "a") as file:
            file.write("second")
        told = until_marked(mounted, events)
        assert lines(told) == ["modified file", "modified file"]


@pytest.mark.parametrize("io", ["passthrough", "cached", "zero-message"])
def test_data_is_told_whichever_way_it_goes(mounted: Mounted, io: str) -> None:
    if io == "passthrough":
        needs_root()
    mounted.cli("branch create", "b")
    script = """
import os, time
open("new", "w").close()
time.sleep(0.05)
with open("new", "r+b") as file:
    file.write(b"x" * 100000)
time.sleep(0.4)
fd = os.open("new", os.O_RDWR)
os.close(fd)
"""
    with watching(mounted, "b") as events:
        agentfsd("run", "-m", str(mounted.path), "--io", io, "-b", "b", "--", sys.executable, "-c", script, cwd=mounted.path)
        told = until_marked(mounted, events)
    assert lines(told)[0] == "created new"
    assert set(lines(told)[1:]) == {"modified new"}
    assert len(told) <= 3


def test_a_mapped_file_is_told_when_its_pages_come(mounted: Mounted) -> None:
    mounted.cli("branch create", "b")
    with watching(mounted, "b") as events:
        with open(mounted.subtree("b") / "file", "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
            mapped[:1] = b"L"
            mapped.flush()
        told = until_marked(mounted, events)
    assert set(lines(told)) == {"modified file"}


def test_requests_are_told_and_a_tree_that_is_replaced_is_one_event(mounted: Mounted) -> None:
    with watching(mounted) as events:
        mounted.cli("branch create", "a")
        mounted.cli("snapshot create", "-b", "a", "s")
        for number in range(50):
            (mounted.subtree("a") / f"f{number}").touch()
        mounted.cli("restore", "-b", "a", "s")
        sleeper = subprocess.Popen(["sleep", "60"])
        mounted.cli("bind", str(sleeper.pid), "a")
        mounted.cli("unbind", str(sleeper.pid))
        sleeper.kill()
        sleeper.wait()
        mounted.cli("branch rename", "a", "z")
        mounted.cli("snapshot delete", "s")
        (mounted.path / "new").touch()
        mounted.cli("merge", "main", "z")
        mounted.cli("undo")
        mounted.cli("discard", "z")
        mounted.cli("discard", "main")
        told = [next(events) for _ in range(63)]
    named = [f"{e.kind} {e.branch} {e.name}".rstrip() for e in told if not e.path]
    assert named == [
        "branch-created a", "snapshot a s", "restore a s", "bound a", "unbound a", "branch-renamed z a", "snapshot-deleted z s",
        "merge z main", "undo z z-1", "discard z", "branch-deleted z", "discard main",
    ]  # fmt: skip
    assert [e.pid for e in told if e.kind in ("bound", "unbound")] == [sleeper.pid] * 2
    assert [e.kind for e in told[2:52]] == ["created"] * 50


def test_the_stream_of_one_branch_tells_of_no_other_and_ends_with_it(mounted: Mounted) -> None:
    mounted.cli("branch create", "a")
    mounted.cli("branch create", "b")
    with watching(mounted, "a") as events:
        (mounted.subtree("b") / "x").touch()
        (mounted.path / "x").touch()
        (mounted.subtree("a") / "y").touch()
        mounted.cli("discard", "a")
        told = list(events)
    assert [(event.kind, event.path) for event in told] == [("created", "y"), ("discard", ""), ("branch-deleted", "")]


def test_a_bound_process_is_told_of_its_own_branch_only(mounted: Mounted) -> None:
    mounted.cli("branch create", "a")
    mounted.cli("branch create", "b")
    for view in ("namespace", "pid"):
        watcher = mounted.start(
            "a", *AGENTFSD, "watch", "-m", str(mounted.path), "--json", view=view, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert watcher.stdout is not None
        assert watcher.stderr is not None
        assert "watching" in watcher.stderr.readline()
        mounted.sh("b", f"touch other-{view}")
        mounted.sh("a", f"touch own-{view}")
        created = []
        while not created:
            event = json.loads(watcher.stdout.readline())
            assert event["branch"] == "a"
            created = [event["path"]] * (event["kind"] == "created")
        assert created == [f"own-{view}"]
        watcher.send_signal(signal.SIGTERM)
        watcher.wait(WAIT_S)
    for ref in ("b", "main"):
        refused = mounted.run("a", *AGENTFSD, "watch", "-m", str(mounted.path), ref, check=False)
        assert refused.returncode == 1
        assert "not for a process that is bound" in refused.stderr


def test_who_is_bound_elsewhere_meanwhile_is_told_no_more(mounted: Mounted) -> None:
    mounted.cli("branch create", "a")
    mounted.cli("branch create", "b")
    watcher = command(mounted)
    mounted.cli("bind", str(watcher.pid), "a")
    (mounted.subtree("b") / "x").touch()
    out, err = watcher.communicate(timeout=WAIT_S)
    assert out == ""
    assert "you are bound to a branch now, and get no events of other branches" in err


def test_watch_shows_lines_until_ctrl_c(mounted: Mounted) -> None:
    mounted.cli("branch create", "b")
    watcher = command(mounted, "b")
    assert watcher.stdout is not None
    os.mkdir(mounted.subtree("b") / "odd\nname")
    os.rename(mounted.subtree("b") / "odd\nname", mounted.subtree("b") / "d")
    assert watcher.stdout.readline().split()[1:] == ["created", "b", '"odd\\nname/"']
    assert watcher.stdout.readline().split()[1:] == ["renamed", "b", '"odd\\nname"', "->", "d/"]
    watcher.send_signal(signal.SIGINT)
    assert watcher.wait(WAIT_S) == 130


def test_names_that_are_no_utf8_are_exact(mounted: Mounted) -> None:
    mounted.cli("branch create", "b")
    with watching(mounted, "b") as events:
        os.mkdir(os.fsencode(mounted.subtree("b")) + b"/\xff")
        os.rename(os.fsencode(mounted.subtree("b")) + b"/\xff", os.fsencode(mounted.subtree("b")) + b"/\xfe")
        assert next(events).path_bytes == b"\xff"
        renamed = next(events)
    assert (renamed.old_path_bytes, renamed.path_bytes) == (b"\xff", b"\xfe")


def test_a_watcher_that_is_killed_or_does_not_read_hurts_nobody(mounted: Mounted) -> None:
    mounted.cli("branch create", "b")
    killed = command(mounted)
    with watching(mounted, "b") as events:
        script = f"import os\nfor n in range({2 * LIMIT // 3}):\n    os.mkdir('d')\n    os.rmdir('d')\n"
        working = mounted.start("b", sys.executable, "-c", script, view="namespace")
        time.sleep(1)
        killed.kill()
        assert working.wait(3 * WAIT_S) == 0
        assert mounted.fsck() == []
        assert "failed" not in Path(state_directory.StateDirectory(str(mounted.state)).log).read_text()
        told = 0
        while (event := next(events)).kind != "lost":
            told += 1
        assert told >= LIMIT
        assert told + event.count == 1 + 4 * LIMIT // 3 // 2 * 2  # with the binding of the command
        (mounted.subtree("b") / "later").mkdir()
        assert next(events).path == "later"


def test_only_the_socket_tells_events(mounted: Mounted) -> None:
    with ControlClient.open_mount(str(mounted.path)) as daemon, pytest.raises(OSError, match="socket only") as refused:
        daemon.events()
    assert "agentfsd watch" in refused.value.hint  # type: ignore[attr-defined]
    with ControlClient.connect(mounted.record().socket) as daemon, pytest.raises(NotFoundError):
        daemon.events("missing")


def test_the_stream_says_when_the_daemon_ends(mounted: Mounted) -> None:
    with watching(mounted) as events:
        os.kill(mounted.record().pid, signal.SIGTERM)
        with pytest.raises(DaemonGoneError):
            next(events)


def test_a_snapshot_is_no_watchable_branch(mounted: Mounted) -> None:
    mounted.cli("snapshot create", "-b", "main", "s")
    with ControlClient.connect(mounted.record().socket) as daemon, pytest.raises(NotFoundError):
        daemon.events("s")
