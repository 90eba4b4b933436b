"""What somebody committed or left in a branch is there after merges and commits, and what somebody removed is not."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentfsd.core import directory_entries
from agentfsd.history.merge_records import Rules
from tests.history.trees import commit_lower
from tests.repositories.agents import Agents, commit, git, start


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Agents]:
    made = Agents(tmp_path)
    start(made.lower, {"a": "a\n", "b": "b\n", "docs/c": "c\n"})
    made.branch("one", "two", "three")
    yield made
    made.close()


def into_lower(agents: Agents, name: str, rule: str = "merge") -> None:
    found = commit_lower(agents.opened, rule=rule, ref=name)  # type: ignore[arg-type]
    assert found.conflicts == []
    git(agents.lower, "fsck", "--strict", "--no-dangling")


def shown(agents: Agents, name: str) -> Path:
    place = agents.work(name)
    git(place, "fsck", "--strict", "--no-dangling")
    return place


# -- refs that the real repository got meanwhile


@pytest.mark.parametrize("packed", [False, True])
def test_a_branch_that_has_changed_nothing_keeps_the_commits_that_it_shows(agents: Agents, packed: bool) -> None:
    tip = agents.commit("one", {"a": "A\n"}, "one's")
    his = agents.commit("two", {"b": "B\n"}, "two's")
    if packed:
        place = agents.work("two")
        git(place, "pack-refs", "--all", "--prune")
        agents.keep("two")
    into_lower(agents, "one")
    assert git(shown(agents, "three"), "rev-parse", "main") == tip
    assert agents.merge("two", into="three").conflicts == []
    place = shown(agents, "three")
    assert {tip, his} <= set(git(place, "rev-list", "main").split())
    assert (place / "a").read_text() == "A\n"
    assert (place / "b").read_text() == "B\n"
    assert git(place, "status", "--porcelain") == ""


def test_a_ref_that_the_other_side_never_saw_is_none_that_it_deleted(agents: Agents) -> None:
    place = agents.work("two")
    git(place, "branch", "topic/two")
    agents.keep("two")
    git(agents.lower, "branch", "topic/later")
    assert agents.merge("two", into="three").conflicts == []
    place = shown(agents, "three")
    assert git(place, "for-each-ref", "--format=%(refname:short)", "refs/heads/topic").split() == ["topic/later", "topic/two"]


def test_a_ref_that_the_branch_packed_after_the_real_repository_got_one_of_that_name(agents: Agents) -> None:
    place = agents.work("one")
    git(place, "switch", "-qc", "topic")
    his = commit(place, {"a": "A\n"}, "one's")
    agents.keep("one")
    git(agents.lower, "switch", "-qc", "topic", "main")
    mine = commit(agents.lower, {"b": "B\n"}, "person's")
    place = agents.work("one")
    git(place, "pack-refs", "--all", "--prune")
    agents.keep("one")
    into_lower(agents, "one")
    assert {mine, his} <= set(git(agents.lower, "rev-list", "--all").split())


def test_a_ref_that_the_target_never_saw_is_none_that_it_deleted(agents: Agents) -> None:
    """The target has packed its refs, and shows no directory of theirs; the source has packed what came there later, too."""
    git(agents.lower, "branch", "topic/early")
    place = agents.work("one")
    git(place, "pack-refs", "--all")
    agents.keep("one")
    git(agents.lower, "branch", "topic/later")
    agents.commit("two", {"b": "B\n"}, "two's")
    place = agents.work("two")
    git(place, "pack-refs", "--all")
    agents.keep("two")
    assert agents.merge("two", into="one").conflicts == []
    agents.commit("one", {"a": "A\n"}, "one's")
    assert agents.merge("one", into="two").conflicts == []
    assert git(shown(agents, "two"), "for-each-ref", "--format=%(refname:short)", "refs/heads/topic").split() == [
        "topic/early", "topic/later",
    ]  # fmt: skip


# -- working files of a commit into the real directory


def test_a_file_in_a_directory_that_another_agent_made_too(agents: Agents) -> None:
    agents.commit("one", {"new/one": "one\n"}, "one's")
    agents.commit("two", {"b": "B\n"}, "two's")
    place = agents.work("two")
    (place / "new").mkdir()
    (place / "new" / "two").write_text("two\n")
    agents.keep("two")
    into_lower(agents, "one")
    agents.commit("two", {}, "two's again")
    into_lower(agents, "two")
    assert git(agents.lower, "status", "--porcelain") == ""
    assert sorted(path.name for path in (agents.lower / "new").iterdir()) == ["one", "two"]


def test_an_untracked_file_of_both_that_one_commits(agents: Agents) -> None:
    for name in ("one", "two"):
        place = agents.work(name)
        (place / "new").mkdir()
        (place / "new" / "same").write_text("same\n")
        (place / "new" / name).write_text("x\n")
        agents.keep(name)
    into_lower(agents, "one")
    agents.commit("two", {}, "two's")
    into_lower(agents, "two")
    assert git(agents.lower, "status", "--porcelain") == "?? new/one"
    assert sorted(path.name for path in (agents.lower / "new").iterdir()) == ["one", "same", "two"]


@pytest.mark.parametrize("moved", [False, True])
def test_a_file_taken_out_of_git_stays(agents: Agents, moved: bool) -> None:
    place = agents.work("one")
    git(place, "rm", "-q", "--cached", "a", "docs/c")
    git(place, "commit", "-qm", "untracks")
    agents.keep("one")
    if moved:
        commit(agents.lower, {"b": "person's\n"}, "person's")
    into_lower(agents, "one")
    assert (agents.lower / "a").read_text() == "a\n"
    assert (agents.lower / "docs" / "c").read_text() == "c\n"
    assert git(agents.lower, "status", "--porcelain") == "?? a\n?? docs/"


@pytest.mark.parametrize("moved", [False, True])
def test_a_file_removed_and_not_committed_goes(agents: Agents, moved: bool) -> None:
    place = agents.work("one")
    (place / "a").unlink()
    (place / "docs" / "c").unlink()
    (place / "docs").rmdir()
    git(place, "commit", "-q", "--allow-empty", "-m", "something else")
    agents.keep("one")
    if moved:
        commit(agents.lower, {"b": "person's\n"}, "person's")
    into_lower(agents, "one")
    assert git(agents.lower, "status", "--porcelain") == " D a\n D docs/c"
    assert not (agents.lower / "docs").exists()


@pytest.mark.parametrize("moved", [False, True])
def test_a_file_taken_out_of_git_and_removed_goes(agents: Agents, moved: bool) -> None:
    place = agents.work("one")
    git(place, "rm", "-q", "--cached", "a")
    git(place, "commit", "-qm", "untracks")
    (place / "a").unlink()
    agents.keep("one")
    if moved:
        commit(agents.lower, {"b": "person's\n"}, "person's")
    into_lower(agents, "one")
    assert git(agents.lower, "status", "--porcelain") == ""
    assert not (agents.lower / "a").exists()


def test_a_source_that_is_left_out_takes_nothing_from_the_next_one(agents: Agents) -> None:
    """The merge of the file ``text`` makes the same content for both sources, and the first of them stays out."""
    text = [f"line {number}\n" for number in range(12)]
    commit(agents.lower, {"text": "".join(text)}, "person's")
    for name, change in (("main", {9: "main\n"}), ("one", {2: "same\n"}), ("three", {2: "same\n"})):
        made = "".join(change.get(number, line) for number, line in enumerate(text))
        agents.commit(name, {"text": made, "a" if name != "three" else "c": f"{name}\n"}, f"{name}'s")
    merged = agents.merge("one", "three", into="main", leave_conflicting=True)
    assert (merged.merged, merged.left) == (["three"], ["one"])
    place = shown(agents, "main")
    assert (place / "text").read_text().splitlines()[2::7] == ["same", "main"]
    assert git(place, "status", "--porcelain") == ""


def test_a_source_that_is_left_out_lends_no_object_to_the_next_one(agents: Agents) -> None:
    """The tree of the second source's merge is one that only the first source has."""
    agents.commit("one", {"a": "one\n"}, "one's")
    place = agents.work("two")
    git(place, "switch", "-qc", "side")
    commit(place, {"a": "one\n", "b": "three\n"}, "as merged")
    git(place, "switch", "-q", "main")
    commit(place, {"a": "two\n"}, "two's")
    agents.keep("two")
    agents.commit("three", {"b": "three\n"}, "three's")
    merged = agents.merge("two", "three", into="one", leave_conflicting=True)
    assert (merged.merged, merged.left) == (["three"], ["two"])
    place = shown(agents, "one")
    assert git(place, "status", "--porcelain") == ""
    assert (place / "b").read_text() == "three\n"


