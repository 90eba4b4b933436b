"""Programs that wait for something while the daemon is killed or replaced: for a person's answer, and for inotify's events."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agentfs_client import wire
from agentfs_client.control import ControlClient
from agentfsd.lower import inotify
from tests.mounted import Mounted, needs_namespaces
from tests.system.survival.killing import has_keeper, kill_daemon, until

VIEWS = ["pid", "namespace"]


@pytest.fixture
def mounted(tmp_path: Path, make_mount: Callable[..., Mounted], monkeypatch: pytest.MonkeyPatch) -> Mounted:
    monkeypatch.setenv("AGENTFS_RESTARTS_PER_MINUTE", "1000")
    lower = tmp_path / "lower"
    lower.mkdir()
    (lower / "sub").mkdir()
    (lower / "secret").write_text("of the lower\n")
    made = make_mount(lower)
    made.cli("branch create", "fix")
    return made


@pytest.fixture(params=VIEWS)
def view(request: pytest.FixtureRequest) -> str:
    if request.param == "namespace":
        needs_namespaces()
    return str(request.param)


def question(mounted: Mounted, known: list[int]) -> wire.PathQuestion:
    """The next one."""
    with ControlClient.connect(has_keeper(mounted).socket, timeout_s=60) as client:
        return client.list_asks(wait=True, known=known)[-1]


ASKING = """
import errno, os, signal, sys
signal.signal(signal.SIGUSR1, lambda *_: None)
try:
    fd = os.open(sys.argv[1], int(sys.argv[2]), 0o600)
    print("opened", os.read(fd, 20) if int(sys.argv[2]) == os.O_RDONLY else "", flush=True)
except OSError as exc:
    print(errno.errorcode[exc.errno], flush=True)
"""


def asking(mounted: Mounted, view: str, path: str = "secret", flags: int = os.O_RDONLY) -> subprocess.Popen[str]:
    mounted.cli("rules add", "-b", "fix", "ask secret", "ask sub/new")
    return mounted.start("fix", sys.executable, "-c", ASKING, path, str(flags), view=view, stdout=subprocess.PIPE)


@pytest.mark.sample(2)
@pytest.mark.parametrize(("answer", "outcome"), [("allow", "opened b'of the lower\\n'\n"), ("deny", "EACCES\n")])
def test_question_is_asked_again_by_the_next_daemon(mounted: Mounted, view: str, answer: str, outcome: str) -> None:
    program = asking(mounted, view)
    asked = [question(mounted, []).id]
    for replace in (kill_daemon, kill_daemon, lambda mounted: mounted.cli("restart")):
        replace(mounted)
        again = question(mounted, asked)
        assert (again.path, again.what) == ("secret", "read")
        assert again.id not in asked
        asked.append(again.id)
        assert mounted.cli("asks answer", str(asked[0]), "allow", check=False).returncode == 1
        assert program.poll() is None
    mounted.cli("asks answer", str(asked[-1]), answer)
    assert program.communicate(timeout=60)[0] == outcome


def test_new_file_that_is_asked_about_is_made_once(mounted: Mounted, view: str) -> None:
    program = asking(mounted, view, "sub/new", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    first = question(mounted, [])
    kill_daemon(mounted)
    mounted.cli("asks answer", str(question(mounted, [first.id]).id), "allow")
    assert program.communicate(timeout=60)[0] == "opened \n"


def test_question_that_nobody_answers_ends_after_a_kill_as_before(mounted: Mounted) -> None:
    mounted.cli("policy set", "asks.timeout", "3s")
    program = asking(mounted, "pid")
    question(mounted, [])
    kill_daemon(mounted)
    assert program.communicate(timeout=60)[0] == "EACCES\n"
    assert mounted.json("asks") == []


@pytest.mark.sample(2)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGUSR1])
def test_question_ends_with_its_process_after_a_kill(mounted: Mounted, view: str, number: signal.Signals) -> None:
    program = asking(mounted, view)
    first = question(mounted, [])
    kill_daemon(mounted)
    again = question(mounted, [first.id])
    os.kill(again.pid, number)
    if number == signal.SIGUSR1:  # Python calls open(2) again
        until(lambda: [each["id"] for each in mounted.json("asks")] not in ([], [again.id]))
        program.kill()
        os.kill(again.pid, signal.SIGKILL)
    program.wait(60)
    until(lambda: mounted.json("asks") == [])


INOTIFY = """
import os, sys, time
from agentfs_host import syscalls
from agentfsd.lower import inotify
queue = syscalls.inotify_init()
watched = {syscalls.inotify_add_watch(queue, place.encode(), inotify_mask): place for place in (".", "sub", "secret")}
print("watches", flush=True)
while os.getppid() != 1:
    for watch, mask, name in inotify.events(queue):
        print(watched[watch], hex(mask), name.decode(), flush=True)
    time.sleep(0.01)
""".replace("inotify_mask", hex(inotify.CREATE | inotify.DELETE | inotify.MODIFY | inotify.MOVED_FROM | inotify.MOVED_TO))
DEEDS = ": >sub/a; echo x >>secret; mv sub/a sub/b; rm sub/b; : >new; rm new"
EVENTS = [
    "sub 0x100 a", ". 0x2 secret", "secret 0x2 ", "sub 0x40 a", "sub 0x80 b", "sub 0x200 b", ". 0x100 new", ". 0x200 new"
]  # fmt: skip


@pytest.mark.sample(1)
def test_inotify_tells_the_same_as_before(mounted: Mounted, view: str, tmp_path: Path) -> None:
    told = tmp_path / "told"
    with told.open("w") as file:
        mounted.start("fix", sys.executable, "-c", INOTIFY, view=view, stdout=file)
    until(lambda: told.read_text() == "watches\n")
    for number in range(1, 5):
        before = has_keeper(mounted)
        if number == 2:
            kill_daemon(mounted)
        elif number == 3:
            mounted.cli("restart")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        program = mounted.start("fix", "sh", "-ec", f"echo begun; read go; {DEEDS}", view=view, **pipes)
        assert program.stdout is not None
        assert program.stdout.readline() == "begun\n"
        if number == 4:
            os.kill(before.pid, signal.SIGKILL)
        program.communicate("go\n", timeout=60)
        until(lambda: len(told.read_text().splitlines()) > number * len(EVENTS))  # noqa: B023 - called at once
        assert told.read_text().splitlines()[1:] == EVENTS * number
