"""What attributes say of merges holds, with `git merge` beside it. Merge drivers of the workspace are never run."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentfsd.history.commit import plan
from agentfsd.history.merge_records import Rules
from agentfsd.history.merging import Merged
from tests.overlays import Opened
from tests.repositories.agents import Agents, git, start

ATTRIBUTES = (
    "[attr]mine -merge\n*.union merge=union\n*.bin binary\n*.no -merge\n*.mine mine\n*.undefined merge=nobody\n*.set merge\n"
)
NOT_BY_LINES = "changed on both sides, and its git attributes say that it is not merged by lines"
SAME_LINES = "both sides changed the same lines"


def text(who: str, line: int) -> str:
    """Twelve lines, one of which is *who*."""
    return "".join(f"{who if number == line else number}\n" for number in range(12))


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Agents]:
    made = Agents(tmp_path)
    yield made
    made.close()


def part(agents: Agents, files: dict[str, int], attributes: dict[str, str], *, settings: tuple[str, ...] = ()) -> None:
    """Both sides commit changes of *files*: theirs in line 2, ours in the line given."""
    start(agents.lower, {**attributes, **{name: text("2", 2) for name in files}})
    if settings:
        git(agents.lower, "config", *settings)
    agents.branch("one", "two")
    agents.commit("one", {name: text("ours", line) for name, line in files.items()}, "one")
    agents.commit("two", {name: text("theirs", 2) for name in files}, "two")


def merged_by_git(agents: Agents) -> tuple[Path, set[str]]:
    """A copy of ours in which git has merged theirs, and the paths that are unmerged there."""
    beside = agents.base / "beside"
    shutil.copytree(agents.work("one"), beside, symlinks=True)
    git(beside, "fetch", "-q", str(agents.work("two")), "main:two")
    git(beside, "merge", "-q", "--no-edit", "two", check=False)
    return beside, {line.partition("\t")[2] for line in git(beside, "ls-files", "-u").splitlines()}


def told(merged: Merged) -> dict[str, str]:
    """The message of each conflict, by path."""
    return {conflict.path.decode(): conflict.message for conflict in merged.conflicts}


def test_union_and_text_are_merged_as_git_does(agents: Agents) -> None:
    files = {"a.union": 2, "deep/er/b.union": 2, "deep/er/c": 2, "a.set": 8, "a.undefined": 8, "a.info": 2}
    part(
        agents, files,
        {".gitattributes": ATTRIBUTES, "deep/.gitattributes": "*.union -merge\n", "deep/er/.gitattributes": "* merge=union\n"},
    )  # fmt: skip
    (agents.lower / ".git/info").mkdir(exist_ok=True)
    (agents.lower / ".git/info/attributes").write_text("*.info merge=union\n")
    beside, unmerged = merged_by_git(agents)
    assert unmerged == set()
    assert agents.merge("two", into="one").conflicts == []
    place = agents.work("one")
    assert git(place, "status", "--porcelain") == ""
    assert git(place, "rev-parse", "HEAD^{tree}") == git(beside, "rev-parse", "HEAD^{tree}")


def test_what_is_not_merged_by_lines_is_a_conflict_as_with_git(agents: Agents) -> None:
    files = {"a.bin": 8, "a.no": 8, "a.mine": 8, "deep/a.union": 8, "a.set": 2, "a": 8}
    part(agents, files, {".gitattributes": ATTRIBUTES, "deep/.gitattributes": "*.union merge=binary\n"})
    unmerged = merged_by_git(agents)[1]
    conflicts = told(agents.merge("two", into="one"))
    assert conflicts.keys() == unmerged == files.keys() - {"a"}
    assert conflicts == dict.fromkeys(unmerged, NOT_BY_LINES) | {"a.set": SAME_LINES}
    assert told(agents.merge("two", into="one", rules=Rules(favor="union"))).keys() == unmerged - {"a.set"}
    agents.merge("two", into="one", rules=Rules(favor="theirs"))
    assert agents.opened.read("a.no", "one").decode() == text("theirs", 2)
    assert b"ours" in agents.opened.read("a", "one")


def test_a_driver_of_the_workspace_is_a_conflict_and_is_not_run(agents: Agents) -> None:
    ran = agents.base / "ran"
    part(
        agents, {"a.own": 8, "b.own": 2, "c.undefined": 8}, {".gitattributes": f"{ATTRIBUTES}*.own merge=own\n"},
        settings=("merge.own.driver", f"touch {ran}"),
    )  # fmt: skip
    conflicts = told(agents.merge("two", into="one"))
    why = "changed on both sides, and its merge driver, own, is not run: it is a command of the workspace"
    assert conflicts == {"a.own": why, "b.own": why}
    assert not ran.exists()


def test_markers_are_as_long_as_attributes_say(agents: Agents) -> None:
    part(agents, {"a.long": 2, "a.no": 8}, {".gitattributes": "*.long conflict-marker-size=12\n*.no -merge\n"})
    beside, unmerged = merged_by_git(agents)
    merged = agents.merge("two", into="one", rules=Rules(markers=True))
    assert merged.marked == [("two", b"a.long")]
    place = agents.work("one")
    assert (place / "a.long").read_text() == (beside / "a.long").read_text().replace("HEAD", "one")
    assert (place / "a.no").read_text() == (beside / "a.no").read_text()
    assert {line.partition("\t")[2] for line in git(place, "ls-files", "-u").splitlines()} == unmerged


def test_attributes_hold_for_uncommitted_changes(agents: Agents) -> None:
    """Also those of a repository in the workspace, and only for its own files."""
    for place in ("", "inner"):
        (agents.lower / place).mkdir(exist_ok=True)
        start(agents.lower / place, {"b": text("2", 2)})
    (agents.lower / "inner/.gitattributes").write_text("b merge=union\nc -merge\n")
    (agents.lower / "inner/c").write_text(text("2", 2))
    agents.branch("one", "two")
    for name, who, line in (("one", "ours", 8), ("two", "theirs", 2)):
        agents.opened.write("inner/b", text(who, 2).encode(), name)
        agents.opened.write("b", text(who, line).encode(), name)
        agents.opened.write("inner/c", text(who, line).encode(), name)
    assert told(agents.merge("two", into="one")) == {"inner/c": NOT_BY_LINES}
    agents.opened.write("inner/c", text("2", 2).encode(), "one")
    assert agents.merge("two", into="one").conflicts == []
    assert agents.opened.read("inner/b", "one").decode() == text("ours\ntheirs", 2)
    assert b"theirs" in agents.opened.read("b", "one")


def test_attributes_hold_for_files_that_changed_in_the_real_directory(agents: Agents) -> None:
    start(agents.lower, {".gitattributes": ATTRIBUTES, "a.union": text("2", 2), "a.no": text("2", 2)})
    for name in ("a.union", "a.no"):
        agents.opened.write(name, text("theirs", 2).encode())
        (agents.lower / name).write_text(text("ours", 2 if name == "a.union" else 8))
    agents.opened.lower.forget()
    assert planned(agents.opened) == {"a.no": NOT_BY_LINES}


def planned(opened: Opened) -> dict[str, str]:
    """The conflicts of a commit that merges."""
    steps = plan(opened.overlay, opened.tree(), (), "merge")
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return {conflict.path.decode(): conflict.message for conflict in end.value.conflicts}