def test_objects_that_both_sides_have_thrown_away_are_made_again(agents: Agents) -> None:
    """The tree of the merge is one that only the state from which both have started has."""
    agents.commit("three", {"a": "one\n", "b": "two\n"}, "as merged")
    for name, file in (("of-three", "a"), ("of-three-too", "b")):
        agents.opened.overlay.branches.create(name, "three")
        place = agents.work(name)
        git(place, "reset", "-q", "--hard", "HEAD~1")
        git(place, "reflog", "expire", "--expire=now", "--all")
        git(place, "gc", "-q", "--prune=now")
        commit(place, {file: "one\n" if file == "a" else "two\n"}, name)
        agents.keep(name)
    assert agents.merge("of-three-too", into="of-three").conflicts == []
    assert git(shown(agents, "of-three"), "status", "--porcelain") == ""


def test_what_is_kept_beside_is_not_replaced_by_what_is_kept_later(agents: Agents) -> None:
    tips = []
    for text in ("first", "second"):
        place = agents.work("two")
        (place / "b").write_text(f"{text}\n")
        git(place, "commit", "-qa", *(["--amend"] if tips else []), "-m", text)
        tips.append(git(place, "rev-parse", "HEAD"))
        agents.keep("two")
        assert agents.merge("two", into="one", rules=Rules(way="beside")).conflicts == []
    agents.merge("two", into="one", rules=Rules(way="beside"))
    place = shown(agents, "one")
    found = git(place, "for-each-ref", "--format=%(refname:short) %(objectname)", "refs/heads/agentfsd").splitlines()
    assert found == [f"agentfsd/two/main {tips[0]}", f"agentfsd/two/main-2 {tips[1]}"]


