"""The terminal from which a run was started asks what its processes wait for, while nobody else uses it."""

import errno
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from agentfs_client import locate, registry, wire
from agentfs_client.control import ControlClient
from agentfs_client.errors import AgentFSError, gone
from agentfsd.cli import run_questions
from tests.mounted import AGENTFSD, Mounted, needs_fuse, needs_namespaces

WAIT_S = 30
QUESTION = "wants to read plain"
PROMPT = "Enter: leave it: "
READ_S = 0.7  # as long as nobody can have read the question, a line is not taken as its answer

# Reads keys, as a full-screen program does, while another process of the run waits; says what came, and leaves the screen.
SCREEN = """
import os, subprocess, sys, termios, tty
before = termios.tcgetattr(0)
tty.setraw(0)
waiting = subprocess.Popen(["cat", "plain"], stdin=subprocess.DEVNULL)
print("ready", end="\\r\\n", flush=True)
keys = b""
while not keys.endswith(b"q"):
    keys += os.read(0, 1)
termios.tcsetattr(0, termios.TCSANOW, before)
print("keys", keys.decode(), flush=True)
sys.exit(waiting.wait())
"""


def has_keeper(mounted: Mounted) -> registry.DaemonRecord:
    """The record, once the next daemon would be started."""
    deadline = time.monotonic() + WAIT_S
    while not (mounted.record().serves() and mounted.record().keeper):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return mounted.record()


class Screen:
    """A command on a terminal of its own, whose keyboard and screen are the test's."""

    def __init__(self, *command: str, cwd: Path) -> None:
        self.shown = self.whole = ""
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            os.execvp(command[0], command)

    def until(self, word: str) -> "Screen":
        """Wait for a word, and forget what was shown before it."""
        deadline = time.monotonic() + WAIT_S
        while word not in self.shown:
            assert time.monotonic() < deadline and self._read(1.0) is not None, f"no {word!r} in {self.shown!r}"
        self.shown = self.shown.partition(word)[2]
        return self

    def type(self, text: str, after_s: float = READ_S) -> "Screen":
        time.sleep(after_s)
        os.write(self._terminal, text.encode())
        return self

    def shows_for(self, seconds: float) -> str:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._read(0.1)
        return self.shown

    def end(self) -> int:
        while self._read(WAIT_S) is not None:
            pass
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self.pid = 0
        return code

    def close(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._terminal)

    def _read(self, wait_s: float) -> str | None:
        if not select.select([self._terminal], [], [], wait_s)[0]:
            return ""
        try:
            part = os.read(self._terminal, 1 << 16).decode(errors="replace")
        except OSError:  # EIO: nobody has the other end any more
            return None
        self.shown += part
        self.whole += part
        return part


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounted]:
    needs_fuse()
    needs_namespaces()
    base = tmp_path_factory.mktemp("asked")
    mounted = Mounted(base)
    for name in ("plain", "other"):
        (mounted.lower / name).write_text(f"the {name} text\n")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("AGENTFS_RUNTIME_DIR", str(base / "run"))
        try:
            yield mounted.mount()
        finally:
            patched.setenv("AGENTFS_RUNTIME_DIR", str(base / "run"))
            mounted.end()


@pytest.fixture
def screen(shared: Mounted, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Screen]]:
    """Starts a command in a branch of the test's own, in which a rule says `ask plain`."""
    monkeypatch.setenv("AGENTFS_RUNTIME_DIR", str(shared.path.parent / "run"))
    monkeypatch.delenv("AGENTFS_ASKPASS", raising=False)
    branch = re.sub("[^a-z]+", "-", request.node.name).strip("-")
    shared.cli("branch create", branch)
    shared.cli("rules add", "-b", branch, "ask plain", "ask other")
    screens: list[Screen] = []

    def start(*command: str) -> Screen:
        screens.append(Screen(*AGENTFSD, "run", "-m", str(shared.path), "-b", branch, "--", *command, cwd=shared.path))
        return screens[-1]

    yield start
    for each in screens:
        each.close()


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("key", "text", "again"), [("a", True, True), ("s", True, False), ("r", True, False), ("d", False, True), ("n", False, False)]
)
def test_a_letter_answers(screen: Callable[..., Screen], key: str, text: bool, again: bool) -> None:
    """``again``: the next process is asked about."""
    command = ("sh", "-c", "cat plain; cat plain; echo code=$?")
    run = screen(*command).until(QUESTION).until(PROMPT).type(f"{key}\n")
    if again:
        run.until(QUESTION).until(PROMPT).type("d\n")
    run.until("code=0" if text and not again else "code=1")
    assert run.end() == 0


def test_an_answer_is_said_and_given(screen: Callable[..., Screen], shared: Mounted) -> None:
    run = screen("cat", "plain").until(QUESTION).until(PROMPT).type("x\n").until(PROMPT).type("r\n")
    assert run.end() == 0
    assert "allowed for good, by a rule: cat (" in run.shown
    assert "the plain text" in run.shown
    assert "/plain" in {rule["pattern"] for rule in shared.json("rules", "-b", "test-an-answer-is-said-and-given")}


def test_what_was_typed_before_the_question_is_no_answer(screen: Callable[..., Screen]) -> None:
    run = screen("sh", "-c", "echo rea''dy; sleep 1; cat plain").until("ready").type("a\n", 0).until(PROMPT)
    run.type("a\n", 0.05).until(PROMPT)
    assert "the plain text" not in run.shows_for(1)
    run.type("a\n").until("the plain text")
    assert run.end() == 0


