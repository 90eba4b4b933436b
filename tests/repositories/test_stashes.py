"""Stashes of two branches: none gets lost, with or without a log, and none comes back."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.repositories.agents import Agents, git, two_agents
from tests.repositories.joined import bring, keep, log, of_ours


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Agents]:
    with two_agents(tmp_path) as made:
        yield made


def stash(place: Path, text: str) -> str:
    (place / "a").write_text(f"{text}\n")
    git(place, "stash", "-q")
    return git(place, "rev-parse", "refs/stash")


def expire(place: Path) -> None:
    """The ref stays loose: the branch would see a person's later one in front of a packed one."""
    git(place, "reflog", "expire", "--expire=now", "--all")
    git(place, "-c", "gc.packRefs=false", "gc", "-q", "--prune=now")


@pytest.mark.sample(5)
@pytest.mark.parametrize("into", ["one", "lower"])
@pytest.mark.parametrize("expired", ["theirs", "both", "neither"])
@pytest.mark.parametrize("before", [False, True])
def test_a_stash_without_a_log_is_beneath_ours(agents: Agents, into: str, expired: str, before: bool) -> None:
    if before:
        stash(agents.lower, "before")
    place = agents.work("two")
    his = stash(place, "his")
    if expired != "neither":
        expire(place)
    agents.keep("two")
    place = of_ours(agents, into)
    mine = stash(place, "mine")
    if expired == "both":
        expire(place)
    keep(agents, into)
    for _ in range(2):
        place = bring(agents, into)
        found = log(place, "refs/stash")
        assert (found[0], git(place, "rev-parse", "refs/stash")) == (mine, mine)
        assert found.count(his) == found.count(mine) == 1
        git(place, "gc", "-q", "--prune=now")
        keep(agents, into)
    number = found.index(his)
    assert git(place, "stash", "show", "-p", f"stash@{{{number}}}").splitlines()[-1] == "+his"
    git(place, "stash", "drop", "-q", "stash@{0}")
    assert log(place, "refs/stash")[0] != mine


@pytest.mark.parametrize("into", ["one", "lower"])
def test_a_stash_that_they_dropped_does_not_come_back(agents: Agents, into: str) -> None:
    stash(agents.lower, "before")
    place = agents.work("two")
    git(place, "stash", "drop", "-q")
    his = stash(place, "his")
    agents.keep("two")
    place = of_ours(agents, into)
    git(place, "tag", "mine")  # no fast-forward of the whole branch
    keep(agents, into)
    place = bring(agents, into)
    assert log(place, "refs/stash") == [his]
    assert git(place, "stash", "show", "-p").splitlines()[-1] == "+his"


def test_a_stash_that_ours_dropped_does_not_come_back(agents: Agents) -> None:
    old = stash(agents.lower, "old")
    stash(agents.lower, "newer")
    place = agents.work("one")
    git(place, "stash", "drop", "-q", "stash@{1}")
    mine = stash(place, "mine")
    agents.keep("one")
    place = agents.work("two")
    git(place, "stash", "drop", "-q", "stash@{0}")
    expire(place)
    assert git(place, "rev-parse", "refs/stash") == old
    agents.keep("two")
    found = log(bring(agents, "one"), "refs/stash")
    assert found[0] == mine
    assert old not in found
