"""Merging branches in which agents use git: files that git does not track, that others must not get, or that are open."""

import os

import pytest

from agentfsd.core import data
from agentfsd.history.merge_records import Rules
from tests.history.trees import commit_lower
from tests.repositories.agents import Agents, commit, git, start
from tests.repositories.joined import shown


def untrack(agents: Agents, name: str, path: str) -> None:
    """An agent has git forget a file that stays."""
    place = agents.work(name)
    git(place, "rm", "-q", "--cached", path)
    git(place, "commit", "-qm", f"untracks {path}")
    agents.keep(name)


def test_a_commit_that_lacks_a_file_deletes_none_that_nobody_removed(agents: Agents) -> None:
    agents.branch("one", "two", "three")
    agents.commit("one", {"docs/f": "f\n"}, "one's")
    assert agents.merge("one", into="two").conflicts == []
    untrack(agents, "two", "docs/f")
    agents.commit("three", {"docs/g": "g\n"}, "three's")
    (agents.lower / "docs").mkdir()
    (agents.lower / "docs" / "f").write_text("f\n")  # as two's, and three, with a docs of its own, does not see it
    for source, target in (("two", "three"), ("three", "one")):
        assert agents.merge(source, into=target).conflicts == []
        place = shown(agents, target)
        assert (place / "docs" / "f").read_text() == "f\n"
        assert git(place, "status", "--porcelain") == "?? docs/f"


def test_a_file_that_came_by_a_merge_and_was_removed_goes_at_the_next_one(agents: Agents) -> None:
    agents.branch("one", "two")
    agents.commit("two", {"b": "B\n"}, "two's")
    agents.commit("one", {"docs/f": "f\n", "docs/g": "g\n"}, "one's")
    assert agents.merge("one", into="two").conflicts == []
    agents.commit("two", {"docs/f": None}, "two removes it")
    agents.commit("one", {"a": "A\n"}, "one's again")
    assert agents.merge("two", into="one").conflicts == []
    place = shown(agents, "one")
    assert not (place / "docs" / "f").exists()
    assert git(place, "status", "--porcelain") == ""


def test_an_untracked_file_stays_where_the_other_side_tracks_it(agents: Agents) -> None:
    agents.branch("one", "two")
    untrack(agents, "one", "a")
    agents.commit("two", {"b": "B\n"}, "two's")
    assert agents.merge("one", into="two").conflicts == []
    assert agents.merge("two", into="one").conflicts == []
    for name in ("one", "two"):
        place = shown(agents, name)
        assert (place / "a").read_text() == "a\n"
        assert git(place, "status", "--porcelain") == "?? a"


def test_files_of_an_unrelated_history_arrive(agents: Agents) -> None:
    agents.branch("one", "two")
    mine = agents.commit("one", {"a": "A\n"}, "one's")
    place = agents.work("two")
    for name, text in (("b", "B\n"), ("new", "new\n")):
        (place / name).write_text(text)
    git(place, "add", "-A")
    git(place, "commit", "-q", "--amend", "-m", "another start")
    his = git(place, "rev-parse", "HEAD")
    agents.keep("two")
    merged = agents.merge("two", into="one")
    assert merged.conflicts == []
    place = shown(agents, "one")
    assert git(place, "rev-parse", "main", "agentfsd/two/main").split() == [mine, his]
    assert [(place / name).read_text() for name in ("a", "b", "new")] == ["A\n", "B\n", "new\n"]
    assert git(place, "status", "--porcelain") == " M b\n?? new"
    assert any("no commit in common" in line for line in merged.said)


def test_files_of_an_unrelated_history_clash_as_files_do(agents: Agents) -> None:
    agents.branch("one", "two")
    agents.commit("one", {"a": "one\n"}, "one's")
    place = agents.work("two")
    (place / "a").write_text("two\n")
    git(place, "commit", "-q", "-a", "--amend", "-m", "another start")
    agents.keep("two")
    assert [(one.path, one.kind) for one in agents.merge("two", into="one").conflicts] == [(b"a", "content")]


