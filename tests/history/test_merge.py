"""Merging branches: what each side changed, what both did, and what remains when that cannot be."""

import os
import random
import subprocess
from pathlib import Path

import pytest

from agentfsd.core import directory_entries, inode_attributes, inode_stat
from agentfsd.core.inode_attributes import NewAttributes
from agentfsd.domain_errors import Refusal
from agentfsd.history.merge_records import Rules
from agentfsd.history.merging import Merged
from tests.history.replay import Repository, replay, run
from tests.overlays import Opened
from tests.rounds import rounds

LINES = b"".join(b"line %d\n" % number for number in range(30))


@pytest.fixture
def two(opened: Opened) -> Opened:
    """Branches `ours` and `theirs` of a base with some files."""
    opened.write("text", LINES)
    opened.write("other", b"other\n")
    opened.mkdir("dir")
    opened.write("dir/inside", b"inside\n" * 20)
    opened.overlay.branches.create("ours")
    opened.overlay.branches.create("theirs")
    return opened


def listed(result: Merged) -> list[bytes]:
    return [change.path for change in result.listed.changes]


def edited(number: int, text: bytes = b"changed") -> bytes:
    return LINES.replace(b"line %d\n" % number, text + b"\n")


def rename(opened: Opened, branch: str, old: str, new: str) -> None:
    tree = opened.tree(branch)
    places = [os.path.split(path.encode()) for path in (old, new)]
    directory_entries.rename(tree, tree.walk(places[0][0]), places[0][1], tree.walk(places[1][0]), places[1][1])


def conflicts(opened: Opened, **rules: object) -> list[tuple[bytes, str]]:
    found = run(opened, ["theirs"], "ours", Rules(**rules)).conflicts  # type: ignore[arg-type]
    return [(conflict.path, conflict.kind) for conflict in found]


def names(opened: Opened, branch: str) -> set[str]:
    return {change.path.decode() for change in opened.overlay.comparison.diff(None, branch) if change.new_size >= 0}


def test_hunks_of_both_sides_come_together(two: Opened) -> None:
    two.write("text", edited(3), "ours")
    two.write("text", edited(20), "theirs")
    assert conflicts(two) == []
    assert two.read("text", "ours") == edited(3).replace(b"line 20\n", b"changed\n")
    assert two.read("text", "theirs") == edited(20)
    assert two.overlay.fsck() == []


def test_a_conflict_changes_nothing(two: Opened) -> None:
    two.write("text", edited(3, b"mine"), "ours")
    two.write("text", edited(3, b"his"), "theirs")
    two.write("new", b"new", "theirs")
    two.unlink("other", "theirs")
    before = two.overlay.comparison.diff(None, "ours")
    assert conflicts(two) == [(b"text", "content")]
    assert two.overlay.comparison.diff(None, "ours") == before
    assert two.overlay.undo_log.entries() == []
    assert two.overlay.fsck() == []


@pytest.mark.parametrize(("favor", "line"), [("ours", b"mine\n"), ("theirs", b"his\n"), ("union", b"mine\nhis\n")])
def test_a_favourite_wins_where_lines_clash_and_only_there(two: Opened, favor: str, line: bytes) -> None:
    two.write("text", edited(3, b"mine"), "ours")
    two.write("text", edited(3, b"his").replace(b"line 20\n", b"twenty\n"), "theirs")
    assert conflicts(two, favor=favor) == []
    assert two.read("text", "ours") == LINES.replace(b"line 3\n", line).replace(b"line 20\n", b"twenty\n")


def test_markers_only_on_request(two: Opened) -> None:
    two.write("text", edited(3, b"mine"), "ours")
    two.write("text", edited(3, b"his"), "theirs")
    assert conflicts(two, markers=True) == []
    text = two.read("text", "ours")
    assert b"<<<<<<<" in text
    assert b"mine\n=======\nhis\n" in text


