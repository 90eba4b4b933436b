"""Build output that git ignores collides nowhere: each side keeps its own, and the work beside it is merged."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentfsd.history.merge_records import MergeDecision, Rules
from tests.history.trees import commit_lower
from tests.repositories.agents import Agents, commit, git, start


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Agents]:
    made = Agents(tmp_path)
    start(made.lower, {"a": "a\n", ".gitignore": "build/\n*.log\n", "sub/.gitignore": "!kept.log\n"})
    made.branch("one", "two", "three", "all")
    for name in ("one", "two", "three"):
        place = made.work(name)
        (place / "build").mkdir()
        for path in ("build/out", "sub/of.log"):
            (place / path).write_text(f"built by {name}\n")
        (place / f"of-{name}").write_text("work\n")
        git(place, "add", "-A")
        git(place, "commit", "-qm", name)
        made.keep(name)
    yield made
    made.close()


def test_ignored_files_of_many_branches_stay_as_the_first_one_had_them(agents: Agents) -> None:
    merged = agents.merge("one", "two", "three", into="all", leave_conflicting=True)
    assert (merged.merged, merged.left) == (["one", "two", "three"], [])
    kept = [MergeDecision(path, "ignored", "all") for path in (b"build/out", b"sub/of.log")]
    assert merged.decided == [(name, decision) for name in ("two", "three") for decision in kept]
    place = agents.work("all")
    assert (place / "build" / "out").read_text() == "built by one\n"
    assert git(place, "status", "--porcelain") == ""
    assert [(place / f"of-{name}").exists() for name in ("one", "two", "three")] == [True] * 3


def test_a_file_that_one_side_tracks_or_has_no_rule_for_is_a_conflict(agents: Agents) -> None:
    for name in ("one", "two"):
        place = agents.work(name)
        (place / "sub" / "kept.log").write_text(f"of {name}\n")
        if name == "two":
            git(place, "add", "-f", "sub/of.log")
            git(place, "commit", "-qm", "tracks")
        agents.keep(name)
    assert agents.merge("one", into="all").conflicts == []
    merged = agents.merge("two", into="all")
    assert [found.path for found in merged.conflicts] == [b"sub/kept.log", b"sub/of.log"]
    assert agents.merge("two", into="all", rules=Rules("theirs")).conflicts == []
    assert (agents.work("all") / "build" / "out").read_text() == "built by two\n"


def test_a_commit_leaves_ignored_files_of_the_real_directory_alone(agents: Agents) -> None:
    assert commit_lower(agents.opened, rule="refuse", ref="one").ignored == []
    planned = commit_lower(agents.opened, rule="merge", ref="two")
    assert (planned.conflicts, planned.ignored) == ([], [b"build/out", b"sub/of.log"])
    commit(agents.lower, {"a": "person\n"}, "person's")
    assert (agents.lower / "build" / "out").read_text() == "built by one\n"
    assert (agents.work("two") / "sub" / "of.log").read_text() == "built by two\n"
    assert (agents.lower / "of-two").exists()
    assert git(agents.lower, "status", "--porcelain") == ""
    assert commit_lower(agents.opened, rule="force", ref="three").ignored == []
    assert (agents.lower / "build" / "out").read_text() == "built by three\n"
