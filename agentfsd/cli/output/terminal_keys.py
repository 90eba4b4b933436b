"""Reads single keys from a terminal as they are pressed."""

import os
import select
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def unbuffered() -> Iterator[Callable[[float], str]]:
    """Give a function that waits for a key for so many seconds and returns it, or "" for none. Ctrl-C stays a signal."""
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)

    def pressed(wait_s: float) -> str:
        if not select.select([fd], [], [], wait_s)[0]:
            return ""
        return os.read(fd, 64).decode("latin-1")[-1:] or "q"  # end of file: the terminal has gone

    tty.setcbreak(fd)
    try:
        yield pressed
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
