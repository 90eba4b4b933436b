"""Symbolic refs: commits arrive at the ref that one leads to, and none of a kind takes the place of the other by accident."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.repositories.agents import Agents, commit, git, two_agents
from tests.repositories.joined import bring, keep, log, of_ours, refs

LINE = re.compile(r"[0-9a-f]{40} [0-9a-f]{40} A <a@x> \d+ [+-]\d{4}(\t.*)?")


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Agents]:
    with two_agents(tmp_path, "topic") as made:
        yield made


def sound_logs(place: Path) -> None:
    for path in (place / ".git" / "logs").rglob("*"):
        lines = path.read_text().splitlines() if path.is_file() else []
        assert [line for line in lines if not LINE.fullmatch(line)] == [], path


def switch_to_alias(place: Path) -> None:
    """HEAD is on ``master``, which is another name of ``main``."""
    git(place, "symbolic-ref", "refs/heads/master", "refs/heads/main")
    git(place, "switch", "-q", "master")
    assert git(place, "symbolic-ref", "--no-recurse", "HEAD") == "refs/heads/master"


@pytest.mark.parametrize("into", ["one", "lower"])
@pytest.mark.parametrize("parted", [False, True])
@pytest.mark.parametrize("before", [False, True])
def test_head_on_another_name_of_a_branch(agents: Agents, into: str, parted: bool, before: bool) -> None:
    if before:
        switch_to_alias(agents.lower)
    his = agents.commit("two", {"b": "B\n"}, "two's")
    place = of_ours(agents, into)
    if not before:
        switch_to_alias(place)
    mine = commit(place, {"a": "A\n"}, "ours") if parted else git(place, "rev-parse", "HEAD")
    keep(agents, into)
    place = bring(agents, into)
    assert git(place, "symbolic-ref", "--no-recurse", "HEAD") == "refs/heads/master"
    assert git(place, "symbolic-ref", "refs/heads/master") == "refs/heads/main"
    assert {mine, his} <= set(git(place, "rev-list", "main").split())
    assert git(place, "status", "--porcelain") == ""
    assert log(place, "refs/heads/main")[0] == log(place, "HEAD")[0] == git(place, "rev-parse", "main")
    sound_logs(place)


@pytest.mark.parametrize("into", ["one", "lower"])
def test_they_make_our_branch_another_name(agents: Agents, into: str) -> None:
    place = agents.work("two")
    git(place, "branch", "-q", "-m", "main", "trunk")
    git(place, "symbolic-ref", "refs/heads/main", "refs/heads/trunk")
    his = commit(place, {"b": "B\n"}, "two's")
    agents.keep("two")
    place = of_ours(agents, into)
    mine = commit(place, {"a": "A\n"}, "ours")
    keep(agents, into)
    place = bring(agents, into)
    assert git(place, "symbolic-ref", "HEAD") == "refs/heads/main"
    assert {mine, his} <= set(git(place, "rev-list", "main").split())
    assert refs(place)["refs/heads/trunk"] == his
    assert git(place, "status", "--porcelain") == ""
    sound_logs(place)


@pytest.mark.parametrize("into", ["one", "lower"])
@pytest.mark.parametrize(
    "replacement", ["symbolic-ref refs/heads/master refs/heads/topic", "update-ref --no-deref refs/heads/master {}"]
)
def test_the_name_under_which_ours_is_checked_out_stays(agents: Agents, into: str, replacement: str) -> None:
    switch_to_alias(agents.lower)
    tip = git(agents.lower, "rev-parse", "main")
    place = agents.work("two")
    git(place, "switch", "-q", "topic")
    his = commit(place, {"b": "B\n"}, "two's")
    git(place, *replacement.format(his).split())
    git(place, "switch", "-q", "--detach", tip)
    agents.keep("two")
    place = of_ours(agents, into)
    git(place, "tag", "mine")
    keep(agents, into)
    place = bring(agents, into)
    assert git(place, "symbolic-ref", "refs/heads/master") == "refs/heads/main"
    assert git(place, "rev-parse", "HEAD", "topic").split() == [tip, his]
    assert git(place, "status", "--porcelain") == ""
    if "update-ref" in replacement:
        assert refs(place)["refs/heads/agentfsd/two/master"] == his
    sound_logs(place)


@pytest.mark.parametrize("into", ["one", "lower"])
def test_symbolic_refs_that_come_and_that_become_branches(agents: Agents, into: str) -> None:
    git(agents.lower, "symbolic-ref", "refs/heads/alias", "refs/heads/topic")
    place = agents.work("two")
    was = git(place, "rev-parse", "topic")
    git(place, "update-ref", "refs/remotes/origin/main", "HEAD")
    git(place, "symbolic-ref", "-m", "by hand", "refs/remotes/origin/HEAD", "refs/remotes/origin/main")
    git(place, "switch", "-qc", "made")
    his = commit(place, {"b": "B\n"}, "two's")
    git(place, "symbolic-ref", "-d", "refs/heads/alias")
    git(place, "update-ref", "refs/heads/alias", his)
    git(place, "symbolic-ref", "refs/heads/topic", "refs/heads/made")
    git(place, "switch", "-q", "main")
    agents.keep("two")
    place = of_ours(agents, into)
    commit(place, {"a": "A\n"}, "ours")
    keep(agents, into)
    place = bring(agents, into)
    assert git(place, "symbolic-ref", "refs/remotes/origin/HEAD") == "refs/remotes/origin/main"
    assert git(place, "symbolic-ref", "refs/heads/topic") == "refs/heads/made"
    assert git(place, "symbolic-ref", "-q", "refs/heads/alias", check=False) == ""
    assert refs(place)["refs/heads/alias"] == his
    sound_logs(place)
    lines = (place / ".git" / "logs" / "refs" / "heads" / "alias").read_text().splitlines()
    assert lines[-1].split()[:2] in ([was, his], ["0" * 40, his])


@pytest.mark.parametrize("into", ["one", "lower"])
def test_a_branch_that_ours_made_another_name_while_they_committed_on_it(agents: Agents, into: str) -> None:
    place = agents.work("two")
    git(place, "switch", "-q", "topic")
    his = commit(place, {"b": "B\n"}, "two's")
    git(place, "switch", "-q", "main")
    agents.keep("two")
    place = of_ours(agents, into)
    git(place, "symbolic-ref", "refs/heads/topic", "refs/heads/main")
    keep(agents, into)
    place = bring(agents, into)
    assert git(place, "symbolic-ref", "refs/heads/topic") == "refs/heads/main"
    assert refs(place)["refs/heads/agentfsd/two/topic"] == his
    sound_logs(place)


def test_a_linked_worktree_on_another_name_of_a_branch(agents: Agents) -> None:
    was = git(agents.lower, "rev-parse", "topic")
    place = agents.work("two")
    git(place, "switch", "-q", "topic")
    his = commit(place, {"b": "B\n"}, "two's")
    git(place, "switch", "-q", "main")
    agents.keep("two")
    there = agents.base / "review"
    git(agents.lower, "symbolic-ref", "refs/heads/alias", "refs/heads/topic")
    git(agents.lower, "worktree", "add", "-q", str(there), "alias")
    found = refs(bring(agents, "lower"), "refs/heads")
    assert (found["refs/heads/topic"], found["refs/heads/agentfsd/two/topic"]) == (was, his)
    assert git(there, "status", "--porcelain") == ""
