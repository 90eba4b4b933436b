"""Agents that go on after their commits have arrived in the real repository: nothing is counted or merged twice."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentfsd.core import inode_stat, tree_diff
from agentfsd.history.merge_records import Rules
from agentfsd.repositories.telling import tell
from tests.history.trees import commit_lower
from tests.repositories.agents import Agents, commit, git, start


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Agents]:
    made = Agents(tmp_path)
    start(made.lower, {"a": "a\n", "b": "b\n"})
    made.branch("one", "two", "all")
    yield made
    made.close()


def told(agents: Agents, name: str) -> list[str]:
    """What is said of a branch's repository."""
    overlay = agents.opened.overlay
    with overlay.trees.frozen(overlay.refs.branch(name).id) as tree:
        real = overlay.trees.side(None)
        changed = [pair.path for pair in tree_diff.pairs(overlay.parts, real, tree)]
        said: list[str] = []

        def through() -> Iterator[object]:
            sentences = yield from tell(overlay.parts, real, tree, changed)
            said.extend(sentence.sentence() for sentence in sentences)

        list(through())
        return said


def work(agents: Agents, number: int) -> set[str]:
    """A commit of each agent; their ids."""
    return {
        agents.commit(name, {file: f"{name} {number}\n", f"docs/{name}-{number}": "new\n"}, f"{name}'s {number}")
        for name, file in (("one", "a"), ("two", "b"))
    }


def check(agents: Agents, tips: set[str]) -> None:
    """The real repository has each commit once, and is in order."""
    git(agents.lower, "fsck", "--strict", "--no-dangling")
    assert git(agents.lower, "status", "--porcelain") == ""
    titles = git(agents.lower, "log", "--no-merges", "--format=%s").splitlines()
    assert len(titles) == len(set(titles)) == 1 + len(tips)
    assert tips <= set(git(agents.lower, "rev-list", "main").split())


def test_each_agent_commits_in_every_round(agents: Agents) -> None:
    tips: set[str] = set()
    for number in range(1, 4):
        tips |= work(agents, number)
        assert commit_lower(agents.opened, rule="refuse", ref="one").said == ["one: 1 commit to main"]
        assert commit_lower(agents.opened, rule="merge", ref="two").said == ["two: 1 commit to main, merged"]
        check(agents, tips)
        for name in ("one", "two"):
            assert told(agents, name) == []
            assert commit_lower(agents.opened, rule="merge", ref=name).steps == []


def test_rounds_of_merging_all_and_taking_it_over_again(agents: Agents) -> None:
    tips: set[str] = set()
    for number in range(1, 4):
        tips |= work(agents, number)
        merged = agents.merge("one", "two", into="all")
        assert merged.conflicts == []
        assert merged.said == ["one: 1 commit to main", "two: 1 commit to main, merged"]
        assert commit_lower(agents.opened, rule="refuse", ref="all").said == ["all: 3 commits to main"]
        check(agents, tips)
        for name in ("one", "two"):
            assert "ahead" not in " ".join(told(agents, name))
            assert agents.merge("all", into=name).conflicts == []
            place = agents.work(name)
            assert git(place, "status", "--porcelain") == ""
            assert git(place, "rev-parse", "main") == git(agents.lower, "rev-parse", "main")
            assert told(agents, name) == []


def test_files_of_others_over_an_older_head_are_uncommitted_until_the_branch_takes_the_commits(agents: Agents) -> None:
    tips = work(agents, 1)
    agents.merge("one", "two", into="all")
    assert commit_lower(agents.opened, rule="refuse", ref="all").conflicts == []
    assert git(agents.work("one"), "status", "--porcelain") == " M b"
    assert commit_lower(agents.opened, rule="refuse", ref="one").conflicts == []  # brings nothing, and lets go of what arrived
    place = agents.work("one")
    assert git(place, "status", "--porcelain") == ""
    assert git(place, "rev-parse", "main") == git(agents.lower, "rev-parse", "main")
    check(agents, tips)


def test_an_aborted_merge_counts_as_none_and_a_finished_one_is_not_merged_twice(agents: Agents) -> None:
    agents.commit("one", {"a": "one\n"}, "one's")
    tip = agents.commit("two", {"a": "two\n", "new": "new\n"}, "two's")
    agents.merge("one", into="all")
    for ending in ("abort", "continue"):
        assert [path for _, path in agents.merge("two", into="all", rules=Rules(markers=True)).marked] == [b"a"]
        place = agents.work("all")
        git(place, "update-index", "-q", "--refresh", check=False)  # the copy has other inodes
        (place / "a").write_text("both\n")
        git(place, "add", "a")
        git(place, "merge", f"--{ending}")
        agents.keep("all")
        assert (place / "new").exists() == (ending == "continue")
    again = agents.merge("two", into="all", rules=Rules(favor="theirs"))
    assert (again.conflicts, again.listed.changes, again.said) == ([], [], [])
    assert agents.merge("two", into="all").how == "nothing"
    place = agents.work("all")
    assert tip in git(place, "rev-list", "HEAD").split()
    assert (git(place, "status", "--porcelain"), (place / "a").read_text()) == ("", "both\n")


