"""A comparison of much is made a little at a time, and is of one moment all the same."""

import random
from collections.abc import Generator

import pytest

from agentfsd.core import branch_comparison, directory_entries
from agentfsd.core.open_trees import OpenTrees
from agentfsd.types import PathChange
from tests.core.test_sameness import ended
from tests.overlays import Opened
from tests.rounds import rounds

LETTERS = "abcdef"
SEEDS = rounds("comparisons while others change something", 6, 200)


@pytest.fixture(autouse=True)
def anything_is_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branch_comparison, "_MANY_CHANGES", 0)


def diffing(opened: Opened, a: str | None, b: str) -> Generator[object, None, list[PathChange]]:
    return opened.overlay.comparison.diff_in_steps(opened.overlay.trees.side(a), opened.overlay.trees.side(b))


def churn(opened: Opened, chance: random.Random, ref: str) -> None:
    """One change of names or contents, whatever is possible there."""
    tree = opened.tree(ref)
    one, other = (f"{chance.choice(LETTERS)}/{chance.choice(LETTERS)}" for _ in range(2))
    directories = [tree.walk(path.encode().partition(b"/")[0]) for path in (one, other)]
    name, new_name = one.encode()[2:], other.encode()[2:]
    known = tree.find(directories[0], name)
    match chance.randrange(4):
        case 0 if known is not None:
            directory_entries.unlink(tree, directories[0], name)
        case 1 if known is not None and (directories[0], name) != (directories[1], new_name):
            directory_entries.rename(tree, directories[0], name, directories[1], new_name, 0)
        case 2 if known is not None and tree.find(directories[1], new_name) is None:
            directory_entries.link(tree, known, directories[1], new_name)
        case _:
            opened.write(one, chance.choice([b"same size", b"size same", b"longer than that"]), ref)


def seeded(opened: Opened, chance: random.Random) -> list[str | None]:
    """A branch with a history, and what it may be compared with."""
    for letter in LETTERS:
        (opened.base / "lower" / letter).mkdir()
        (opened.base / "lower" / letter / chance.choice(LETTERS)).write_bytes(b"same size")
    taken = []
    for _ in range(60):
        churn(opened, chance, "main")
        if not chance.randrange(8):
            taken.append(opened.overlay.snapshots.create("main").id)
    return [None, *taken]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_others_do_meanwhile_is_nothing_to_it(opened: Opened, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """They work in another branch, and drop snapshots, which merges layers under the comparison. It freezes nothing."""
    chance = random.Random(seed)
    a, *taken = chance.sample(found := seeded(opened, chance), len(found))
    opened.overlay.branches.create("other", "main")
    at_once = opened.overlay.comparison.diff(a, "main")
    monkeypatch.setattr(OpenTrees, "frozen", None)
    steps = diffing(opened, a, "main")
    with pytest.raises(StopIteration) as end:
        while True:
            next(steps)
            churn(opened, chance, "other")
            if not chance.randrange(6) and len(taken) > 1 and (gone := taken.pop()) is not None:
                opened.overlay.snapshots.delete(gone)
    assert end.value.value == at_once
    assert opened.overlay.fsck() == []


@pytest.mark.parametrize("seed", range(SEEDS))
def test_of_a_branch_in_which_somebody_works_it_tells_one_moment(opened: Opened, seed: int) -> None:
    chance = random.Random(seed)
    a = chance.choice(seeded(opened, chance))
    states = [opened.overlay.comparison.diff(a, "main")]
    steps = diffing(opened, a, "main")
    with pytest.raises(StopIteration) as end:
        while True:
            next(steps)
            if not chance.randrange(4):
                churn(opened, chance, "main")
                states.append(opened.overlay.comparison.diff(a, "main"))
    assert end.value.value in states
    assert opened.overlay.fsck() == []
    assert ended(diffing(opened, None, "main")) == opened.overlay.comparison.diff(None, "main")


def test_what_is_compared_is_let_go_when_nobody_waits_for_it(opened: Opened) -> None:
    opened.mkdir("d")
    opened.write("d/file", b"x")
    layers = len(opened.tree().chain)
    steps = diffing(opened, None, "main")
    next(steps)
    steps.close()
    opened.reap()
    assert len(opened.tree().chain) == layers
    assert opened.overlay.fsck() == []
