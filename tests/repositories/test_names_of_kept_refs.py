"""Refs whose names cannot be beside each other: nobody loses a ref or a log, and git goes on working."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.repositories.agents import Agents, commit, git, two_agents
from tests.repositories.joined import bring, keep, log, of_ours, refs

NAMES = [("feature", "feature/login"), ("feature/login", "feature")]


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Agents]:
    with two_agents(tmp_path) as made:
        yield made


@pytest.mark.parametrize("into", ["one", "lower"])
@pytest.mark.parametrize(("mine", "his"), NAMES)
def test_the_log_goes_with_a_ref_whose_name_is_taken(agents: Agents, mine: str, his: str, into: str) -> None:
    place = agents.work("two")
    git(place, "switch", "-qc", his)
    theirs = [commit(place, {"b": f"{number}\n"}, f"his {number}") for number in range(2)]
    git(place, "switch", "-q", "main")
    agents.keep("two")
    place = of_ours(agents, into)
    git(place, "switch", "-qc", mine)
    ours = [commit(place, {"a": f"{number}\n"}, f"mine {number}") for number in range(2)]
    keep(agents, into)
    for _ in range(2):
        place = bring(agents, into)
        kept = f"refs/heads/agentfsd/two/{his}"
        assert refs(place)[kept] == theirs[-1]
        assert log(place, mine)[:2] == ours[::-1]
        assert log(place, kept)[:2] == theirs[::-1]
        assert refs(place)[f"refs/heads/{mine}"] == ours[-1]
        assert f"refs/heads/{his}" not in refs(place)
    commit(place, {"a": "later\n"}, "git can still commit here")


@pytest.mark.parametrize("into", ["one", "lower"])
@pytest.mark.parametrize(("mine", "his"), NAMES)
@pytest.mark.parametrize("moved", [False, True])
def test_a_branch_that_was_renamed_into_its_own_directory(
    agents: Agents, mine: str, his: str, into: str, moved: bool
) -> None:  # fmt: skip
    git(agents.lower, "branch", mine)
    was = git(agents.lower, "rev-parse", "main")
    place = agents.work("two")
    git(place, "branch", "-m", mine, his)
    git(place, "switch", "-q", his)
    theirs = commit(place, {"b": "B\n"}, "two's")
    git(place, "switch", "-q", "main")
    agents.keep("two")
    place = of_ours(agents, into)
    ours = commit(place, {"a": "A\n"}, "ours")
    if moved:
        git(place, "branch", "-f", mine, "main")
    keep(agents, into)
    place = bring(agents, into)
    name = f"refs/heads/agentfsd/two/{his}" if moved else f"refs/heads/{his}"
    assert refs(place, "refs/heads") == {"refs/heads/main": ours, name: theirs} | ({f"refs/heads/{mine}": ours} if moved else {})
    assert log(place, name)[0] == theirs
    if moved:
        assert log(place, mine) == [ours, was]
    git(place, "switch", "-q", name.removeprefix("refs/heads/"))
    commit(place, {"a": "later\n"}, "git can still commit here")


@pytest.mark.parametrize("into", ["one", "lower"])
@pytest.mark.parametrize("taken", ["agentfsd", "agentfsd/two"])
@pytest.mark.parametrize("beside", [False, True])
def test_a_persons_branch_in_the_place_of_what_is_kept(agents: Agents, taken: str, into: str, beside: bool) -> None:
    git(agents.lower, "branch", "side")
    place = agents.work("two")
    git(place, "switch", "-q", "side")
    theirs = commit(place, {"a": "two\n"}, "two's")
    git(place, "tag", "same")
    git(place, "switch", "-q", "main")
    agents.keep("two")
    place = of_ours(agents, into)
    git(place, "switch", "-qc", taken)
    ours = [commit(place, {"a": f"{number}\n"}, f"mine {number}") for number in range(2)]
    git(place, "branch", "-f", "side", ours[0])
    git(place, "tag", taken, ours[0])
    git(place, "tag", "same", ours[0])
    keep(agents, into)
    for _ in range(2):
        place = bring(agents, into, beside=beside)
        found = refs(place)
        assert found[f"refs/heads/{taken}"] == ours[1]
        assert found[f"refs/tags/{taken}"] == ours[0]
        assert found["refs/heads/agentfsd-2/two/side"] == found["refs/tags/agentfsd-2/two/same"] == theirs
        assert log(place, f"refs/heads/{taken}")[:2] == ours[::-1]
        assert len([name for name in found if "agentfsd" in name]) == 4
    commit(place, {"a": "later\n"}, "git can still commit here")


def test_names_taken_by_what_comes_itself_and_by_what_was_kept_before(agents: Agents) -> None:
    """Theirs bring a branch agentfsd; what an earlier merge kept is below a name that a later one would need."""
    git(agents.lower, "branch", "side/deep")
    place = agents.work("one")
    ours = commit(place, {"a": "ours\n"}, "ours")
    git(place, "branch", "-f", "side/deep")
    agents.keep("one")
    place = agents.work("two")
    git(place, "switch", "-q", "side/deep")
    deep = commit(place, {"a": "deep\n"}, "two's")
    agents.keep("two")
    place = bring(agents, "one", beside=True)
    git(place, "branch", "-q", "-D", "side/deep")
    git(place, "branch", "side", "main")
    agents.keep("one")
    place = agents.work("two")
    git(place, "switch", "-q", "main")
    git(place, "branch", "-q", "-D", "side/deep")
    git(place, "switch", "-qc", "side", "main")
    side = commit(place, {"a": "side\n"}, "two's side")
    git(place, "branch", "agentfsd")
    git(place, "switch", "-q", "main")
    agents.keep("two")
    found = refs(bring(agents, "one"), "refs/heads")
    assert found == {
        "refs/heads/main": ours, "refs/heads/side": ours, "refs/heads/agentfsd/two/side/deep": deep,
        "refs/heads/agentfsd/two/side-2": side, "refs/heads/agentfsd/two/agentfsd": side,
    }  # fmt: skip


def test_a_ref_below_refs_itself(agents: Agents) -> None:
    for name in ("one", "two"):
        place = agents.work(name)
        commit(place, {name: name}, name)
        git(place, "update-ref", "refs/mark", "HEAD")
        agents.keep(name)
    theirs = git(agents.work("two"), "rev-parse", "HEAD")
    found = refs(bring(agents, "one"))
    assert found["refs/agentfsd/two/mark"] == theirs
    assert found["refs/mark"] not in (theirs, "")


def test_a_file_that_is_no_ref_is_not_replaced(agents: Agents) -> None:
    """What git cannot read as a ref, such as an empty file after a power cut, is somebody's to repair."""
    agents.commit("one", {"a": "A\n"}, "one's")
    agents.opened.write(".git/refs/heads/feature", b"", "one")
    place = agents.work("two")
    git(place, "branch", "feature/login")
    agents.keep("two")
    found = agents.merge("two", into="one").conflicts
    assert [(conflict.path, conflict.kind) for conflict in found] == [(b".git", "repository")]
    assert "refs/heads/feature " in found[0].message
    assert agents.opened.read(".git/refs/heads/feature", "one") == b""