def test_binary_files_are_not_mixed(two: Opened) -> None:
    two.write("blob", bytes(range(256)))
    for branch in ("ours", "theirs"):
        two.overlay.branches.discard(branch, keep=False)
        two.overlay.branches.create(branch)
        two.write("blob", bytes(range(256)) + branch.encode(), branch)
    assert conflicts(two) == [(b"blob", "binary")]
    assert conflicts(two, favor="theirs") == []
    assert two.read("blob", "ours").endswith(b"theirs")


def test_deleted_here_and_changed_there_is_a_conflict_both_ways(two: Opened) -> None:
    two.unlink("text", "ours")
    two.write("text", edited(3), "theirs")
    two.write("other", b"mine\n", "ours")
    two.unlink("other", "theirs")
    assert conflicts(two) == [(b"other", "modify/delete"), (b"text", "modify/delete")]
    assert conflicts(two, favor="theirs") == []
    assert two.read("text", "ours") == edited(3)
    assert "other" not in names(two, "ours")


@pytest.mark.parametrize("by", ["ours", "theirs"])
def test_a_change_follows_a_file_that_the_other_side_renamed(two: Opened, by: str) -> None:
    other = "theirs" if by == "ours" else "ours"
    rename(two, by, "text", "dir/moved")
    two.write("text", edited(3), other)
    assert conflicts(two) == []
    assert two.read("dir/moved", "ours") == edited(3)
    assert "text" not in names(two, "ours")


def test_a_rename_is_found_by_likeness_too(two: Opened) -> None:
    two.unlink("text", "theirs")
    two.write("dir/copy", edited(9), "theirs")
    two.write("text", edited(20), "ours")
    assert conflicts(two) == []
    assert two.read("dir/copy", "ours") == edited(9).replace(b"line 20\n", b"changed\n")


def test_renamed_differently_is_a_conflict(two: Opened) -> None:
    rename(two, "ours", "text", "here")
    rename(two, "theirs", "text", "there")
    assert {kind for _, kind in conflicts(two)} == {"rename/rename"}


def test_a_file_where_the_other_side_needs_a_directory_is_a_conflict(two: Opened) -> None:
    two.unlink("dir/inside", "ours")
    tree = two.tree("ours")
    directory_entries.rmdir(tree, tree.root, b"dir")
    two.write("dir", b"a file", "ours")
    two.write("dir/more", b"more", "theirs")
    assert (b"dir/more", "type") in conflicts(two)
    assert two.read("dir", "ours") == b"a file"


def test_a_directory_that_one_side_removed_stays_for_what_the_other_put_into_it(two: Opened) -> None:
    two.unlink("dir/inside", "theirs")
    tree = two.tree("theirs")
    directory_entries.rmdir(tree, tree.root, b"dir")
    two.write("dir/more", b"more", "ours")
    assert conflicts(two) == []
    assert names(two, "ours") >= {"dir", "dir/more"}
    assert "dir/inside" not in names(two, "ours")


def test_modes_and_attributes_are_merged_one_by_one(two: Opened) -> None:
    mine, his = two.tree("ours"), two.tree("theirs")
    inode_attributes.setattr_(mine, mine.walk(b"text"), NewAttributes(mode=0o600))
    inode_attributes.setxattr(his, his.walk(b"text"), b"user.a", b"1")
    two.write("text", edited(3), "theirs")
    assert conflicts(two) == []
    merged = two.tree("ours")
    inode = merged.walk(b"text")
    assert (inode_stat.attributes(inode).mode & 0o777, inode.xattrs) == (0o600, {b"user.a": b"1"})
    assert two.read("text", "ours") == edited(3)


def test_modes_that_differ_on_both_sides_are_a_conflict(two: Opened) -> None:
    for branch, mode in (("ours", 0o600), ("theirs", 0o755)):
        tree = two.tree(branch)
        inode_attributes.setattr_(tree, tree.walk(b"text"), NewAttributes(mode=mode))
    assert conflicts(two) == [(b"text", "attributes")]


