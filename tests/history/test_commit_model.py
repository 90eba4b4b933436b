"""Commits of random changes: afterwards the lower is what the branch showed, and nobody's work is lost."""

import errno
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings

from agentfsd.history.commit import Rule
from tests.history import trees
from tests.history.trees import IN_BRANCH, IN_LOWER, PATHS, Op, change, change_lower, commit_lower, of_lower, of_tree, ops, unlike
from tests.overlays import Opened
from tests.rounds import rounds

MANY = rounds("random commits", 0, 200)  # 0: a few, always the same ones
EXAMPLES = settings(
    max_examples=MANY or 8, derandomize=not MANY, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)
THEIRS = ops(*IN_LOWER, most=5)
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
    assert opened.overlay.comparison.diff(None, "main") == []
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
            for snapshot in opened.overlay.snapshots.all():  # what they did not change follows the lower
                opened.overlay.snapshots.delete(snapshot.id)


def kept(what: tuple[object, ...]) -> tuple[object, ...]:
    """Of what somebody made of a file in the lower: mode, owner, content. (Its link count may follow another name's.)"""
    return (*what[:3], what[7])


@EXAMPLES
@given(STEPS, THEIRS, st.sampled_from(["refuse", "merge", "force"]), st.booleans())
def test_nobody_loses_what_was_done_in_the_lower_meanwhile(before: list[Op], theirs: list[Op], rule: Rule, whole: bool) -> None:
    with overlay() as opened:
        lower = opened.base / "lower"
        change(opened, before)
        was = of_lower(lower)
        time.sleep(0.005)
        change_lower(lower, theirs)
        there = of_lower(lower)
        time.sleep(0.005)
        try:
            found = commit_lower(opened, rule=rule, whole=whole)
        except OSError as exc:  # what was renamed in the branch and removed in the lower is nowhere
            assert exc.errno == errno.ESTALE
            found = None
        now = of_lower(lower)
        if found is None or found.conflicts:
            assert unlike(there, now) == []
        elif rule != "force":
            for path in there.keys() | was.keys():
                if not changed(was.get(path), there.get(path)):
                    continue
                if path not in there:
                    assert path not in now or not is_file(was[path]), path
                elif is_file(there[path]) and rule == "refuse":
                    assert kept(now[path]) == kept(there[path]), path
                else:
                    assert path in now, path
        assert opened.overlay.fsck() == []
        opened.reap()
        assert opened.overlay.fsck() == []


def changed(was: tuple[object, ...] | None, there: tuple[object, ...] | None) -> bool:
    """Not whether only the times of a directory moved, or how many names a file has."""
    return (was and kept(was)) != (there and kept(there))


def is_file(what: tuple[object, ...]) -> bool:
    return stat.S_ISREG(int(str(what[0]), 8))


@EXAMPLES
@given(STEPS, st.lists(st.sampled_from(PATHS), min_size=1, max_size=2), st.lists(st.sampled_from(PATHS), min_size=1, max_size=2))
def test_commits_of_some_paths_lose_nothing(steps: list[Op], first: list[bytes], second: list[bytes]) -> None:
    with overlay() as opened:
        change(opened, steps)
        shown = of_tree(opened.tree())
        for wanted in (first, second):
            if commit_lower(opened, tuple(wanted)).conflicts:
                return  # a name of a file went in the last commit, which moved the change time of its other names
            assert unlike(shown, of_tree(opened.tree())) == []
            now = of_lower(opened.base / "lower")
            for path in wanted:
                assert (shown[path][7] if path in shown else None) == (now[path][7] if path in now else None), path
            opened.reopen()
            assert unlike(shown, of_tree(opened.tree())) == []
        if commit_lower(opened).conflicts:
            return
        now = of_lower(opened.base / "lower")  # but for times of directories, which move with each commit
        assert [path for path in shown.keys() | now.keys() if shown.get(path, ())[:8] != now.get(path, ())[:8]] == []
        assert opened.overlay.fsck() == []
