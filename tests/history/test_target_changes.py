"""What the target of a merge has changed, after each source: the same as if it were compared anew."""

import stat
from collections.abc import Generator, Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from agentfsd.core.transplant import attributes_of
from agentfsd.core.tree import Inode, Tree
from agentfsd.core.whole_contents import content_of
from agentfsd.history.applying import Author
from agentfsd.history.merge_records import Rules, Step
from agentfsd.history.merging import merge_branches
from agentfsd.history.target_changes import TargetChanges
from tests.history.test_commit_model import overlay
from tests.history.trees import IN_BRANCH, Op, change, ops
from tests.rounds import rounds

MANY = rounds("random merges of several branches", 0, 200)  # 0: a few, always the same ones
EXAMPLES = settings(
    max_examples=MANY or 12, derandomize=not MANY, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)
STEPS = ops(*IN_BRANCH, most=6)


def through(steps: Generator[Any, None, Any]) -> Any:
    try:
        while True:
            next(steps)
    except StopIteration as end:
        return end.value


def shown(changes: TargetChanges) -> dict[bytes, tuple[object, ...]]:
    return {path: (side(pair.old), side(pair.new), pair.what, pair.unseen) for path, pair in through(changes.read()).items()}


def side(inode: Inode | None) -> object:
    """Attributes and content."""
    if inode is None:
        return None
    target = inode.tree.readlink(inode) if stat.S_ISLNK(inode.mode) else b""
    return attributes_of(inode), content_of(inode) if inode.is_file else target


@EXAMPLES
@given(STEPS, STEPS, STEPS, STEPS)
def test_they_are_followed_as_if_compared_anew(one: list[Op], two: list[Op], three: list[Op], target: list[Op]) -> None:
    followed, follow = list[bool](), TargetChanges.follow

    def checked(changes: TargetChanges, ours: Tree, steps: Iterable[Step]) -> Generator[Any, None, None]:
        yield from follow(changes, ours, steps)
        anew = TargetChanges(changes._parts, changes.base, ours)
        assert list(shown(changes).items()) == list(shown(anew).items())
        followed.append(True)

    with overlay() as opened, pytest.MonkeyPatch.context() as patched:
        patched.setattr(TargetChanges, "follow", checked)
        for name, steps in (("one", one), ("two", two), ("three", three)):
            opened.overlay.branches.create(name, "main")
            change(opened, steps, name)
        change(opened, target)
        sources = ["one", "two", "three"]
        merged = through(merge_branches(opened.overlay, sources, "main", Rules("theirs"), Author(), leave_conflicting=True))
        assert len(followed) <= len(merged.merged)
        assert opened.overlay.fsck() == []
