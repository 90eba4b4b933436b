"""Real processes that make descendants when told to."""

import os
import signal
import subprocess
import sys

ORPHAN = """
if os.fork() == 0:
    os.setsid()
    if (pid := os.fork()) == 0:
        os.close(1)
        time.sleep(60)
    print(pid, flush=True)
    os._exit(0)
os.wait()
"""


class Child:
    """A Python process that makes descendants when told to, and prints their numbers."""

    def __init__(self, script: str = "", *, stdin: bool = False) -> None:
        body = "import os, sys, threading, time, ctypes\n" + script + "\nprint('ready', flush=True)\ntime.sleep(60)"
        self.process = subprocess.Popen(
            [sys.executable, "-c", body], stdin=subprocess.PIPE if stdin else None, stdout=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        self.numbers: list[int] = []
        self.pid = self.process.pid
        if not stdin:
            self._read_numbers()

    def go_on(self) -> int:
        """Lets a child that waits for a line go on; the number it prints."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.close()
        self._read_numbers()
        return self.numbers[-1]

    def _read_numbers(self) -> None:
        assert self.process.stdout is not None
        while (line := self.process.stdout.readline()) != "ready\n":
            assert line, "the child died"
            self.numbers.append(int(line))

    def end(self) -> None:
        for number in self.numbers:
            if number != self.pid:
                try:
                    os.kill(number, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