def test_links_empty_directories_and_times_come_along(two: Opened) -> None:
    tree = two.tree("theirs")
    two.mkdir("empty", "theirs")
    inode = two.write("one", b"linked", "theirs")
    directory_entries.link(tree, inode, tree.root, b"two")
    directory_entries.make(tree, tree.root, b"sym", 0o120777, directory_entries.Owner(0, 0), target=b"text")
    inode_attributes.setattr_(tree, inode, NewAttributes(mtime_ns=123))
    two.write("text", edited(1), "ours")
    assert conflicts(two) == []
    merged = two.tree("ours")
    assert merged.walk(b"one") is merged.walk(b"two")
    assert inode_stat.attributes(merged.walk(b"one"))[2] == 2
    assert inode_stat.attributes(merged.walk(b"two")).mtime_ns == 123
    assert merged.readlink(merged.walk(b"sym")) == b"text"
    assert merged.walk(b"empty").is_dir
    assert two.overlay.fsck() == []


def test_what_git_writes_in_passing_is_no_conflict(two: Opened) -> None:
    for branch in ("ours", "theirs"):
        two.mkdir(".git", branch)
        two.mkdir(".git/logs", branch)
        two.write(".git/index", b"DIRC\0" + branch.encode(), branch)
        two.write(".git/logs/HEAD", b"first\n" + branch.encode() + b"\n", branch)
    assert conflicts(two) == []
    assert two.read(".git/index", "ours") == b"DIRC\0ours"
    assert two.read(".git/logs/HEAD", "ours") == b"first\nours\ntheirs\n"
    for branch in ("ours", "theirs"):
        two.write(".git/HEAD", branch.encode(), branch)
    assert conflicts(two) == [(b".git/HEAD", "add/add")]


def test_a_second_merge_starts_from_the_first(two: Opened) -> None:
    two.write("text", edited(3, b"his"), "theirs")
    two.write("other", b"mine\n", "ours")
    assert run(two, ["theirs"], "ours").how == "merged"
    two.write("text", two.read("text", "ours").replace(b"his\n", b"reviewed\n"), "ours")
    two.write("text", two.read("text", "theirs").replace(b"line 20\n", b"twenty\n"), "theirs")
    assert conflicts(two) == []
    assert two.read("text", "ours") == edited(3, b"reviewed").replace(b"line 20\n", b"twenty\n")
    assert run(two, ["theirs"], "ours").how == "nothing"


def test_what_only_one_side_has_is_taken_over_at_once(two: Opened) -> None:
    two.write("text", edited(3), "theirs")
    result = run(two, ["theirs"], "ours")
    assert (result.how, listed(result)) == ("fast-forward", [b"text"])
    assert two.read("text", "ours") == edited(3)
    two.write("text", b"later", "theirs")
    assert two.read("text", "ours") == edited(3)


def test_several_branches_in_order_all_or_nothing(two: Opened) -> None:
    two.overlay.branches.create("third")
    two.write("text", edited(3), "theirs")
    two.write("text", edited(20), "third")
    two.write("mine", b"mine", "ours")
    two.overlay.branches.create("clash")
    two.write("text", edited(20, b"clash"), "clash")
    assert [conflict.path for conflict in run(two, ["theirs", "third", "clash"], "ours").conflicts] == [b"text"]
    assert two.read("text", "ours") == LINES
    assert run(two, ["theirs", "third"], "ours").conflicts == []
    assert two.read("text", "ours") == edited(3).replace(b"line 20\n", b"changed\n")
    assert two.read("mine", "ours") == b"mine"
    assert two.overlay.fsck() == []


def test_a_dry_run_tells_and_changes_nothing(two: Opened) -> None:
    two.write("text", edited(3), "theirs")
    two.write("other", b"mine\n", "ours")
    result = run(two, ["theirs"], "ours", dry_run=True)
    assert (listed(result), two.read("text", "ours")) == ([b"text"], LINES)
    assert two.overlay.snapshots.all() == []


def test_a_merge_can_be_undone(two: Opened) -> None:
    two.write("text", edited(3), "theirs")
    two.write("other", b"mine\n", "ours")
    run(two, ["theirs"], "ours")
    assert two.overlay.undo_log.undo().kind == "merge"
    assert (two.read("text", "ours"), two.read("other", "ours")) == (LINES, b"mine\n")
    assert two.overlay.fsck() == []


