"""What our side has staged, or has not resolved, when commits of the other side arrive."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentfsd.history.merge_records import Rules
from tests.history.trees import commit_lower
from tests.repositories.agents import Agents, commit, git, start

LINES = [f"line {number}\n" for number in range(20)]


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Agents]:
    made = Agents(tmp_path)
    start(made.lower, {"a": "a\n", "b": "b\n", "text": "".join(LINES)})
    made.branch("one", "two")
    yield made
    made.close()


def text(**changed: str) -> str:
    return "".join(changed.get(f"l{number}", line) for number, line in enumerate(LINES))


def pop_a_stash_that_conflicts(place: Path) -> None:
    (place / "a").write_text("stashed\n")
    git(place, "stash", "-q")
    commit(place, {"a": "person\n"}, "person's")
    git(place, "stash", "pop", "-q", check=False)
    (place / "staged").write_text("staged\n")
    git(place, "add", "staged")
    assert git(place, "status", "--porcelain") == "UU a\nA  staged"


@pytest.mark.parametrize("favor", ["", "ours", "theirs"])
def test_conflicts_that_nobody_has_resolved_are_an_obstacle(agents: Agents, favor: str) -> None:
    place = agents.work("one")
    pop_a_stash_that_conflicts(place)
    agents.keep("one")
    agents.commit("two", {"b": "two\n"}, "two's")
    found = agents.merge("two", into="one", rules=Rules(favor=favor)).conflicts  # type: ignore[arg-type]
    assert [(one.path, one.kind) for one in found] == [(b".git", "repository")]
    assert "one has conflicts that nobody has resolved, such as a" in found[0].message
    assert "`agentfsd run -b one -- git status`" in found[0].message
    place = agents.work("one")
    assert git(place, "status", "--porcelain") == "UU a\nA  staged"
    git(place, "checkout", "-q", "--theirs", "a")
    git(place, "add", "a")
    agents.keep("one")
    assert agents.merge("two", into="one").conflicts == []
    assert git(agents.work("one"), "status", "--porcelain") == "M  a\nA  staged"


def test_conflicts_in_the_real_directory(agents: Agents) -> None:
    agents.commit("two", {"b": "two\n"}, "two's")
    pop_a_stash_that_conflicts(agents.lower)
    for rule in ("merge", "force"):
        found = commit_lower(agents.opened, ref="two", rule=rule).conflicts  # type: ignore[arg-type]
        assert [(one.path, one.kind) for one in found] == [(b".git", "repository")]
    assert git(agents.lower, "status", "--porcelain") == "UU a\nA  staged"
    assert commit_lower(agents.opened, ref="two", as_branches=True).conflicts == []
    assert git(agents.lower, "status", "--porcelain") == "UU a\nA  staged"


def test_conflicts_of_the_real_directory_that_the_branch_has_resolved(agents: Agents) -> None:
    pop_a_stash_that_conflicts(agents.lower)
    agents.branch("three")
    agents.commit("three", {"a": "resolved\n"}, "three's")
    assert commit_lower(agents.opened, ref="three").conflicts == []
    assert git(agents.lower, "status", "--porcelain") == ""


@pytest.mark.parametrize("has_commits", [False, True])
def test_only_what_the_merge_changes_is_unstaged(agents: Agents, has_commits: bool) -> None:
    if has_commits:
        agents.commit("one", {"of-one": "new\n"}, "one's")
    place = agents.work("one")
    for name, content in {"text": text(l1="one\n"), "b": "one\n", "new/file": "new\n"}.items():
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text(content)
    git(place, "add", "-A")
    agents.keep("one")
    agents.commit("two", {"text": text(l15="two\n"), "new/other": "two\n"}, "two's")
    merged = agents.merge("two", into="one")
    assert merged.conflicts == []
    assert not [line for line in merged.said if "staged" in line]
    place = agents.work("one")
    assert git(place, "status", "--porcelain") == "M  b\nA  new/file\n M text"
    assert (place / "text").read_text() == text(l1="one\n", l15="two\n")


def test_what_was_staged_and_is_in_no_file_is_told(agents: Agents) -> None:
    place = agents.work("one")
    (place / "text").write_text(text(l1="staged\n"))
    git(place, "add", "text")
    oid = git(place, "rev-parse", ":text")
    (place / "text").write_text(text(l1="edited\n"))
    agents.keep("one")
    agents.commit("two", {"text": text(l15="two\n")}, "two's")
    said = agents.merge("two", into="one").said
    assert (
        f"text: what one had staged is no longer staged, as the merge changes it; `git cat-file -p {oid[:12]}` shows it" in said
    )
    place = agents.work("one")
    assert git(place, "status", "--porcelain") == " M text"
    assert git(place, "cat-file", "-p", oid[:12]) + "\n" == text(l1="staged\n")


def test_what_was_staged_in_the_place_of_a_directory(agents: Agents) -> None:
    place = agents.work("one")
    (place / "b").write_text("one\n")
    (place / "docs").write_text("file\n")
    git(place, "add", "b", "docs")
    (place / "docs").unlink()
    agents.keep("one")
    agents.commit("two", {"docs/page": "page\n"}, "two's")
    merged = agents.merge("two", into="one")
    assert merged.conflicts == []
    assert any(line.startswith("docs: what one had staged") for line in merged.said)
    assert git(agents.work("one"), "status", "--porcelain") == "M  b"
