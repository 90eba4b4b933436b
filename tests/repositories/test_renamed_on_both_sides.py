"""Files that both sides renamed, or whose new name the other side took: a favoured side leaves no markers in a commit."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from agentfsd.history.merge_records import Rules
from tests.history.trees import commit_lower
from tests.repositories.agents import Agents, commit, git, start

LINES = [f"line {number}\n" for number in range(20)]

Favor = Literal["ours", "theirs"]
both = pytest.mark.parametrize("favor", ["ours", "theirs"])


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Agents]:
    made = Agents(tmp_path)
    start(made.lower, {"old": "".join(LINES), "other": "".join(LINES[::-1])})
    made.branch("one", "two")
    yield made
    made.close()


def edited(own_line: int, who: str, *, of: list[str] = LINES) -> str:
    """The text with one line that both sides change, and one that only *who* changes."""
    return "".join(f"{who}'s\n" if number in (3, own_line) else line for number, line in enumerate(of))


def move(agents: Agents, who: str, names: dict[str, str], contents: dict[str, str]) -> None:
    place = agents.work(who)
    for old, new in names.items():
        git(place, "mv", old, new)
    for path, text in contents.items():
        (place / path).write_text(text)
    git(place, "add", "-A")
    git(place, "commit", "-qm", f"moves of {who}")
    agents.keep(who)


def merge(agents: Agents, favor: Favor, kind: str) -> Path:
    assert kind in [found.kind for found in agents.merge("two", into="one").conflicts]
    assert agents.merge("two", into="one", rules=Rules(favor=favor)).conflicts == []
    place = agents.work("one")
    assert git(place, "status", "--porcelain") == ""
    git(place, "fsck", "--strict", "--no-dangling")
    return place


def names(place: Path) -> list[str]:
    return git(place, "ls-files").split()


@both
def test_a_file_renamed_to_two_names_gets_the_favoured_one_and_the_lines_of_both(agents: Agents, favor: Favor) -> None:
    move(agents, "one", {"old": "of-one"}, {"of-one": edited(15, "one")})
    move(agents, "two", {"old": "of-two"}, {"of-two": edited(8, "two")})
    place = merge(agents, favor, "rename/rename")
    winner = "one" if favor == "ours" else "two"
    assert names(place) == [f"of-{winner}", "other"]
    expected = edited(15, "one").splitlines(True)
    expected[3], expected[8] = f"{winner}'s\n", "two's\n"
    assert (place / f"of-{winner}").read_text() == "".join(expected)


@pytest.mark.parametrize("favor", ["", "ours", "theirs"])
def test_a_new_file_that_git_has_merged_is_no_second_name(agents: Agents, favor: Literal["", "ours", "theirs"]) -> None:
    """It looks like one where somebody has removed a similar file without a commit: the working file was left out."""
    move(agents, "one", {"old": "of-one"}, {})
    move(agents, "two", {}, {"of-two": edited(8, "two")})
    (agents.work("two") / "old").unlink()
    agents.keep("two")
    assert agents.merge("two", into="one", rules=Rules(favor=favor)).conflicts == []
    place = agents.work("one")
    assert git(place, "status", "--porcelain") == ""
    assert names(place) == ["of-one", "of-two", "other"]
    assert ((place / "of-one").read_text(), (place / "of-two").read_text()) == ("".join(LINES), edited(8, "two"))


@pytest.mark.parametrize("favor", ["", "ours", "theirs"])
def test_an_untracked_file_at_such_a_name_is_not_overwritten(agents: Agents, favor: Literal["", "ours", "theirs"]) -> None:
    move(agents, "one", {"old": "of-one"}, {})
    (agents.work("one") / "of-two").write_text("untracked of one\n")
    agents.keep("one")
    move(agents, "two", {}, {"of-two": edited(8, "two")})
    (agents.work("two") / "old").unlink()
    (agents.work("two") / "of-one").write_text("untracked of two\n")
    agents.keep("two")
    merged = agents.merge("two", into="one", rules=Rules(favor=favor))
    told = {found.path for found in merged.conflicts} | {decision.path for _, decision in merged.decided}
    assert {b"of-one", b"of-two"} <= told
    if favor == "":
        assert (agents.work("one") / "of-two").read_text() == "untracked of one\n"


def test_markers_in_a_file_renamed_to_two_names_are_told_of_both(agents: Agents) -> None:
    move(agents, "one", {"old": "of-one"}, {"of-one": edited(15, "one")})
    move(agents, "two", {"old": "of-two"}, {"of-two": edited(8, "two")})
    merged = agents.merge("two", into="one", rules=Rules(markers=True))
    assert sorted(path for _, path in merged.marked) == [b"of-one", b"of-two"]
    place = agents.work("one")
    for name in ("of-one", "of-two"):
        assert "<<<<<<< " in (place / name).read_text()


def test_a_file_renamed_to_two_names_without_markers_is_not_told_of(agents: Agents) -> None:
    move(agents, "one", {"old": "of-one"}, {})
    move(agents, "two", {"old": "of-two"}, {})
    assert agents.merge("two", into="one", rules=Rules(markers=True)).marked == []


@both
def test_a_binary_file_renamed_to_two_names_is_the_favoured_one(agents: Agents, favor: Favor) -> None:
    data = {who: "".join(LINES) + f"\0 {who}\n" for who in ("one", "two")}
    commit(agents.lower, {"old": "".join(LINES) + "\0\n"}, "binary")
    for who, text in data.items():
        move(agents, who, {"old": f"of-{who}"}, {f"of-{who}": text})
    place = merge(agents, favor, "rename/rename")
    winner = "one" if favor == "ours" else "two"
    assert names(place) == [f"of-{winner}", "other"]
    assert (place / f"of-{winner}").read_text() == data[winner]


@both
def test_uncommitted_lines_of_a_file_renamed_to_two_names_stay(agents: Agents, favor: Favor) -> None:
    move(agents, "one", {"old": "of-one"}, {"of-one": edited(15, "one")})
    move(agents, "two", {"old": "of-two"}, {"of-two": edited(8, "two")})
    place = agents.work("one")
    (place / "of-one").write_text(edited(15, "one") + "not committed\n")
    agents.keep("one")
    agents.merge("two", into="one", rules=Rules(favor=favor))
    assert "not committed" in (agents.work("one") / "of-one").read_text()


@both
def test_two_files_renamed_to_one_name_leave_the_favoured_one(agents: Agents, favor: Favor) -> None:
    for who, moved, stays in (("one", "old", "other"), ("two", "other", "old")):
        lines = {"old": LINES, "other": LINES[::-1]}
        move(agents, who, {moved: "new"}, {"new": edited(15, who, of=lines[moved]), stays: edited(8, who, of=lines[stays])})
    text = (merge(agents, favor, "rename/add") / "new").read_text()
    winner = "one" if favor == "ours" else "two"
    assert "<<<<" not in text
    assert f"{winner}'s\n" in text


@both
def test_a_file_renamed_to_what_the_other_side_added_leaves_the_favoured_one(agents: Agents, favor: Favor) -> None:
    move(agents, "one", {"old": "new"}, {"new": edited(15, "one")})
    move(agents, "two", {}, {"old": edited(8, "two"), "new": "two's\n"})
    text = (merge(agents, favor, "rename/add") / "new").read_text()
    assert "<<<<" not in text
    assert text == (edited(15, "one") if favor == "ours" else "two's\n")


@both
def test_an_uncommitted_rename_to_two_names_keeps_the_lines_of_both(agents: Agents, favor: Favor) -> None:
    for who, line in (("one", 15), ("two", 8)):
        place = agents.work(who)
        (place / "old").rename(place / f"of-{who}")
        (place / f"of-{who}").write_text(edited(line, who))
        agents.keep(who)
    merged = agents.merge("two", into="one")
    assert {(found.path, found.kind) for found in merged.conflicts} == {
        (path, "rename/rename") for path in (b"old", b"of-one", b"of-two")
    }
    merged = agents.merge("two", into="one", rules=Rules(favor=favor))
    winner = "one" if favor == "ours" else "two"
    assert {(found.path, found.winner) for _, found in merged.decided} == {
        (path, winner) for path in (b"old", b"of-one", b"of-two")
    }
    place = agents.work("one")
    assert sorted(path.name for path in place.glob("o*")) == [f"of-{winner}", "other"]
    expected = edited(15, "one").splitlines(True)
    expected[3], expected[8] = f"{winner}'s\n", "two's\n"
    assert (place / f"of-{winner}").read_text() == "".join(expected)


def test_lines_follow_a_rename_that_has_come_to_the_real_directory_before(agents: Agents) -> None:
    """The other branch shows the new name, too: as a file of the real directory, which its commits do not have."""
    agents.commit("two", {"old": edited(8, "two")}, "two's")
    move(agents, "one", {"old": "new"}, {"new": "".join(LINES) + "one's\n"})
    assert commit_lower(agents.opened, rule="refuse", ref="one", whole=False).conflicts == []
    assert agents.merge("two", into="one", rules=Rules(favor="ours")).conflicts == []
    place = agents.work("one")
    assert git(place, "status", "--porcelain") == ""
    assert (place / "new").read_text() == edited(8, "two") + "one's\n"


def test_a_forced_commit_removes_no_name_that_a_person_gave(agents: Agents) -> None:
    move(agents, "two", {"old": "of-two"}, {"of-two": edited(8, "two")})
    git(agents.lower, "mv", "old", "of-person")
    commit(agents.lower, {"of-person": edited(15, "one")}, "person's")
    found = commit_lower(agents.opened, rule="merge", ref="two").conflicts
    assert {conflict.path for conflict in found} == {b"old", b"of-person", b"of-two"}
    assert {conflict.message for conflict in found} == {"old renamed to of-person in the real directory and to of-two in two."}
    assert commit_lower(agents.opened, rule="force", ref="two").conflicts == []
    assert git(agents.lower, "status", "--porcelain") == ""
    assert names(agents.lower) == ["of-person", "of-two", "other"]
    assert (agents.lower / "of-person").read_text() == edited(15, "one")
    expected = edited(8, "two").splitlines(True)
    expected[15] = "one's\n"
    assert (agents.lower / "of-two").read_text() == "".join(expected)


@pytest.mark.parametrize("how", ["ours", "theirs", "markers", "force"])
def test_a_new_file_in_a_directory_that_the_other_side_renamed_is_where_git_has_put_it(tmp_path: Path, how: str) -> None:
    agents = Agents(tmp_path)
    start(agents.lower, {"src/old": "".join(LINES), "text": "text\n"})
    agents.branch("one", "two")
    agents.commit("two", {"src/new": "two's\n"}, "two's")
    moved = {"src/old": None, "lib/old": "".join(LINES)}
    if how == "force":
        commit(agents.lower, moved, "moves")
        assert commit_lower(agents.opened, ref="two", rule="force").conflicts == []
        place = agents.lower
    else:
        agents.commit("one", moved, "moves")
        rules = Rules(markers=True) if how == "markers" else Rules(favor=how)  # type: ignore[arg-type]
        assert agents.merge("two", into="one", rules=rules).conflicts == []
        place = agents.work("one")
    assert (place / "lib" / "new").read_text() == "two's\n"
    assert git(place, "status", "--porcelain") in ("", "UA lib/new")
    agents.close()
