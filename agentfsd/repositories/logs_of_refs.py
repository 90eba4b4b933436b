"""Reflogs, as text: what a ref was before, line by line. Source: git-reflog(1)."""

import time
from collections.abc import Iterator
from typing import Protocol


class RefMove(Protocol):
    """Of a ref: from which object to which, and why. An empty id: there was none, or is none any more."""

    @property
    def old(self) -> bytes: ...
    @property
    def new(self) -> bytes: ...
    @property
    def why(self) -> str: ...


def entry(moved: RefMove, who: bytes) -> bytes:
    """One line. *who*: ``NAME <ADDRESS>``."""
    zero = b"0" * len(moved.new)
    why = moved.why.replace("\n", " ").encode("utf-8", "backslashreplace")
    return (moved.old or zero) + b" " + moved.new + b" " + who + b" %d +0000\tagentfsd: " % time.time() + why + b"\n"


def join(base: bytes | None, ours: bytes | None, theirs: bytes | None, last: bytes, *, under: bool = False) -> bytes | None:
    """All lines of both, and *last* unless the newest of theirs says the same; None for no log.

    A log that only they changed is theirs. *under*: their lines go beneath those that we added (a stash's top stays ours).
    """
    if ours == base and theirs is not None:
        made = theirs
    elif theirs is None or theirs == base:
        made = ours or b""
    else:
        known = {*(base or b"").splitlines(), *(ours or b"").splitlines()}
        more = [line for line in theirs.splitlines(keepends=True) if line.rstrip(b"\n") not in known]
        lines = (ours or b"").splitlines(keepends=True)
        shared = len((base or b"").splitlines()) if under and (ours or b"").startswith(base or b"") else len(lines)
        made = b"".join(_chained([*lines[:shared], *more, *lines[shared:]]))
    if last and _new(made) != last.split(b" ", 2)[1]:
        made += last
    return made or None


def _chained(lines: list[bytes]) -> Iterator[bytes]:
    """Each line as it would be had the one before it come first: git stops at a line that tells of a new ref."""
    before = b""
    for line in lines:
        old, _, rest = line.partition(b" ")
        yield (before or old) + b" " + rest
        before = rest.partition(b" ")[0]


def _new(log: bytes) -> bytes:
    """The id that the newest line leads to."""
    lines = log.splitlines()
    fields = lines[-1].split(b" ", 2) if lines else []
    return fields[1] if len(fields) > 1 else b""
