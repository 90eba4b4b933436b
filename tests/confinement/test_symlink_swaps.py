"""Directories that become symbolic links while a commit writes below them: nothing outside the workspace is written."""

import contextlib
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.confinement.world import World
from tests.rounds import rounds

pytestmark = pytest.mark.sample(1)

ROUNDS = rounds("commits under swaps", 3, 12)
# In the branch: a directory with a file, then a link of that name to a directory outside, and so on.
SWAPPER = """
import os, shutil, sys
outside, ending = sys.argv[1:]
while not os.path.exists(ending):
    os.makedirs("swapped", exist_ok=True)
    with open("swapped/file", "w") as file:
        file.write("ESCAPED by a commit\\n")
    os.rename("swapped", "aside")
    os.symlink(outside, "swapped")
    os.unlink("swapped")
    shutil.rmtree("aside")
"""


@pytest.fixture
def target(world: World) -> Iterator[Path]:
    """A directory outside, which the links lead to."""
    place = world.outside / "target"
    place.mkdir()
    os.chown(place, world.user, world.user)
    yield place
    shutil.rmtree(place)


def commits(world: World, branch: str) -> None:
    for _ in range(ROUNDS):  # one may be refused, because the real directory or the branch is not what it was
        world.cli("commit", branch, "-m", str(world.point), check=False)


def test_a_command_that_swaps_a_directory_during_commits_writes_nothing_outside(world: World, target: Path) -> None:
    ending = world.base / "ending"
    world.run("swaps-1", "true")
    words = ["run", "-m", str(world.point), "-b", "swaps-1", "--", sys.executable, "-c", SWAPPER, str(target), str(ending)]
    swapping = threading.Thread(target=world.cli, args=words, kwargs={"cwd": world.point})
    swapping.start()
    try:
        commits(world, "swaps-1")
    finally:
        ending.touch()
        swapping.join()
        ending.unlink()
    assert os.listdir(target) == []
    assert world.state().alive()


def test_somebody_who_swaps_a_real_directory_during_commits_gets_nothing_written_outside(world: World, target: Path) -> None:
    swapped, aside = world.lower / "real", world.lower / "aside"
    swapped.mkdir()
    os.chown(swapped, world.user, world.user)
    for number in range(ROUNDS):  # before, because a command may follow links that are there
        world.run(f"swaps-2-{number}", f"echo ESCAPED > real/file{number}")
    ended = threading.Event()

    def swap() -> None:
        while not ended.is_set():
            with contextlib.suppress(OSError):
                os.rename(swapped, aside)
                os.symlink(target, swapped)
            with contextlib.suppress(OSError):
                os.unlink(swapped)
                os.rename(aside, swapped)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for number in range(ROUNDS):
            world.cli("commit", f"swaps-2-{number}", "-m", str(world.point), check=False)
    finally:
        ended.set()
        swapping.join()
    assert os.listdir(target) == []
    for place in (swapped, aside):
        if place.is_symlink():
            place.unlink()
        shutil.rmtree(place, ignore_errors=True)