@pytest.mark.parametrize(("form", "version"), [("sha1", 2), ("sha256", 4)])
def test_the_index_of_a_merge_with_markers_knows_the_files_that_it_brought(tmp_path: Path, form: str, version: int) -> None:
    agents = Agents(tmp_path)
    start(agents.lower, {"a": "a\n", "dir/long name": "b\n"}, f"--object-format={form}")
    git(agents.lower, "update-index", "--index-version", str(version))
    agents.branch("one", "two")
    agents.commit("one", {"a": "one\n", "dirty": "dirty\n"}, "one's")
    agents.commit("two", {"a": "two\n", "dir/long name": "two's\n", "dir/long names": "new\n", "empty": ""}, "two's")
    agents.opened.write("dir/long names", b"not as committed", "two")
    agents.merge("two", into="one", rules=Rules(markers=True))
    tree, place = agents.opened.tree("one"), agents.work("one")
    noted = {}
    for record in git(place, "ls-files", "--debug", "--stage").split("\n100"):
        name, *fields = (line.split() for line in record.splitlines())
        noted[" ".join(name[3:]), name[2]] = [word for field in fields for word in field]
    for path in (b"dir/long name", b"empty"):
        shown = inode_stat.attributes(tree.walk(path))
        words = noted[path.decode(), "0"]
        assert words[1] == "{}:{}".format(*divmod(shown.ctime_ns, 10**9))
        assert words[3] == "{}:{}".format(*divmod(shown.mtime_ns, 10**9))
        assert [words[at] for at in (7, 9, 11, 13)] == [
            str(n & 0xFFFFFFFF) for n in (shown.ino, shown.uid, shown.gid, shown.size)
        ]
    assert noted["dir/long names", "0"][1] == "0:0"  # git has to look at what somebody changed
    assert git(place, "fsck", "--strict", "--no-dangling") == ""
    assert git(place, "status", "--porcelain").splitlines() == [
        "UU a", 'M  "dir/long name"', 'AM "dir/long names"', "A  empty"
    ]  # fmt: skip
    agents.close()


def test_an_unfinished_merge_does_not_reach_the_real_directory(agents: Agents) -> None:
    agents.commit("one", {"a": "one\n"}, "one's")
    agents.commit("two", {"a": "two\n", "new": "new\n"}, "two's")
    agents.merge("one", into="all")
    commit_lower(agents.opened, rule="refuse", ref="all")
    agents.merge("two", into="all", rules=Rules(markers=True))
    for rule in ("refuse", "merge", "force"):
        refused = commit_lower(agents.opened, rule=rule, ref="all")  # type: ignore[arg-type]
        assert [(found.path, found.kind) for found in refused.conflicts] == [(b".git", "repository")]
        assert "`agentfsd run -b all -- git merge --abort`" in refused.conflicts[0].message
    place = agents.work("all")
    (place / "a").write_text("both\n")
    git(place, "commit", "-qam", "merged")
    agents.keep("all")
    assert commit_lower(agents.opened, rule="refuse", ref="all").conflicts == []
    assert git(agents.lower, "status", "--porcelain") == ""
    assert (agents.lower / "a").read_text() == "both\n"


@pytest.mark.parametrize("packed", [False, True])
def test_a_branch_takes_over_what_a_person_has_committed(agents: Agents, packed: bool) -> None:
    """The branch ``all`` shows the real directory, as ``main`` does."""
    agents.commit("one", {"a": "one\n"}, "one's")
    if packed:
        place = agents.work("one")
        git(place, "gc", "-q")
        agents.keep("one")
    theirs = commit(agents.lower, {"b": "person\n", "new": "new\n"}, "person's")
    assert agents.merge("all", into="one").said == ["all: 1 commit to main, merged"]
    place = agents.work("one")
    assert theirs in git(place, "rev-list", "main").split()
    assert git(place, "status", "--porcelain") == ""
    assert [(place / name).read_text() for name in ("a", "b", "new")] == ["one\n", "person\n", "new\n"]
    assert agents.merge("all", into="one").how == "nothing"
    assert commit_lower(agents.opened, rule="refuse", ref="one").conflicts == []
    assert git(agents.lower, "status", "--porcelain") == ""
    assert git(agents.lower, "rev-parse", "main") == git(place, "rev-parse", "main")


def test_what_a_person_has_committed_is_a_conflict_where_the_branch_changed_the_same(agents: Agents) -> None:
    agents.commit("one", {"a": "one\n"}, "one's")
    commit(agents.lower, {"a": "person\n"}, "person's")
    merged = agents.merge("all", into="one")
    assert [(found.path, found.kind) for found in merged.conflicts] == [(b"a", "content")]
    assert agents.merge("all", into="one", rules=Rules(favor="ours")).conflicts == []
    place = agents.work("one")
    assert (git(place, "status", "--porcelain"), (place / "a").read_text()) == ("", "one\n")
    assert commit_lower(agents.opened, rule="refuse", ref="one").conflicts == []
    assert (agents.lower / "a").read_text() == "one\n"


@pytest.mark.parametrize("in_use", [False, True])
def test_notes_of_both_when_one_came_to_the_real_repository_first(agents: Agents, in_use: bool) -> None:
    """A branch in use keeps its own copies of what it has committed."""
    tips = []
    for name in ("one", "two"):
        place = agents.work(name)
        git(place, "notes", "add", "-m", name, "HEAD" if name == "one" else "HEAD^{tree}")
        tips.append(git(place, "rev-parse", "refs/notes/commits"))
        agents.keep(name)
    assert commit_lower(agents.opened, rule="refuse", ref="one", whole=not in_use).conflicts == []
    agents.merge("one", into="two")
    agents.merge("two", into="one")
    for name in ("one", "two"):
        assert {*tips} <= set(git(agents.work(name), "rev-list", "refs/notes/commits").split())
