r"""Standard input as lines that any JSON parser takes: half of a surrogate pair (`\ud800`) becomes U+FFFD.

A client that cuts a text within a character sends such halves, as JavaScript's strings hold them. The parser of the package `mcp`
refuses the whole message then, and the client would never get an answer.
"""

import os
import re
import sys
from typing import TextIO

_ESCAPE = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2}|\\.")
_HALF_CHARACTERS = 6
_MAYBE = re.compile(r"\\u[dD][89a-fA-F]")


def without_halves(line: str) -> str:
    """Return a line of JSON with U+FFFD for each half of a surrogate pair that is alone."""
    return _ESCAPE.sub(_whole, line) if _MAYBE.search(line) else line


def _whole(escape: re.Match[str]) -> str:
    return r"\ufffd" if len(escape[0]) == _HALF_CHARACTERS else escape[0]


class MessageLines:
    """The lines of a stream of text, for anyio's wrap_file, which asks for nothing else."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def readline(self) -> str:
        return without_halves(self._stream.readline())


def claim() -> MessageLines:
    """Take standard input over: whatever else reads it in this process from now on finds its end."""
    private = os.dup(sys.stdin.fileno())
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, sys.stdin.fileno(), inheritable=True)
    os.close(nothing)
    return MessageLines(open(private, encoding="utf-8", errors="replace", closefd=False))
