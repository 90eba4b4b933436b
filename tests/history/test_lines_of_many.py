"""Branches, main and a person change lines of one file, each its own: whatever is merged and committed, no line goes back."""

import random
import time
from pathlib import Path

import pytest

from tests.history.replay import run
from tests.history.trees import commit_lower
from tests.overlays import Opened
from tests.rounds import rounds, seed

MANY = rounds("histories of the lines of many", 6, 1000)
BRANCHES = ("one", "two", "three")
WRITERS = (*BRANCHES, "main", "person")
OWN = 3  # lines of each writer
Lines = list[int]  # the version of each line; line N belongs to writer N % 5
PARTED = "-\n"  # between two lines: those that touch each other would conflict
WHOLE = len(WRITERS) * OWN


def text(lines: Lines) -> bytes:
    return "".join(f"{number} {version}\n{PARTED}" for number, version in enumerate(lines)).encode()


def lines_of(content: bytes) -> Lines:
    found = [line.split() for line in content.decode().splitlines()[::2]]
    assert [int(number) for number, _ in found] == list(range(WHOLE)), content
    return [int(version) for _, version in found]


class World:
    def __init__(self, base: Path, chance: random.Random) -> None:
        (base / "lower").mkdir()
        (base / "lower/text").write_bytes(text([0] * WHOLE))
        time.sleep(0.01)
        self.opened, self.chance, self.done = Opened(base), chance, list[str]()
        for branch in BRANCHES:
            self.opened.overlay.branches.create(branch)

    def shows(self, who: str) -> Lines:
        return lines_of(
            (self.opened.base / "lower/text").read_bytes() if who == "person" else self.opened.read("text", who)
        )  # fmt: skip

    def write(self, who: str, number: int, *, anew: bool) -> None:
        """Change a line of one's own; *anew*: as editors do that replace the file."""
        lines = self.shows(who)
        lines[number] += 1
        if who == "person":
            time.sleep(0.005)
            (self.opened.base / "lower/text").write_bytes(text(lines))
            time.sleep(0.005)
        else:
            if anew:
                self.opened.unlink("text", who)
            self.opened.write("text", text(lines), who)

    def merge(self, source: str) -> None:
        before, theirs = self.shows("main"), self.shows(source)
        assert run(self.opened, [source], "main").conflicts == []
        self.ascends(before, after := self.shows("main"))
        number = WRITERS.index(source)
        assert after[number :: len(WRITERS)] == theirs[number :: len(WRITERS)]

    def commit(self) -> None:
        before, shown = self.shows("person"), self.shows("main")
        found = commit_lower(self.opened)
        if found.conflicts:
            assert self.shows("person") == before
            found = commit_lower(self.opened, rule="merge")
        if found.conflicts:  # main has changed a line that it had committed, and a merge has brought an older record: it asks
            assert self.shows("person") == before
            return
        self.ascends(before, after := self.shows("person"))
        assert all(there >= here for there, here in zip(after, shown, strict=True))

    @staticmethod
    def ascends(before: Lines, after: Lines) -> None:
        assert all(now >= then for then, now in zip(before, after, strict=True)), (before, after)

    def step(self) -> None:
        what = self.chance.choice(["write"] * 5 + ["merge"] * 3 + ["commit"] * 2 + ["snapshot", "reopen"])
        if what == "reopen":
            self.done.append(what)
            self.opened.reopen()
            return
        who = self.chance.choice({"write": WRITERS, "commit": ("main",)}.get(what, BRANCHES))
        self.done.append(f"{what} {who}")
        if what == "write":
            number, anew = self.chance.randrange(OWN) * len(WRITERS) + WRITERS.index(who), self.chance.random() < 0.5
            self.done[-1] += f" {number}{' anew' * anew}"
            self.write(who, number, anew=anew)
        elif what == "merge":
            self.merge(who)
        elif what == "commit":
            self.commit()
        else:
            self.opened.overlay.snapshots.create(who)


@pytest.mark.parametrize("number", range(MANY))
def test_no_line_goes_back(tmp_path: Path, number: int) -> None:
    world = World(tmp_path, random.Random(seed() * 100_000 + number))
    try:
        for _ in range(30):
            world.step()
        assert world.opened.overlay.fsck() == []
    except AssertionError as exc:
        raise AssertionError(f"{exc}\nafter {'; '.join(world.done)}") from exc
    finally:
        world.opened.close()