def test_a_full_screen_program_keeps_screen_and_keyboard(screen: Callable[..., Screen]) -> None:
    run = screen(sys.executable, "-c", SCREEN).until("ready").until("\a")
    assert run.shows_for(1) == ""
    run.type("aq").until("keys aq").until(QUESTION).until(PROMPT).type("a\n").until("the plain text")
    assert run.end() == 0


def test_a_line_goes_to_the_program_that_waits_for_one(screen: Callable[..., Screen]) -> None:
    run = screen("sh", "-c", "{ sleep 1; cat plain; } & read x; echo got=$x; wait $!").until(QUESTION).until("asks answer")
    run.type("a\n").until("got=a").until(QUESTION).until(PROMPT).type("a\n").until("the plain text")
    assert run.end() == 0


def test_a_shell_in_the_run_keeps_its_jobs(screen: Callable[..., Screen]) -> None:
    run = screen("env", "PS1=$ ", "bash", "--norc", "--noprofile", "-i").until("$ ").type("cat plain\n").until(PROMPT).type("a\n")
    run.until("the plain text").until("$ ").type("cat plain; echo co''de=$?\n").until(PROMPT)
    run.type("\x03").until("$ ").type("echo still he''re; cat other\n").until("still here").until("wants to read other")
    run.until(PROMPT).type("d\n").until("denied this time")  # the shell's prompt comes before that line, or after it
    run.type("jobs; echo no''jobs; exit\n").until("nojobs")
    assert "Stopped" not in run.whole
    assert run.end() in (0, 1)


def test_a_question_answered_elsewhere_is_withdrawn(screen: Callable[..., Screen], shared: Mounted) -> None:
    run = screen("sh", "-c", "cat plain; read x; echo got=$x").until(PROMPT)
    with ControlClient.connect(str(shared.record().socket)) as client:
        (question,) = client.list_asks()
        client.answer_ask(question.id, allow=True)
    run.until("the plain text").type("a\n").until("got=a")
    assert run.end() == 0


def test_a_question_can_be_left_and_the_command_interrupted(screen: Callable[..., Screen]) -> None:
    run = screen("cat", "plain").until(PROMPT).type("\n").until("asks answer").type("\x03")
    assert run.end() == 128 + signal.SIGINT


@pytest.mark.parametrize(("code", "shown"), [(0, "the plain text"), (1, "denied")])
def test_a_program_of_the_person_asks_beside_a_full_screen_program(
    screen: Callable[..., Screen], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, shown: str
) -> None:
    program = tmp_path / "askpass"
    program.write_text(f'#!/bin/sh\necho "$SSH_ASKPASS_PROMPT $1" > {tmp_path}/asked\nexit {code}\n')
    program.chmod(0o755)
    monkeypatch.setenv("AGENTFS_ASKPASS", str(program))
    run = screen(sys.executable, "-c", SCREEN).until("the plain" if code == 0 else "ermission " + shown).type("q").until("keys q")
    assert run.end() == code
    assert (tmp_path / "asked").read_text().startswith("confirm agentfsd: cat (")


def test_the_next_daemon_asks_again(screen: Callable[..., Screen], shared: Mounted) -> None:
    run = screen("cat", "plain").until(PROMPT)
    pid = has_keeper(shared).pid
    os.kill(pid, signal.SIGSTOP)
    run.type("a\n")
    time.sleep(READ_S)
    os.kill(pid, signal.SIGKILL)
    run.until(QUESTION).until(PROMPT).type("a\n").until("the plain text")
    assert run.end() == 0


class Conversation:
    """A conversation with a daemon that asks, and then is killed or takes the answer."""

    def __init__(self, pid: int, *numbers: int, is_killed: bool = False) -> None:
        self._is_killed, self.answered = is_killed, False
        self._asked = [
            wire.PathQuestion(id=number, branch="b", pid=pid, command="cat", path="p", what="read", asked_ns=1)
            for number in numbers
        ]

    def list_asks(self, *_: object, **__: object) -> list[wire.PathQuestion]:
        if self.answered:
            raise gone("the test ends", errno.ENOTCONN)
        return self._asked

    def answer_ask(self, number: int, **_: object) -> wire.PathQuestion:
        assert number == self._asked[0].id
        if self._is_killed:
            raise gone("the daemon has ended", errno.EPIPE)
        self.answered = True
        return self._asked[0]


def test_an_answer_that_a_killed_daemon_did_not_take_is_given_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTFS_ASKPASS", "true")
    monkeypatch.setattr(run_questions, "RunTerminal", lambda pid: os.open("/dev/null/tty", os.O_RDWR))
    with subprocess.Popen(["sleep", "20"]) as asker:
        killed, watching = Conversation(asker.pid, 1, is_killed=True), Conversation(asker.pid, 1, 1001)
        daemons = [killed, watching, following := Conversation(asker.pid, 1001)]
        mount = cast(locate.Mount, SimpleNamespace(connect=lambda: daemons.pop(0)))
        try:
            with pytest.raises(AgentFSError, match="the test ends"):
                run_questions.RunQuestions(mount, "b", os.getpid()).follow()
        finally:
            asker.kill()
    assert following.answered


def test_nothing_is_left_when_the_run_is_killed(screen: Callable[..., Screen], shared: Mounted) -> None:
    run = screen("cat", "plain").until(PROMPT)
    asking = subprocess.run(["pgrep", "-f", f"run_questions .* {run.pid}$"], capture_output=True, text=True, check=True)
    os.kill(run.pid, signal.SIGKILL)
    deadline = time.monotonic() + WAIT_S
    while Path(f"/proc/{asking.stdout.strip()}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