@pytest.mark.parametrize("database", [".git", "bare.git"])
@pytest.mark.parametrize("name", ["config", "hooks/pre-commit", "info/exclude"])
def test_settings_of_a_repository_get_no_markers(agents: Agents, database: str, name: str) -> None:
    git(agents.lower, "clone", "-q", "--bare", ".", "bare.git")
    agents.branch("one", "two")
    for branch in ("one", "two"):
        place = agents.work(branch)
        file = place / database / name
        file.parent.mkdir(exist_ok=True)
        file.write_text((file.read_text() if file.exists() else "") + f"# {branch}\n")
        agents.keep(branch)
    merged = agents.merge("two", into="one", rules=Rules(markers=True))
    assert f"{database}/{name}".encode() in [one.path for one in merged.conflicts]
    text = (agents.work("one") / database / name).read_text()
    assert "# one" in text
    assert "<<<<" not in text


def test_a_file_that_leads_to_a_repository_gets_no_markers(agents: Agents) -> None:
    (agents.lower / "linked").mkdir()
    agents.branch("one", "two")
    for branch in ("one", "two"):
        place = agents.work(branch)
        (place / "linked" / ".git").write_text(f"gitdir: ../{branch}.git\n")
        agents.keep(branch)
    merged = agents.merge("two", into="one", rules=Rules(markers=True))
    assert [one.path for one in merged.conflicts] == [b"linked/.git"]
    assert (agents.work("one") / "linked" / ".git").read_text() == "gitdir: ../one.git\n"


def test_objects_that_the_real_repository_got_meanwhile_come_with_the_commits_that_need_them(agents: Agents) -> None:
    agents.branch("two", "three")
    place = agents.work("three")
    for number in range(256):  # as after many commits of its own
        (place / ".git" / "objects" / f"{number:02x}").mkdir(exist_ok=True)
    commit(place, {"a": "A\n"}, "three's")
    agents.keep("three")
    agents.commit("two", {"b": "B\n"}, "two's")
    assert commit_lower(agents.opened, rule="merge", ref="two").conflicts == []
    tip = agents.commit("two", {"c": "c\n"}, "two's again")
    assert agents.merge("two", into="three").conflicts == []
    place = shown(agents, "three")
    assert tip in git(place, "rev-list", "main").split()
    assert git(place, "status", "--porcelain") == ""


def test_conflicts_of_commits_are_shown_decided_and_marked_as_those_of_files(agents: Agents) -> None:
    start(agents.lower, {"text": "1\n2\n3\n"})
    agents.branch("a", "b")
    agents.commit("a", {"text": "1\nby a\n3\n"}, "A")
    agents.commit("b", {"text": "1\nby b\n3\n"}, "B")
    assert agents.merge("a", into="main").said == ["a: 1 commit to main"]
    (conflict,) = agents.merge("b", into="main").conflicts
    assert (conflict.path, conflict.message) == (b"text", "both sides changed the same lines")
    assert conflict.excerpt == ("by a", "by b")
    agents.branch("marked")
    assert agents.merge("b", into="marked", rules=Rules(markers=True)).marked == [("b", b"text")]
    assert "<<<<<<< marked\nby a\n=======\nby b\n>>>>>>> b\n" in (agents.work("marked") / "text").read_text()
    decided = agents.merge("b", into="main", rules=Rules("theirs")).decided
    assert [(source, *decision) for source, decision in decided] == [("b", b"text", "content", "b")]


def test_a_file_that_is_open_while_a_merge_makes_it_the_real_directorys_again(agents: Agents) -> None:
    """Of both sides' last messages ours stays, which is that of the real repository: nobody has committed there."""
    agents.branch("one", "two")
    agents.commit("one", {"a": "A\n"}, "one's")
    place = agents.work("two")
    git(place, "tag", "mine")
    agents.keep("two")
    agents.merge("one", into="two")
    inode = agents.opened.tree("one").walk(b".git/COMMIT_EDITMSG")
    data.open_(inode, os.O_RDWR)
    assert agents.merge("two", into="one").how == "fast-forward"
    assert data.read(inode, 100, 0) == b"start\n"
    data.write(inode, b"S", 0)
    data.release(inode)
    assert agents.opened.read(".git/COMMIT_EDITMSG", "one") == b"Start\n"
    assert agents.opened.overlay.fsck() == []
    agents.opened.reopen()
    assert agents.opened.read(".git/COMMIT_EDITMSG", "one") == b"Start\n"
