"""Shows text to a person, through a pager if it is longer than the terminal. It does not know what the text is about."""

import itertools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator

from agentfsd.cli.output import printing


def show(lines: Iterable[str], *, wanted: bool = True) -> None:
    """Print lines; if they do not fit on the terminal, through $AGENTFS_PAGER, $PAGER or less.

    Leaving the pager early is no error. The rest of *lines* is then not read.

    Args:
        lines: The lines, escaped, without line ends.
        wanted: A pager may be used.
    """
    rest = iter(lines)
    command = _command() if wanted and sys.stdout.isatty() else ""
    if command:
        screen = list(itertools.islice(rest, shutil.get_terminal_size().lines))
        if len(screen) == shutil.get_terminal_size().lines:
            _page(command, itertools.chain(screen, rest))
            return
        rest = iter(screen)
    _write(rest)


def _command() -> str:
    """Return the pager's command line for the shell, "" for none."""
    for name in ("AGENTFS_PAGER", "PAGER"):
        chosen = os.environ.get(name)
        if chosen is not None:
            return "" if chosen.strip() == "cat" else chosen.strip()
    return "less" if shutil.which("less") else ""


def _write(lines: Iterator[str]) -> None:
    for line in lines:
        printing.say_ready(line)


def _page(command: str, lines: Iterator[str]) -> None:
    environment = {"LESS": "FRX", "LV": "-c", **os.environ}
    sys.stdout.flush()
    old = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is a key of the pager
    try:
        pager = subprocess.Popen(command, shell=True, stdin=subprocess.PIPE, env=environment, preexec_fn=_interruptible)
        assert pager.stdin is not None
        try:
            with pager.stdin as pipe:
                for line in lines:
                    pipe.write(line.encode("utf-8", "surrogateescape") + b"\n")
        except BrokenPipeError:
            pass
        finally:
            pager.wait()
    finally:
        signal.signal(signal.SIGINT, old)


def _interruptible() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
