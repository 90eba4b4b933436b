"""Conflicts about names that a merge leaves in its target: both versions stay readable, and either side can be taken."""

import itertools
import random

import pytest

from agentfsd.domain_errors import Refusal
from agentfsd.history import resolving
from agentfsd.history.applying import Author
from agentfsd.history.merge_records import Rules
from tests.history.replay import run
from tests.history.test_merge import LINES, edited, rename
from tests.overlays import Opened
from tests.rounds import rounds

MERGES = rounds("merges that leave conflicts", 10, 1000)


@pytest.fixture
def two(opened: Opened) -> Opened:
    opened.write("text", LINES)
    opened.write("other", b"other\n")
    opened.overlay.branches.create("ours")
    opened.overlay.branches.create("theirs")
    return opened


def leave(two: Opened) -> dict[bytes, str]:
    assert run(two, ["theirs"], "ours", Rules(leave=True)).conflicts == []
    return {state.conflict.path: state.conflict.kind for state in state_of(two).conflicts}


def state_of(two: Opened, ref: str = "ours") -> resolving.MergeState:
    return resolving.state_of_branch(two.overlay, ref)


def settle(two: Opened, how: resolving.How, *paths: bytes) -> None:
    for _ in resolving.resolve(two.overlay, "ours", paths or (b"",), how, Author()):
        pass


def finish(two: Opened) -> resolving.MergeState:
    steps = resolving.finish(two.overlay, "ours", Author())
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: resolving.MergeState = end.value
            return found


def files(two: Opened, branch: str) -> dict[str, bytes]:
    tree = two.tree(branch)
    return {name.decode(): two.read(name.decode(), branch) for name in tree.names(tree.root) if tree.walk(name).is_file}


def test_a_file_that_each_side_renamed(two: Opened) -> None:
    rename(two, "ours", "text", "mine")
    rename(two, "theirs", "text", "his")
    two.write("his", edited(3), "theirs")
    assert leave(two) == dict.fromkeys((b"text", b"mine", b"his"), "rename/rename")
    assert files(two, "ours") == {"mine": LINES, "other": b"other\n"}
    settle(two, "theirs")
    assert files(two, "ours") == {"his": edited(3), "other": b"other\n"}
    settle(two, "ours")
    assert files(two, "ours") == {"mine": LINES, "other": b"other\n"}
    assert two.overlay.fsck() == []


def test_a_file_that_one_side_renamed_to_a_name_that_the_other_added(two: Opened) -> None:
    rename(two, "ours", "text", "new")
    two.write("text", edited(3), "theirs")
    two.write("new", b"his\n", "theirs")
    assert leave(two) == {b"text": "rename/add", b"new": "rename/add"}
    settle(two, "theirs")
    assert files(two, "ours") == files(two, "theirs")
    settle(two, "ours")
    assert files(two, "ours") == {"new": LINES, "other": b"other\n"}


def test_a_file_that_one_side_renamed_and_the_other_deleted(two: Opened) -> None:
    rename(two, "theirs", "text", "new")
    two.unlink("text", "ours")
    assert set(leave(two).values()) == {"rename/delete"}
    assert files(two, "ours") == {"other": b"other\n"}
    settle(two, "theirs", b"new")
    assert files(two, "ours") == {"new": LINES, "other": b"other\n"}


def test_decisions_belong_to_states(two: Opened) -> None:
    two.write("text", edited(3, b"mine"), "ours")
    two.write("text", edited(3, b"his"), "theirs")
    leave(two)
    two.overlay.branches.create("copy", "ours")
    settle(two, "marked")
    assert [state.how for state in state_of(two).conflicts] == ["marked"]
    assert [state.how for state in state_of(two, "copy").conflicts] == [""]
    two.overlay.snapshots.create("ours", "settled")
    assert finish(two).undecided == []
    assert state_of(two).merge is None
    assert state_of(two, "settled").merge is not None
    two.reopen()
    assert state_of(two).merge is None
    assert [state.how for state in state_of(two, "settled").conflicts] == ["marked"]
    assert [state.how for state in state_of(two, "copy").conflicts] == [""]
    with pytest.raises(Refusal, match="is not finished"):
        run(two, ["copy"], "ours", Rules())
    assert two.overlay.fsck() == []


def act(two: Opened, chance: random.Random, branch: str, number: int) -> None:
    name, names = chance.choice(["text", "other", "mine", "his", "d/e"]), list(files(two, branch))
    match chance.randrange(4):
        case 0 if names:
            two.unlink(chance.choice(names), branch)
        case 1 if names:
            rename(two, branch, chance.choice(names), f"moved-{chance.randrange(3)}")
        case 2 if "/" in name:
            two.mkdir(f"d{number}", branch)
        case _ if "/" not in name:
            two.write(
                name, edited(chance.randrange(4), branch.encode()) if chance.random() < 0.7 else b"\0" + branch.encode(), branch
            )


@pytest.mark.parametrize("seed", range(MERGES))
def test_after_random_merges_a_side_can_be_taken_and_the_merge_is_known(two: Opened, seed: int) -> None:
    chance = random.Random(seed)
    for number, branch in itertools.product(range(3), ("ours", "theirs")):
        act(two, chance, branch, number)
    before = files(two, "ours")
    run(two, ["theirs"], "ours", Rules(leave=True))
    if state_of(two).merge is not None:
        settle(two, "ours")
        assert {name: content for name, content in files(two, "ours").items() if name in before}.keys() <= before.keys()
        settle(two, "theirs")
        two.reopen()
        assert finish(two).undecided == []
    assert run(two, ["theirs"], "ours", Rules()).how == "nothing"
    assert two.overlay.fsck() == []