def test_a_moved_file_stays_whose_source_another_branch_removes(agents: Agents) -> None:
    tree = agents.opened.tree("one")
    directory_entries.rename(tree, tree.root, b"a", tree.root, b"moved")
    directory_entries.rename(tree, tree.walk(b"docs"), b"c", tree.root, b"also")
    agents.commit("two", {"a": None, "docs/c": "another\n"}, "two's")
    into_lower(agents, "two")
    place = shown(agents, "one")
    assert [(place / name).read_text() for name in ("moved", "also")] == ["a\n", "c\n"]
    assert not (place / "a").exists()


def rename(agents: Agents, name: str, old: bytes, new: bytes) -> None:
    """By rename(2), which copies nothing."""
    tree = agents.opened.tree(name)
    directory_entries.rename(tree, tree.root, old, tree.root, new)
    agents.commit(name, {}, f"moves of {name}")


def test_a_branch_that_renamed_a_file_takes_over_the_merge_that_brought_it_to_the_real_directory(agents: Agents) -> None:
    rename(agents, "one", b"a", b"moved")
    agents.opened.overlay.snapshots.create("one", "before")
    agents.commit("two", {"b": "B\n"}, "two's")
    assert agents.merge("two", "one", into="three").conflicts == []
    into_lower(agents, "three")
    assert agents.merge("three", into="one").conflicts == []
    place = shown(agents, "one")
    assert git(place, "status", "--porcelain") == ""
    assert (place / "moved").read_text() == "a\n"
    assert agents.opened.read("moved", "before") == b"a\n"
    assert agents.opened.overlay.fsck() == []


