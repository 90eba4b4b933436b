"""Commits of random changes: afterwards the lower is what the branch showed, and nobody's work is lost."""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings

from tests.history import trees
from tests.history.trees import IN_BRANCH, Op, change, commit_lower, of_lower, of_tree, ops, unlike
from tests.overlays import Opened

EXAMPLES = settings(
    max_examples=int(os.environ.get("AGENTFSD_COMMIT_EXAMPLES", "25")), deadline=None, suppress_health_check=list(HealthCheck)
)
STEPS = ops(*IN_BRANCH, "snapshot", "restore", "drop snapshot", "reopen")


@contextmanager
def overlay() -> Iterator[Opened]:
    base = Path(tempfile.mkdtemp(prefix="agentfsd-commit-"))
    (base / "lower").mkdir()
    trees.build(base / "lower")
    time.sleep(0.01)  # what is changed in the same tick of the clock in which it was made counts as changed by somebody
    opened = Opened(base)
    try:
        yield opened
    finally:
        opened.close()
        shutil.rmtree(base)


def expect_committed(opened: Opened, shown: trees.Look) -> None:
    lower = opened.base / "lower"
    assert unlike(shown, of_lower(lower)) == []
    assert unlike(shown, of_tree(opened.tree())) == []
    assert opened.overlay.diff(None, "main") == []
    again = commit_lower(opened)
    assert (again.steps, again.conflicts) == ([], [])
    assert opened.overlay.fsck() == []
    opened.reopen()
    assert unlike(shown, of_tree(opened.tree())) == []
    opened.reap()
    assert opened.overlay.fsck() == []


@EXAMPLES
@given(STEPS, STEPS, st.booleans(), st.booleans())
def test_after_a_commit_the_lower_is_what_the_branch_showed(first: list[Op], second: list[Op], whole: bool, whole2: bool) -> None:
    with overlay() as opened:
        for steps, all_of_it in ((first, whole), (second, whole2)):
            change(opened, steps)
            shown = of_tree(opened.tree())
            assert commit_lower(opened, whole=all_of_it).conflicts == []
            expect_committed(opened, shown)
            for snapshot in opened.overlay.list_snapshots():  # what they did not change follows the lower
                opened.overlay.delete_snapshot(snapshot.id)
