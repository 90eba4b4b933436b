"""What is called a conflict among overlaps is what a dry run of the merge finds, over branches with random histories."""

import itertools
import random
import tempfile
from pathlib import Path

import pytest

from agentfsd.core.content_comparison import run_to_end
from agentfsd.history.overlaps import Overlaps
from tests.history.replay import run
from tests.history.trees import commit_lower
from tests.overlays import Opened
from tests.rounds import rounds

BRANCHES = ("a", "b", "c")
PATHS = ("text", "other", "new", "d/inner", "d/new")
LINES = [f"line {number}\n" for number in range(12)]
_ROUNDS = rounds("random overlaps", 25, 1_500)


def _content(chance: random.Random, before: bytes) -> bytes:
    """A version with another line at one end or the other, or something short that several write alike."""
    if not before.startswith(b"line") or not chance.randrange(4):
        return chance.choice([b"short\n", b"other\n", "".join(LINES).encode()])
    lines = before.split(b"\n")
    lines[chance.choice([1, 6, 10])] = chance.choice([b"line one way", b"line another way"])
    return b"\n".join(lines)


def _step(opened: Opened, chance: random.Random, *, removing: bool) -> None:
    ref, path = chance.choice(BRANCHES), chance.choice(PATHS)
    tree = opened.tree(ref)
    name = path.rpartition("/")[2].encode()
    known = tree.find(tree.walk(path.encode().rpartition(b"/")[0]), name)
    match chance.randrange(14):
        case 0 | 1 if known is not None and removing:
            opened.unlink(path, ref)
        case 2:
            others = [each for each in BRANCHES if each != ref]
            run(opened, [chance.choice(others)], ref)
        case 3:
            commit_lower(opened, rule="force", ref=ref)
        case 4:
            (opened.base / "lower" / path).write_bytes(_content(chance, b"".join(line.encode() for line in LINES)))
        case 5:
            opened.overlay.snapshots.create(ref)
        case _:
            opened.write(path, _content(chance, opened.read(path, ref) if known is not None else b""), ref)


def _dry_runs(opened: Opened) -> set[tuple[bytes, str, str]]:
    """Each path at which merging two branches, in one direction or the other, conflicts, with the two."""
    found = set[tuple[bytes, str, str]]()
    for source, target in itertools.permutations(BRANCHES, 2):
        conflicts = run(opened, [source], target, dry_run=True).conflicts
        found |= {(conflict.path, *sorted((source, target))) for conflict in conflicts}  # type: ignore[misc]
    return found


def _told(opened: Opened, overlaps: Overlaps) -> tuple[set[tuple[bytes, str, str]], set[tuple[bytes, str, str]]]:
    """What is said to conflict, and what is said not to: each path, and two branches."""
    conflicts, others = set[tuple[bytes, str, str]](), set[tuple[bytes, str, str]]()
    for path, overlap in overlaps.found.items():
        names = {each: opened.overlay.refs.branch(each).name for each in overlap.branches}
        if overlap.between:
            conflicts.add((path, *sorted(names[each] for each in overlap.between)))  # type: ignore[arg-type]
        else:
            others |= {(path, *pair) for pair in itertools.combinations(sorted(names.values()), 2)}  # type: ignore[misc]
    return conflicts, others


@pytest.mark.parametrize("seed", range(_ROUNDS))
def test_conflicts_are_those_of_a_dry_run(seed: int) -> None:
    """Where files go, a merge may find them under a new name, and tell of a conflict there."""
    chance, removing = random.Random(seed), bool(seed % 2)
    with tempfile.TemporaryDirectory(prefix="agentfsd-overlaps-") as base:
        lower = Path(base) / "lower"
        (lower / "d").mkdir(parents=True)
        for path in ("text", "other", "d/inner"):
            (lower / path).write_text("".join(LINES))
        opened = Opened(Path(base))
        for branch in BRANCHES:
            opened.overlay.branches.create(branch)
        overlaps = Overlaps(opened.overlay)
        try:
            for _ in range(chance.randrange(3, 24)):
                _step(opened, chance, removing=removing)
                if not chance.randrange(3):
                    run_to_end(overlaps.update())
            if chance.randrange(2):
                opened.reopen()
                overlaps = Overlaps(opened.overlay)
            run_to_end(overlaps.update())
            run_to_end(overlaps.look_again())
            conflicts, others = _told(opened, overlaps)
            found = _dry_runs(opened)
            if removing:
                assert {pair[1:] for pair in conflicts} <= {pair[1:] for pair in found}
            else:
                assert conflicts <= found
                assert not others & found
        finally:
            opened.close()
