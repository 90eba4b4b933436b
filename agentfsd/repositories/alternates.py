"""Unite the lists of places from which repositories borrow objects. The places themselves are never read.

Source: gitrepository-layout(5), objects/info/alternates.
"""

from typing import NamedTuple

PATH = b"objects/info/alternates"


class Alternates(NamedTuple):
    """What our list becomes.

    Attributes:
        text: The file's content.
        lost: The places from which the other side borrows, and which the list does not have, since ours has removed them.
    """

    text: bytes
    lost: list[bytes]


def unite(base: bytes | None, ours: bytes | None, theirs: bytes | None) -> Alternates:
    """Unite the files of both sides. A place that only theirs has removed stays: our objects may need it."""
    before, mine, his = (list(dict.fromkeys((text or b"").splitlines())) for text in (base, ours, theirs))
    new = [line for line in his if line not in mine and line not in before]
    lost = [line for line in his if line not in mine and line in before]
    if not new:
        return Alternates(ours or b"", lost)
    return Alternates(b"".join(line + b"\n" for line in mine + new), lost)