def test_a_target_that_is_written_meanwhile_keeps_what_was_written(two: Opened) -> None:
    from agentfsd.history.applying import Author
    from agentfsd.history.merging import merge_branches

    two.write("text", edited(3), "theirs")
    two.write("other", b"mine\n", "ours")
    steps = merge_branches(two.overlay, ["theirs"], "ours", Rules(), Author())
    for number, _ in enumerate(steps):
        two.write(f"late-{number}", b"late", "ours")
    assert two.read("text", "ours") == edited(3)
    assert {name for name in names(two, "ours") if name.startswith("late")} == {f"late-{late}" for late in range(number + 1)}
    assert two.overlay.fsck() == []


def test_a_branch_is_not_merged_into_itself(two: Opened) -> None:
    with pytest.raises(Refusal, match="itself"):
        run(two, ["ours"], "ours")


# -- the same as git


def scramble(generator: random.Random, at: Path) -> None:
    """Some edits, as people and agents make them."""
    files = [path for path in sorted(at.rglob("*")) if path.is_file() and ".git" not in path.parts]
    for path in generator.sample(files, 3):
        lines = path.read_text().splitlines(keepends=True)
        for _ in range(generator.randint(1, 3)):
            place = generator.randrange(len(lines) + 1)
            lines[place : place + generator.randint(0, 2)] = [f"new {generator.randrange(100)}\n"] * generator.randint(0, 2)
        path.write_text("".join(lines))
    act, path = generator.choice(["rename", "delete", "add", "chmod", "none"]), generator.choice(files)
    if act == "rename":
        target = at / generator.choice(["a", "b", "deep/er"]) / f"renamed-{generator.randrange(4)}"
        target.parent.mkdir(parents=True, exist_ok=True)
        path.rename(target)
    elif act == "delete":
        path.unlink()
    elif act == "add":
        (at / f"added-{generator.randrange(3)}").write_text("".join(f"added {number}\n" for number in range(5)))
    elif act == "chmod":
        path.chmod(0o755)


def make_history(at: Path, merges: int) -> None:
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org"}
    environment |= {"GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.org"}

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=at, env=environment, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    git("init", "-q", "-b", "main")
    for name in ("a/one", "a/two", "b/three", "b/four", "five", "six"):
        (at / name).parent.mkdir(exist_ok=True)
        (at / name).write_text("".join(f"{name} {number}\n" for number in range(25)))
    git("add", "-A")
    git("commit", "-qm", "base")
    base = git("rev-parse", "HEAD")
    generator = random.Random(5)
    for number in range(merges):
        sides = []
        for _ in range(2):
            git("checkout", "-qf", base)
            scramble(generator, at)
            git("add", "-A")
            git("commit", "-qm", "side", "--allow-empty")
            sides.append(git("rev-parse", "HEAD"))
        made = git("commit-tree", "-m", "merge", "-p", sides[0], "-p", sides[1], f"{base}^{{tree}}")
        git("branch", f"merge-{number}", made)


def test_merges_come_out_as_git_makes_them(tmp_path: Path) -> None:
    """AGENTFSD_REAL_REPOSITORY: a repository (or several, by colon) whose own merges are made anew.

    How many: ``--rounds 'merges of a repository=N'``."""
    named = os.environ.get("AGENTFSD_REAL_REPOSITORY", "")
    places = [Path(name) for name in named.split(":")] if named else [tmp_path / "made"]
    if not named:
        places[0].mkdir()
        make_history(places[0], 40)
    for place in places:
        repository = Repository(place)
        try:
            merges = repository.merges(rounds("merges of a repository", 40, 500))
            assert len(merges) >= 35
            verdicts = [replay(repository, tmp_path / "overlay", merge) for merge in merges]
        finally:
            repository.close()
        assert [verdict for verdict in verdicts if not verdict.agrees] == []
        assert any(verdict.git_conflicts for verdict in verdicts)
