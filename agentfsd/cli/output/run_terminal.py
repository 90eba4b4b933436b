"""The terminal from which a run was started: who uses it now, and a question there while nobody else does.

The command has the same terminal. So a question is only asked while the terminal is in line mode, one of the run's process groups
has it, and no process waits for a line from it, which would get the answer. When that ends, the question is withdrawn.
"""

import contextlib
import os
import signal
import termios
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Literal

from agentfs_client import registry
from agentfsd.cli.sandbox.runner import descendants

_LOOK_S = 0.2
_TOO_SOON_S = 0.5  # nobody has read the question yet: the line was meant for the command
_READS = {"x86_64": ("0", "19"), "aarch64": ("63", "65")}  # numbers of read(2) and readv(2)
_DEV_TTY = os.makedev(5, 0)

Use = Literal["free", "lines", "screen", "gone"]


class Withdrawn(Exception):
    """The question was not answered: it may be asked again. ``left``: the person pressed Ctrl-C, and wants no question."""

    def __init__(self, *, left: bool) -> None:
        super().__init__()
        self.left = left


class RunTerminal:
    """The controlling terminal of this process, a child of the run's. Only the first thread may use it.

    It sets this process's handlers for SIGINT and SIGUSR1.

    Args:
        run_pid: The run's process, of which the command is a child.

    Raises:
        OSError: There is no controlling terminal.
    """

    def __init__(self, run_pid: int) -> None:
        self._fd = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        self._device = int(registry.stat_fields(os.getpid())[4])
        self._run_pid = run_pid
        self._reading = self._is_left = False
        for number in (signal.SIGTTIN, signal.SIGTTOU):  # from the background: reads fail, and the rest is permitted
            signal.signal(number, signal.SIG_IGN)
        for number in (signal.SIGINT, signal.SIGUSR1):
            signal.signal(number, self._interrupt)

    def use(self) -> Use:
        """Return who uses the terminal.

        Returns:
            free: nobody; lines: another job, or a program that reads a line; screen: a program that reads keys, or a secret;
            gone: there is no terminal any more.
        """
        try:
            group = os.tcgetpgrp(self._fd)
            if not self._is_in_line_mode():
                return "screen"
        except (OSError, termios.error):
            return "gone"
        running = descendants(self._run_pid)
        is_ours = group == os.getpgrp() or any(_group_of(pid) == group for pid in running)
        return "free" if is_ours and not any(self._is_reading(pid) for pid in running) else "lines"

    def ring(self) -> None:
        """Ring the bell, which changes nothing on a screen."""
        self.write("\a")

    def write(self, text: str) -> None:
        """Write text, whose characters the caller has escaped."""
        with contextlib.suppress(OSError):
            os.write(self._fd, text.encode())

    def ask(self, text: str, is_over: Callable[[], bool]) -> str:
        """Print a question and return the line that answers it.

        Args:
            text: The question.
            is_over: Called by another thread, until there is an answer: whether the question needs none any more.

        Raises:
            Withdrawn: It is over, the terminal is no longer free, or Ctrl-C was pressed.
        """
        self._is_left = False
        with self._in_foreground(), self._watched(is_over):
            termios.tcflush(self._fd, termios.TCIFLUSH)  # what was typed before was meant for the command
            self.write(text)
            asked = time.monotonic()
            while True:
                line = self._read_line()
                if time.monotonic() > asked + _TOO_SOON_S:
                    return line
                self.write(text)

    def _read_line(self) -> str:
        """Read in one system call: so lines go to those who wait for them in turn, and nobody comes between."""
        try:
            self._reading = True
            line = os.read(self._fd, 4096)
            self._reading = False
        except (OSError, Withdrawn):  # EIO: we are in the background
            self._reading = False
            self.write("\n")
            raise Withdrawn(left=self._is_left) from None
        return line.decode(errors="replace").strip()

    def _interrupt(self, number: int, _frame: FrameType | None) -> None:
        self._is_left |= number == signal.SIGINT
        if self._reading:
            raise Withdrawn(left=self._is_left)

    @contextlib.contextmanager
    def _in_foreground(self) -> Iterator[None]:
        """Take the terminal from a job of an interactive shell in the run, and give it back; Ctrl-C is passed on to the job."""
        before, ours = os.tcgetpgrp(self._fd), os.getpgrp()
        if before == ours:
            yield
            return
        os.tcsetpgrp(self._fd, ours)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # the job has ended, and the shell has the terminal again
                if os.tcgetpgrp(self._fd) == ours:
                    os.tcsetpgrp(self._fd, before)
                if self._is_left:
                    os.killpg(before, signal.SIGINT)

    @contextlib.contextmanager
    def _watched(self, is_over: Callable[[], bool]) -> Iterator[None]:
        ended = threading.Event()
        reader = threading.get_ident()

        def watch() -> None:
            while not ended.wait(_LOOK_S):
                if not self._is_ours() or is_over():
                    signal.pthread_kill(reader, signal.SIGUSR1)

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()

    def _is_ours(self) -> bool:
        try:
            return os.tcgetpgrp(self._fd) == os.getpgrp() and self._is_in_line_mode()
        except (OSError, termios.error):
            return False

    def _is_in_line_mode(self) -> bool:
        wanted = termios.ICANON | termios.ECHO
        return bool(termios.tcgetattr(self._fd)[3] & wanted == wanted)

    def _is_reading(self, pid: int) -> bool:
        """Return whether a thread of a process waits in read(2) for a line from the terminal."""
        with contextlib.suppress(OSError):
            return any(self._is_thread_reading(f"/proc/{pid}/task/{tid}") for tid in os.listdir(f"/proc/{pid}/task"))
        return False

    def _is_thread_reading(self, thread: str) -> bool:
        with contextlib.suppress(OSError):
            with open(f"{thread}/syscall") as file:
                number, *arguments = file.read().split()
            if number in _READS.get(os.uname().machine, ()):
                link = f"{thread}/fd/{int(arguments[0], 16)}"
                return not os.readlink(link).startswith(("pipe:", "socket:")) and os.stat(link).st_rdev in (
                    self._device,
                    _DEV_TTY,
                )
        return False


def _group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0
