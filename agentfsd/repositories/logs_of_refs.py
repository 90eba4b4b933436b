"""Merge reflogs, which list the values that a ref has had, line by line. Source: git-reflog(1)."""

import time
from collections.abc import Iterator
from typing import Protocol


class RefMove(Protocol):
    """A change of a ref from one object to another, and its reason. An empty id means that the ref did not exist."""

    @property
    def old(self) -> bytes: ...
    @property
    def new(self) -> bytes: ...
    @property
    def why(self) -> str: ...


def entry(moved: RefMove, who: bytes) -> bytes:
    """Return one line of a reflog. *who*: ``NAME <ADDRESS>``."""
    zero = b"0" * len(moved.new)
    why = moved.why.replace("\n", " ").encode("utf-8", "backslashreplace")
    return (moved.old or zero) + b" " + moved.new + b" " + who + b" %d +0000\tagentfsd: " % time.time() + why + b"\n"


def join(
    base: bytes | None, ours: bytes | None, theirs: bytes | None, last: bytes, *, under: bool = False, first: bytes = b""
) -> bytes | None:  # fmt: skip
    """Merge two reflogs.

    Args:
        base: The log from which both sides started; None if there was none.
        ours: Our log.
        theirs: The other side's log. It is taken as it is if only they changed the log.
        last: A line to append, unless the newest line of theirs has the same values; b"" for none.
        under: The log lists stashes. Their lines go beneath those that our side added, so that the newest stash stays ours.
            What our side lacks of *base* it has dropped, unless it has nothing of *base*: then it may never have seen that.
        first: A line to put beneath all others, unless one of them has its new value; b"" for none.

    Returns:
        The merged log; None for no log.
    """
    if ours == base and theirs is not None:
        made = theirs
    elif theirs is None or theirs == base:
        made = ours or b""
    else:
        made = _joined(*((log or b"").splitlines(keepends=True) for log in (base, ours, theirs)), under=under)
    if first and not has(made, _new(first)):
        made = b"".join(_chained([first, *made.splitlines(keepends=True)]))
    if last and _new(made) != _new(last):
        made = b"".join(_chained([*made.splitlines(keepends=True), last])) if under else made + last
    return made or None


def has(log: bytes | None, value: bytes) -> bool:
    """Return whether a line of a log has this new value."""
    return value in {_new(line) for line in (log or b"").splitlines()}


def _joined(base: list[bytes], ours: list[bytes], theirs: list[bytes], *, under: bool) -> bytes:
    key = _new if under else bytes.strip  # a drop of a stash changes the old id of the next line
    before, own = {key(line) for line in base}, {key(line) for line in ours}
    known = own if under and own and not own & before else own | before
    more = [line for line in theirs if key(line) not in known]
    added = (number for number, line in enumerate(ours) if under and key(line) not in before)
    place = next(added, len(ours))
    return b"".join(_chained([*ours[:place], *more, *ours[place:]]))


def _chained(lines: list[bytes]) -> Iterator[bytes]:
    """Yield the lines, each old id replaced by the new id of the line before: git stops reading where these differ."""
    before = b""
    for line in lines:
        old, _, rest = line.partition(b" ")
        yield (before or old) + b" " + rest
        before = rest.partition(b" ")[0]


def _new(log: bytes) -> bytes:
    """Return the new id in the last line of a log."""
    lines = log.splitlines()
    fields = lines[-1].split(b" ", 2) if lines else []
    return fields[1] if len(fields) > 1 else b""