def test_a_branch_without_commits_keeps_its_name_free(agents: Agents) -> None:
    place = agents.work("one")
    git(place, "switch", "-q", "--orphan", "feature")
    agents.keep("one")
    place = agents.work("two")
    git(place, "branch", "feature/login")
    agents.keep("two")
    assert agents.merge("two", into="one").conflicts == []
    place = agents.work("one")
    assert "refs/heads/agentfsd/two/feature/login" in refs(place)
    commit(place, {"a": "first\n"}, "git can still commit here")


def test_a_log_without_a_ref_is_not_replaced(agents: Agents) -> None:
    place = agents.work("one")
    git(place, "switch", "-qc", "feature")
    tip = commit(place, {"a": "A\n"}, "one's")
    git(place, "switch", "-q", "main")
    (place / ".git" / "refs" / "heads" / "feature").unlink()
    agents.keep("one")
    place = agents.work("two")
    git(place, "branch", "feature/login")
    agents.keep("two")
    place = bring(agents, "one")
    assert "refs/heads/feature/login" in refs(place)
    assert tip in (place / ".git" / "logs" / "refs" / "heads" / "feature").read_text()


def test_a_kept_ref_that_somebody_has_checked_out_is_not_moved(agents: Agents) -> None:
    git(agents.lower, "branch", "side")
    tips = []
    for number in range(2):
        place = agents.work("two")
        git(place, "switch", "-q", "side")
        tips.append(commit(place, {"b": f"{number}\n"}, "two's"))
        git(place, "switch", "-q", "main")
        agents.keep("two")
        place = bring(agents, "one", beside=True)
        git(place, "switch", "-q", "agentfsd/two/side")
        assert git(place, "status", "--porcelain") == ""
        agents.keep("one")
    found = refs(place, "refs/heads/agentfsd/two")
    assert found == {"refs/heads/agentfsd/two/side": tips[0], "refs/heads/agentfsd/two/side-2": tips[1]}


def test_work_that_was_kept_below_another_top_can_be_merged_later(agents: Agents) -> None:
    agents.commit("one", {"a": "A\n"}, "one's")
    place = agents.work("one")
    git(place, "branch", "agentfsd")
    agents.keep("one")
    place = agents.work("two")
    git(place, "switch", "-qc", "feature")
    his = commit(place, {"b": "B\n"}, "two's")
    agents.keep("two")
    assert refs(bring(agents, "one", beside=True))["refs/heads/agentfsd-2/two/feature"] == his
    assert agents.merge("two", into="one").said == ["two: 1 commit to main, merged"]


@pytest.mark.parametrize(("mine", "his"), NAMES)
def test_a_branch_that_shows_what_a_person_has_made_in_the_place_of_theirs(agents: Agents, mine: str, his: str) -> None:
    place = agents.work("two")
    git(place, "switch", "-qc", his)
    theirs = commit(place, {"b": "B\n"}, "two's")
    git(place, "switch", "-q", "main")
    agents.keep("two")
    git(agents.lower, "switch", "-qc", mine)
    ours = [commit(agents.lower, {"a": f"{number}\n"}, f"a person's {number}") for number in range(2)]
    place = bring(agents, "one")
    assert refs(place, "refs/heads")[f"refs/heads/{mine}"] == ours[-1]
    assert refs(place, "refs/heads")[f"refs/heads/agentfsd/two/{his}"] == theirs
    assert log(place, mine)[:2] == ours[::-1]
    assert refs(agents.lower, f"refs/heads/{mine}") == {f"refs/heads/{mine}": ours[-1]}
