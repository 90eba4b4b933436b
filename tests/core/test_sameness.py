"""Files of one size are compared a piece at a time, and others have their turn in between."""

import os
from collections.abc import Generator
from typing import TypeVar

import pytest

from agentfsd.core import copyup, data, tree_diff
from agentfsd.core.tree import Inode
from agentfsd.domain_errors import Refusal
from agentfsd.types import PathChange
from tests.overlays import Opened

SIZE = 3 << 20

_T = TypeVar("_T")


@pytest.fixture
def copied(opened: Opened) -> Inode:
    """A large file that a branch has a copy of."""
    (opened.base / "lower" / "big").write_bytes(os.urandom(SIZE - 1) + b"\n")
    inode = opened.tree().walk(b"big")
    copyup.own_content(inode)
    return inode


def ended(steps: Generator[object, None, _T]) -> _T:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: _T = end.value
            return found


def diffing(opened: Opened) -> Generator[object, None, list[PathChange]]:
    return opened.overlay.comparison.diff_in_steps(opened.overlay.trees.side(None), opened.tree())


def test_a_copy_is_compared_in_steps(opened: Opened, copied: Inode) -> None:
    with opened.overlay.trees.frozen("main") as tree:
        found = list(tree_diff.pairs_in_steps(opened.overlay.parts, opened.overlay.trees.side(None), tree, times=True))
        assert len(found) >= 3 and set(found) == {None}
    steps = diffing(opened)
    assert [next(steps) for _ in range(3)]
    assert ended(steps) == []


@pytest.mark.parametrize("at", [0, 1, 2])
def test_what_is_written_while_files_are_compared_is_found(opened: Opened, copied: Inode, at: int) -> None:
    steps = diffing(opened)
    for _ in range(at + 1):
        next(steps)
    data.write(copied, b"changed", 5)
    assert [(change.status, change.path) for change in ended(steps)] == [("M", b"big")]


def test_a_branch_that_is_replaced_while_it_is_compared_is_asked_for_again(opened: Opened, copied: Inode) -> None:
    steps = diffing(opened)
    next(steps)
    opened.overlay.branches.discard("main")
    with pytest.raises(Refusal, match="while it was compared"):
        ended(steps)
    assert opened.overlay.comparison.diff(None, "main") == []


def test_what_differs_at_the_end_only_is_found(opened: Opened, copied: Inode) -> None:
    data.write(copied, b"!", SIZE - 1)
    data.write(copied, b"?", SIZE - 1)
    assert [change.path for change in ended(diffing(opened))] == [b"big"]