@pytest.mark.parametrize("whole", [False, True])
def test_a_renamed_directory_keeps_what_another_branch_removes_there(agents: Agents, whole: bool) -> None:
    commit(agents.lower, {"docs/deep/d": "d\n"}, "person's")
    (agents.lower / "docs" / "deep" / "link").symlink_to("d")
    commit(agents.lower, {}, "person's link")
    rename(agents, "one", b"docs", b"papers")
    place = agents.work("two")
    git(place, "rm", "-q", "-r", "docs" if whole else "docs/c")
    git(place, "commit", "-qm", "two's")
    agents.keep("two")
    into_lower(agents, "two")
    commit(agents.lower, {"docs/later": "of somebody else\n"}, "person's later")
    place = shown(agents, "one")
    assert [(place / "papers" / name).read_text() for name in ("c", "deep/d", "deep/link")] == ["c\n", "d\n", "d\n"]
    assert (place / "papers" / "later").exists() != whole  # the real directory's docs is another one then
    assert agents.opened.overlay.fsck() == []


# -- linked worktrees


def linked(agents: Agents, name: str, tree: str) -> None:
    place = agents.work(name)
    git(place, "worktree", "add", "-q", "-f", tree, "-b", f"in-{tree}")
    (place / tree / "inside").write_text(f"{name}\n")
    git(place / tree, "add", "-A")
    git(place / tree, "commit", "-qm", "inside")
    agents.keep(name)


def test_linked_worktrees_of_two_branches(agents: Agents) -> None:
    for name in ("one", "two"):
        linked(agents, name, f"wt-{name}")
    agents.commit("two", {"b": "B\n"}, "two's")
    assert agents.merge("two", into="one").conflicts == []
    into_lower(agents, "one")
    for place in (shown(agents, "one"), agents.lower):
        for name in ("one", "two"):
            directory = place / ".git" / "worktrees" / f"wt-{name}"
            git(place, f"--git-dir={directory}", f"--work-tree={place}/wt-{name}", "status", "--porcelain")


def test_a_linked_worktree_of_the_real_repository_where_the_branch_has_its_own(agents: Agents) -> None:
    for name in ("one", "two"):
        linked(agents, name, f"wt-{name}")
    into_lower(agents, "one")
    place = shown(agents, "two")
    for name in ("one", "two"):
        git(place, f"--git-dir={place}/.git/worktrees/wt-{name}", f"--work-tree={place}/wt-{name}", "status", "--porcelain")


@pytest.mark.parametrize("favor", ["", "theirs"])
@pytest.mark.parametrize("into", ["one", "two"])
def test_a_committed_file_that_looks_like_one_that_both_removed(agents: Agents, into: str, favor: str) -> None:
    """A removed file and a new one with nearly the same content are no rename that the other side's removal could undo."""
    text = "".join(f"line {number}\n" for number in range(20))
    commit(agents.lower, {"old": text}, "person's")
    place = agents.work("one")
    git(place, "rm", "-q", "--cached", "old")
    agents.keep("one")
    agents.commit("one", {"new": text.replace("line 7", "one"), "old": None}, "one's")
    place = agents.work("two")
    (place / "old").unlink()
    agents.keep("two")
    agents.commit("two", {"b": "B\n", "old": text}, "two's")
    place = agents.work("two")
    (place / "old").unlink()
    agents.keep("two")
    source = "two" if into == "one" else "one"
    merged = agents.merge(source, into=into, rules=Rules(favor=favor))  # type: ignore[arg-type]
    assert merged.conflicts == []
    place = shown(agents, into)
    assert (place / "new").exists()
    assert not (place / "old").exists()
    assert git(place, "status", "--porcelain") == ""


