"""Identifiers of branches and snapshots (26 characters that sort by time, as ULIDs do), and the rules for their names."""

import os
import re
import time

from agentfsd.domain_errors import invalid

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_OTHER = re.compile(r"[^A-Za-z0-9._-]+")
MIN_PREFIX = 6


class IdMaker:
    """Makes identifiers, each greater than the one before, also within one millisecond."""

    def __init__(self) -> None:
        self._last = 0

    def make(self) -> str:
        """Return a new identifier in base 32: 48 bits of time in milliseconds, then 80 random bits.

        If that is not greater than the identifier before, return the one before plus one.
        """
        number = (time.time_ns() // 1_000_000 << 80) | int.from_bytes(os.urandom(10), "big")
        self._last = number = max(number, self._last + 1)
        return "".join(_ALPHABET[number >> shift & 31] for shift in range(125, -1, -5))


def made_ns(identifier: str) -> int:
    """Return when an identifier was made, in ns since the epoch, to the millisecond."""
    return sum(_ALPHABET.index(digit) << 5 * place for place, digit in enumerate(reversed(identifier))) // (1 << 80) * 1_000_000


def check_name(kind: str, name: str) -> None:
    """Check the name of a branch or snapshot (*kind*, for the message); Refusal ``bad-name``."""
    if NAME.fullmatch(name):
        return
    rule = "a name starts with a letter or digit and goes on with letters, digits, '.', '_' or '-', 128 characters at most"
    like = _OTHER.sub("-", name).strip("-._")
    raise invalid(
        f"{name!r} is no {kind} name", f"{rule}: {like!r} would be one" if NAME.fullmatch(like) else rule, code="bad-name"
    )
