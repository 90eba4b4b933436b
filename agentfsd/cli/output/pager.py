"""Text for a person: through a pager when it is longer than the terminal. It must never know what the text is about."""

import itertools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator

from agentfsd.cli.output import printing


def show(lines: Iterable[str], *, wanted: bool = True) -> None:
    """Writes lines (escaped, without their ends); on a terminal that they overflow through $AGENTFS_PAGER, $PAGER or less.

    A pager that is left early is no error, and nothing more is made of *lines* then.
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
    """A shell's command line; "" for none."""
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
    old = signal.signal(signal.SIGINT, signal.SIG_IGN)  # the interrupt key is the pager's
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