@pytest.mark.parametrize("favor", ["ours", "theirs"])
@pytest.mark.parametrize("committed", [True, False])
def test_no_favoured_side_removes_a_new_name_of_what_it_removed(agents: Agents, favor: str, committed: bool) -> None:
    text = "".join(f"line {number}\n" for number in range(20))
    commit(agents.lower, {"old": text}, "person's")
    place = agents.work("one")
    if committed:
        git(place, "mv", "old", "new")
        git(place, "commit", "-qm", "moves")
    else:
        (place / "old").rename(place / "new")
    agents.keep("one")
    place = agents.work("two")
    git(place, "rm", "-q", "old") if committed else (place / "old").unlink()
    git(place, "commit", "-qm", "two's", "--allow-empty")
    agents.keep("two")
    for name in ("one", "two"):
        agents.opened.overlay.branches.create(f"of-{name}", name)
    for source, into in (("one", "two"), ("of-two", "of-one")):
        assert [found.kind for found in agents.merge(source, into=into).conflicts] == ["rename/delete"]
        merged = agents.merge(source, into=into, rules=Rules(favor=favor))  # type: ignore[arg-type]
        assert [(found.path, found.winner) for _, found in merged.decided] == [(b"new", "")]
        place = shown(agents, into)
        assert ((place / "new").read_text(), (place / "old").exists()) == (text, False)
        assert git(place, "status", "--porcelain") == ("" if committed else " D old\n?? new")


def test_a_stash_whose_log_has_expired_stays_beneath_a_newer_one(agents: Agents) -> None:
    place = agents.work("one")
    (place / "a").write_text("stashed\n")
    git(place, "stash", "-q")
    old = git(place, "rev-parse", "refs/stash")
    agents.keep("one")
    agents.merge("one", into="two")
    place = agents.work("two")
    git(place, "reflog", "expire", "--expire=now", "--all")
    agents.keep("two")
    place = agents.work("one")
    (place / "a").write_text("stashed again\n")
    git(place, "stash", "-q")
    new = git(place, "rev-parse", "refs/stash")
    agents.keep("one")
    assert agents.merge("one", into="two").conflicts == []
    assert git(shown(agents, "two"), "log", "-g", "--format=%H", "refs/stash").split() == [new, old]


@pytest.mark.parametrize("again", ["merge", "force"])
def test_what_a_commit_kept_beside_stays_through_the_next_commit_of_a_branch_in_use(agents: Agents, again: str) -> None:
    """The branch has made the directory itself, in which the real repository gets a ref that the branch does not have."""
    place = agents.work("one")
    git(place, "notes", "add", "-m", "one")
    git(place, "update-ref", "refs/notes/agentfsd/other/commits", "HEAD")
    his = git(place, "rev-parse", "refs/notes/commits")
    agents.keep("one")
    git(agents.lower, "notes", "add", "-m", "person")
    mine = git(agents.lower, "rev-parse", "refs/notes/commits")
    assert commit_lower(agents.opened, rule="merge", ref="one", whole=False).conflicts == []
    assert git(agents.lower, "rev-parse", "refs/notes/agentfsd/one/commits") == his
    for number in range(2):
        agents.commit("one", {"a": f"A {number}\n"}, "one's")
        found = commit_lower(agents.opened, rule=again, ref="one", whole=False)  # type: ignore[arg-type]
        assert found.conflicts == []
        refs = git(agents.lower, "for-each-ref", "--format=%(objectname)", "refs/notes").split()
        assert {his, mine} <= set(refs)


def test_a_file_of_a_linked_worktree_is_no_new_name_of_one_beside_it(agents: Agents) -> None:
    text = "".join(f"line {number}\n" for number in range(20))
    place = agents.work("one")
    (place / "text").write_text(text)
    agents.keep("one")
    agents.merge("one", into="two")
    place = agents.work("one")
    (place / "text").unlink()
    (place / "tree").mkdir()
    (place / "tree" / ".git").write_text("gitdir: ../.git\n")
    (place / "tree" / "text").write_text(text)
    agents.keep("one")
    place = agents.work("two")
    (place / "text").write_text(text.replace("line 3", "two"))
    agents.keep("two")
    merged = agents.merge("two", into="one")
    assert [(found.path, found.kind) for found in merged.conflicts] == [(b"text", "modify/delete")]
    assert agents.merge("two", into="one", rules=Rules(favor="theirs")).conflicts == []
    assert (agents.work("one") / "tree" / "text").read_text() == text
