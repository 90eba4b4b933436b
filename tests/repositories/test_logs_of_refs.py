"""Joining lists of stashes: nothing is lost, and the newest line is the stash that the ref names."""

from itertools import pairwise

import pytest

from agentfsd.repositories.logs_of_refs import join

WHO = b"A <a@example.org> 1700000000 +0000\tOn main: "


def log(names: str) -> bytes:
    """A log of the stashes whose ids are made of these letters, oldest first."""
    ids = ["0" * 40, *(name * 40 for name in names)]
    return b"".join(f"{old} {new} ".encode() + WHO + new[:1].encode() + b"\n" for old, new in pairwise(ids))


def names(joined: bytes | None) -> str:
    return "".join(line.split(b" ")[1][:1].decode() for line in (joined or b"").splitlines())


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "expected"),
    [
        ("a", "b", "acd", "acdb"),  # ours may never have seen a
        ("", "b", "acd", "acdb"),
        ("a", "ab", "acd", "acdb"),
        ("ab", "bc", "abd", "bdc"),  # ours has dropped a
        ("ab", "b", "abc", "bc"),
        ("abc", "abd", "bce", "abed"),  # ours has dropped c; what only theirs dropped of ours stays
        ("ab", "a", "abc", "ac"),
        ("ab", "ab", "b", "b"),
        ("ab", "abc", "ab", "abc"),
    ],
)
def test_stashes_of_both_sides(base: str, ours: str, theirs: str, expected: str) -> None:
    joined = join(log(base), log(ours), log(theirs), b"", under=True)
    assert names(joined) == expected
    assert joined is not None
    lines = [line.split(b" ") for line in joined.splitlines()]
    assert all(before[1] == after[0] for before, after in pairwise(lines))
