"""Merges and diffs of random changes, against what follows from the three trees alone."""

from typing import Any

from hypothesis import HealthCheck, given, settings

from agentfsd.core import tree_changes, tree_diff
from tests.history.replay import run
from tests.history.test_commit_model import overlay
from tests.history.trees import IN_BRANCH, Look, Op, change, of_tree, ops, unlike
from tests.overlays import Opened
from tests.rounds import rounds

MANY = rounds("random merges", 0, 200)  # 0: a few, always the same ones
EXAMPLES = settings(
    max_examples=MANY or 8, derandomize=not MANY, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)
STEPS = ops(*IN_BRANCH, "snapshot", most=7)


def plain(look: Look) -> dict[bytes, Any]:
    """Type, mode, owner, device, attributes, content."""
    return {path: (*what[:4], *what[6:8]) for path, what in look.items()}


@EXAMPLES
@given(ops(*IN_BRANCH, most=5), STEPS, STEPS)
def test_a_merge_is_what_both_sides_did(first: list[Op], one: list[Op], two: list[Op]) -> None:
    with overlay() as opened:
        change(opened, first)
        base = plain(of_tree(opened.tree()))
        for name, steps in (("ours", one), ("theirs", two)):
            opened.overlay.branches.create(name, "main")
            change(opened, steps, name)
            opened.overlay.branches.create(f"of-{name}", name)
        before, theirs = of_tree(opened.tree("ours")), of_tree(opened.tree("theirs"))
        merged = run(opened, ["theirs"], "ours")
        other = run(opened, ["of-ours"], "of-theirs")
        assert bool(merged.conflicts) == bool(other.conflicts)
        if merged.conflicts:
            assert unlike(before, of_tree(opened.tree("ours"))) == []
            assert opened.overlay.undo_log.entries() == []
        else:
            after = of_tree(opened.tree("ours"))
            check(base, plain(before), plain(theirs), plain(after))
            assert unlike(plain(after), plain(of_tree(opened.tree("of-theirs")))) == []
            assert run(opened, ["theirs"], "ours").how == "nothing"
            opened.reopen()
            assert unlike(after, of_tree(opened.tree("ours"))) == []
            for _ in opened.overlay.undo_log.entries():
                opened.overlay.undo_log.undo()
            assert unlike(before, of_tree(opened.tree("ours"))) == []
        assert unlike(theirs, of_tree(opened.tree("theirs"))) == []
        assert opened.overlay.fsck() == []
        opened.reap()
        assert opened.overlay.fsck() == []


def check(base: Look, ours: Look, theirs: Look, after: Look) -> None:
    if (base.keys() - ours.keys()) | (base.keys() - theirs.keys()):
        return  # a change may have followed a rename
    for path in base.keys() | ours.keys() | theirs.keys():
        was, here, there = base.get(path), ours.get(path), theirs.get(path)
        if there == was or here == there:
            assert after.get(path) == here, path
        elif here == was:
            assert after.get(path) == there, path
    assert after.keys() <= base.keys() | ours.keys() | theirs.keys()


@EXAMPLES
@given(STEPS, STEPS)
def test_a_diff_leads_from_one_tree_to_the_other(one: list[Op], two: list[Op]) -> None:
    with overlay() as opened:
        change(opened, one)
        opened.overlay.branches.create("new")
        change(opened, two, "new")
        lower = opened.overlay.trees.side(None)
        for old, new in ((lower, opened.tree()), (opened.tree(), opened.tree("new")), (opened.tree("new"), lower)):
            was, now = plain(of_tree(old)), plain(of_tree(new))
            pairs = list(tree_diff.pairs(opened.overlay.parts, old, new))
            assert len({pair.path for pair in pairs}) == len(pairs)
            assert [pair.path for pair in pairs if pair.path and was.get(pair.path) == now.get(pair.path)] == []
            for pair in pairs:
                if pair.new is None:
                    del was[pair.path]
                elif pair.path:
                    was[pair.path] = now[pair.path]
            assert unlike(was, now) == []
            check_renames(opened, old, new)


def check_renames(opened: Opened, old: Any, new: Any) -> None:
    was, now = of_tree(old), of_tree(new)
    for found in tree_changes.between(opened.overlay.parts, old, new):
        if found.status == "R":
            assert found.old_path in was
            assert found.path in now
