"""Refs are read right while git packs them, moves them, or does both."""

from collections.abc import Callable
from pathlib import Path

import pytest

from agentfsd.repositories import reading
from tests.repositories.agents import Agents, git


def packs(place: Path, _: int) -> None:
    git(place, "pack-refs", "--all", "--prune")


def packs_and_deletes(place: Path, step: int) -> None:
    git(place, "pack-refs", "--all", "--prune")
    if step == 1:
        git(place, "branch", "-qD", "gone")


@pytest.mark.parametrize("work", [packs, packs_and_deletes])
@pytest.mark.parametrize("packed_before", [False, True])
def test_refs_that_git_packs_meanwhile(
    agents: Agents, work: Callable[[Path, int], None], packed_before: bool
) -> None:  # fmt: skip
    """At every step of the reading: ``develop`` is packed at an older commit than its own file says."""
    steps, number = 1, 0
    while number < steps:
        git(agents.lower, "branch", "-f", "develop", "main")
        git(agents.lower, "branch", "-f", "gone", "main")
        if packed_before:
            git(agents.lower, "pack-refs", "--all", "--prune")
        git(agents.lower, "branch", "-f", "develop", git(agents.lower, "commit-tree", "-m", f"{number}", "HEAD^{tree}"))
        found = None
        for steps, step in enumerate(reading.database(agents.opened.overlay.trees.side(None), b".git"), 1):
            found = step or found
            if steps - 1 == number:
                work(agents.lower, steps - 1)
        assert found is not None
        there = dict(line.split() for line in git(agents.lower, "for-each-ref", "--format=%(refname) %(objectname)").splitlines())
        read = {name.decode(): value.decode() for name, value in found.refs.items()}
        last = number == steps - 1  # what comes after the last step is too late
        assert (read | {"refs/heads/gone": ""}) == (there | {"refs/heads/gone": ""}), number
        assert last or ("refs/heads/gone" in read) == ("refs/heads/gone" in there), number
        number += 1
    assert number > 2
