"""The same random calls with the library and without: they answer the same, and leave the same files.

``--rounds 'interposed twins=N'``: how many seeds, with more calls each, instead of one.
"""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentfs_client.control import ControlClient
from tests.interpose.conftest import Forwarding
from tests.rounds import rounds

PROGRAM = str(Path(__file__).with_name("twin.py"))
MANY = rounds("interposed twins", 0, 40)
CALLS = 1500 if MANY else 300


def twin(forwarding: Forwarding, branch: str, *arguments: object, plain: bool) -> list[str]:
    script = f"mkdir d; cd d; exec {sys.executable} {PROGRAM} {' '.join(map(str, arguments))}"
    return forwarding.run(branch, "sh", "-c", script, plain=plain).splitlines()


def first_difference(one: list[str], other: list[str]) -> tuple[str, ...]:
    """The line, and what came before it."""
    for number, pair in enumerate(zip(one, other, strict=False)):
        if pair[0] != pair[1]:
            return *one[max(0, number - 5) : number], *pair
    return () if len(one) == len(other) else ("one is shorter",)


@pytest.mark.parametrize("seed", range(1000, 1000 + (MANY or 1)))
def test_calls_answer_as_in_a_plain_directory(forwarding: Forwarding, tmp_path: Path, seed: int) -> None:
    with_it = twin(forwarding, f"plain-{seed}", seed, CALLS, plain=False)
    command = [sys.executable, PROGRAM, str(seed), str(CALLS)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert first_difference(done.stdout.splitlines(), with_it) == ()
    assert len(with_it) > CALLS
    assert forwarding.forwarded()


@pytest.mark.parametrize("seed", range(2000, 2000 + (MANY or 1)))
def test_calls_answer_as_on_the_mount_without_the_library(forwarding: Forwarding, seed: int) -> None:
    without = twin(forwarding, f"without-{seed}", seed, CALLS, "all", plain=True)
    with_it = twin(forwarding, f"with-{seed}", seed, CALLS, "all", plain=False)
    assert first_difference(without, with_it) == ()
    assert len(with_it) > CALLS
    assert forwarding.forwarded()


@contextmanager
def snapshots(forwarding: Forwarding, branch: str) -> Iterator[list[str]]:
    """One after the other, meanwhile; their names."""
    made, stop = list[str](), threading.Event()

    def take() -> None:
        with ControlClient.open_mount(str(forwarding.path)) as daemon:
            while not stop.wait(0.02):
                made.append(daemon.create_snapshot(branch).id)

    thread = threading.Thread(target=take)
    thread.start()
    try:
        yield made
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("seed", range(3000, 3000 + (MANY or 1)))
def test_snapshots_meanwhile_change_no_answer(forwarding: Forwarding, seed: int) -> None:
    without = twin(forwarding, f"quiet-{seed}", seed, CALLS, plain=True)
    forwarding.run(f"busy-{seed}", "true")
    with snapshots(forwarding, f"busy-{seed}") as made:
        with_it = twin(forwarding, f"busy-{seed}", seed, CALLS, plain=False)
    assert first_difference(*(untimed(lines) for lines in (without, with_it))) == ()
    assert len(made) > 1


def untimed(lines: list[str]) -> list[str]:
    """A snapshot fetches what a map has changed, and that moves the time of the file, with the library and without."""
    return [line for line in lines if line.split()[1] not in ("times", "stat_name")]
