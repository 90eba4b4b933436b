"""Asks the person who started a run what its processes wait for.

`agentfsd run` starts this process where a rule of the branch says `ask`. It asks at the terminal while nobody else uses that.
While a program reads keys there, it starts $AGENTFS_ASKPASS, as ssh-add -c starts $SSH_ASKPASS, or rings the bell and asks when
the program has left the screen. It must never know what a rule is.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

from agentfs_client import locate, wire
from agentfs_client.errors import AgentFSError, DaemonGoneError, NotFoundError
from agentfsd.cli import path_answers
from agentfsd.cli.connect import mount_finder
from agentfsd.cli.output import printing
from agentfsd.cli.output.run_terminal import RunTerminal, Withdrawn
from agentfsd.cli.sandbox.runner import descendants

PROGRAM = "AGENTFS_ASKPASS"
_LOOK_S = 0.3
_END_S = 5.0


class RunQuestions:
    """The questions of one run.

    Args:
        mount: The mount.
        branch: The run's branch.
        run_pid: The run's process.

    Attributes:
        answering: Held while an answer is given and printed.
    """

    def __init__(self, mount: locate.Mount, branch: str, run_pid: int) -> None:
        self._mount = mount
        self._daemon, self._watching = mount.connect(), mount.connect()
        self._branch, self._run_pid = branch, run_pid
        self._passed: set[int] = set()  # of other runs, or left to others
        self._told: set[int] = set()
        self.answering = threading.Lock()
        try:
            self._terminal: RunTerminal | None = RunTerminal(run_pid)
        except OSError:
            self._terminal = None

    def follow(self) -> None:
        """Ask each question as it comes. Ends with the daemon, by AgentFSError."""
        unanswered: list[wire.PathQuestion] = []
        while True:
            asked = self._daemon.list_asks(self._branch, wait=not unanswered, known=sorted(self._passed))
            running = descendants(self._run_pid)
            unanswered = [question for question in asked if question.id not in self._passed and question.pid in running]
            self._passed |= {question.id for question in asked} - {question.id for question in unanswered}
            for question in unanswered:
                self._meet(question)
            if unanswered:
                time.sleep(_LOOK_S)

    def _meet(self, question: wire.PathQuestion) -> None:
        use = self._terminal.use() if self._terminal is not None else "gone"
        if self._terminal is not None and use == "free":
            self._ask(self._terminal, question)
        elif question.id not in self._told:
            self._told.add(question.id)
            if not self._ask_program(question):
                self._tell(question, is_screen=use == "screen")

    def _tell(self, question: wire.PathQuestion, *, is_screen: bool) -> None:
        if is_screen and self._terminal is not None:
            self._terminal.ring()
            return
        printing.note(path_answers.sentence(question))
        printing.detail(path_answers.how_to(question))

    def _ask(self, terminal: RunTerminal, question: wire.PathQuestion) -> None:
        text = f"agentfsd: {printing.printable(path_answers.sentence(question))}\n{path_answers.PROMPT}: "
        try:
            letter = terminal.ask(text, lambda: self._is_over(question))
            while letter not in path_answers.KEYS:
                letter = terminal.ask(f"{path_answers.PROMPT}: ", lambda: self._is_over(question))
        except Withdrawn as exc:
            if exc.left:
                self._passed.add(question.id)
            return
        except OSError:
            return  # the terminal has gone
        chosen = path_answers.KEYS[letter]
        if chosen is None:
            self._passed.add(question.id)
            terminal.write(f"  {path_answers.how_to(question)}\n")
            return
        with self.answering:  # the command may end before the answer is on the screen
            terminal.write(f"agentfsd: {self._answer(question, *chosen)}\n")

    def _answer(self, question: wire.PathQuestion, allow: bool, lasts: path_answers.Lasts) -> str:
        try:
            return printing.printable(path_answers.answer(self._daemon, question.id, allow, lasts))
        except NotFoundError as exc:  # it came too late
            return printing.printable(exc.message)
        except DaemonGoneError:  # the next daemon asks again what was not answered
            self._daemon = self._mount.connect()
            return "the daemon was killed: it asks again unless it had taken the answer"

    def _ask_program(self, question: wire.PathQuestion) -> bool:
        """Have the person's program ask: 0 allows once, any other exit code denies. False if there is none."""
        program = os.environ.get(PROGRAM)
        if not program:
            return False
        text = printing.printable(f"agentfsd: {path_answers.sentence(question)}. Allow it?")
        env = {**os.environ, "SSH_ASKPASS_PROMPT": "confirm"}
        null = subprocess.DEVNULL
        try:
            process = subprocess.Popen([program, text], stdin=null, stdout=null, env=env, start_new_session=True)
        except OSError as exc:
            printing.note(f"{PROGRAM}: {program}: {exc.strerror}")
            return False
        with process:
            while process.poll() is None:
                time.sleep(_LOOK_S)
                if self._is_over(question):
                    process.terminate()
                    return True
        self._answer(question, process.returncode == 0, "once")
        return True

    def _is_over(self, question: wire.PathQuestion) -> bool:
        try:
            return all(each.id != question.id for each in self._watching.list_asks(self._branch))
        except AgentFSError:
            return True


@contextlib.contextmanager
def asked(mountpoint: str, branch: str) -> Iterator[None]:
    """Ask the questions of this process's run during the block. Call it before the command is bound.

    Whatever the run's process is the parent of is bound, and may answer nothing. So another process starts the one that asks, and
    ends. That one knows from a socket when the run is over, also by SIGKILL.
    """
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            child = os.fork()
            if child == 0:
                _start(theirs, [sys.executable, "-P", "-m", __name__, mountpoint, branch, str(os.getppid())])
            os.waitpid(child, 0)
        try:
            yield
        finally:
            ours.shutdown(socket.SHUT_WR)
            ours.settimeout(_END_S)
            with contextlib.suppress(OSError):
                ours.recv(1)  # returns when it has ended, and has given the terminal back


def _start(theirs: socket.socket, command: list[str]) -> None:
    """Run in the child. It never returns."""
    try:
        if os.fork() == 0:
            os.dup2(theirs.fileno(), 0)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.execv(command[0], command)
    finally:
        os._exit(0)


def _end_with_run(socket_fd: int, answering: threading.Lock) -> None:
    """Wait for the end of the run, and end this process."""
    os.read(socket_fd, 1)
    with answering:
        os.kill(os.getpid(), signal.SIGTERM)


def main(mountpoint: str, branch: str, run_pid: str) -> None:
    """Ask until the run's process, whose socket is standard input, or the daemon ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        questions = RunQuestions(mount_finder.find(mountpoint), branch, int(run_pid))
        threading.Thread(target=_end_with_run, args=(0, questions.answering), daemon=True).start()
        questions.follow()
    except AgentFSError:
        return  # the daemon has ended; or this run is in another, whose person is asked


if __name__ == "__main__":
    main(*sys.argv[1:])
