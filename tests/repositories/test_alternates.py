"""Repositories that borrow objects from others: the lists of places are united, and no ref arrives without its objects."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.repositories.agents import Agents, commit, git, start
from tests.repositories.joined import bring, keep, of_ours


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Agents]:
    made = Agents(tmp_path)
    start(made.lower, {"a": "a\n", "b": "b\n"})
    for name in ("up", "other"):
        git(tmp_path, "clone", "-q", str(made.lower), name)
        commit(tmp_path / name, {name: f"{name}\n"}, name)
        git(made.lower, "remote", "add", name, str(tmp_path / name))
    made.branch("one", "two")
    yield made
    made.close()


def borrow(agents: Agents, place: Path, name: str) -> str:
    """Fetch from a repository whose objects are not copied; its commit."""
    alternates = place / ".git" / "objects" / "info" / "alternates"
    with alternates.open("a") as file:
        file.write(f"{agents.base / name}/.git/objects\n")
    git(place, "fetch", "-q", name)
    tip = git(place, "rev-parse", f"refs/remotes/{name}/main")
    assert not (place / ".git" / "objects" / tip[:2] / tip[2:]).exists()
    return tip


def borrows(place: Path) -> list[str]:
    lines = (place / ".git" / "objects" / "info" / "alternates").read_text().splitlines()
    return [Path(line).parts[-3] for line in lines]


@pytest.mark.parametrize("into", ["one", "lower"])
@pytest.mark.parametrize("other", ["nobody", "before", "ours"])
def test_refs_come_with_the_place_of_their_objects(agents: Agents, into: str, other: str) -> None:
    if other == "before":
        borrow(agents, agents.lower, "other")
    place = agents.work("two")
    his = borrow(agents, place, "up")
    agents.keep("two")
    place = of_ours(agents, into)
    if other == "ours":
        borrow(agents, place, "other")
    commit(place, {"a": "A\n"}, "ours")
    git(place, "repack", "-q", "-a", "-d", "-l")
    git(place, "update-server-info")
    keep(agents, into)
    place = bring(agents, into)
    assert borrows(place) == (["up"] if other == "nobody" else ["other", "up"])
    assert git(place, "rev-parse", "refs/remotes/up/main") == his
    assert git(place, "show", "refs/remotes/up/main:up") == "up"


def test_a_place_of_which_ours_has_copied_all_stays_away(agents: Agents) -> None:
    borrow(agents, agents.lower, "other")
    place = agents.work("two")
    git(place, "branch", "--no-track", "same", "other/main")
    agents.keep("two")
    place = agents.work("one")
    git(place, "repack", "-q", "-a", "-d")
    (place / ".git" / "objects" / "info" / "alternates").unlink()
    agents.keep("one")
    place = bring(agents, "one")
    assert not (place / ".git" / "objects" / "info" / "alternates").exists()
    assert git(place, "show", "same:other") == "other"


@pytest.mark.parametrize("where", ["tip", "history"])
def test_a_ref_that_needs_a_place_from_which_ours_no_longer_borrows_is_refused(agents: Agents, where: str) -> None:
    tip = commit(agents.base / "other", {"other": "of nobody\n"}, "of nobody")
    git(agents.base / "other", "reset", "-q", "--hard", "HEAD~1")
    borrow(agents, agents.lower, "other")
    place = agents.work("two")
    git(place, "branch", "found", tip)
    if where == "history":
        git(place, "switch", "-q", "found")
        tip = commit(place, {"b": "B\n"}, "two's")
        git(place, "switch", "-q", "main")
    agents.keep("two")
    place = agents.work("one")
    git(place, "repack", "-q", "-a", "-d")
    (place / ".git" / "objects" / "info" / "alternates").unlink()
    agents.keep("one")
    found = agents.merge("two", into="one").conflicts
    assert [(conflict.path, conflict.kind) for conflict in found] == [(b".git", "repository")]
    assert "`agentfsd run -b two -- git repack -a -d`" in found[0].message
    place = agents.work("two")
    git(place, "repack", "-q", "-a", "-d")
    agents.keep("two")
    place = bring(agents, "one")
    assert git(place, "rev-parse", "found") == tip
    assert not (place / ".git" / "objects" / "info" / "alternates").exists()


def test_a_place_that_they_have_removed_stays(agents: Agents) -> None:
    """Ours has made use of it meanwhile."""
    borrow(agents, agents.lower, "other")
    place = agents.work("one")
    git(place, "branch", "--no-track", "same", "other/main")
    agents.keep("one")
    place = agents.work("two")
    git(place, "remote", "remove", "other")
    git(place, "repack", "-q", "-a", "-d")
    (place / ".git" / "objects" / "info" / "alternates").unlink()
    agents.keep("two")
    place = bring(agents, "one")
    assert borrows(place) == ["other"]
    assert git(place, "show", "same:other") == "other"
