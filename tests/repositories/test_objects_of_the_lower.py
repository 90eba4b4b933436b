"""What the real repository gets later is whole in a branch: its refs lead to objects that the branch shows."""

import hashlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentfsd.core import data, directory_entries
from tests.history.trees import commit_lower
from tests.mounted import Mounted
from tests.overlays import OWNER
from tests.repositories.agents import Agents, commit, git, start


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Agents]:
    made = Agents(tmp_path)
    start(made.lower, {"a": "a\n", "b": "b\n"})
    made.branch("one")
    yield made
    made.close()


def sound(agents: Agents) -> None:
    place = agents.work("one")
    git(place, "fsck", "--strict", "--no-dangling")
    assert git(place, "rev-parse", "later") == git(agents.lower, "rev-parse", "later")


def blob_id(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def later(agents: Agents) -> None:
    """Somebody commits in the real repository, on a branch that no other one has."""
    git(agents.lower, "switch", "-qc", "later")
    for number in range(3):
        commit(agents.lower, {"a": f"later {number}\n"}, "later")


def test_in_directories_that_the_branch_made(agents: Agents) -> None:
    place = agents.work("one")
    for number in range(256):
        (place / ".git" / "objects" / f"{number:02x}").mkdir(exist_ok=True)
    commit(place, {"b": "one's\n"}, "one's")
    agents.keep("one")
    later(agents)
    sound(agents)


def test_in_directories_that_the_branch_removed(agents: Agents) -> None:
    place = agents.work("one")
    git(place, "gc", "-q", "--prune=now")
    agents.keep("one")
    assert len(os.listdir(agents.work("one") / ".git" / "objects")) == 2
    there = git(agents.lower, "rev-parse", "main")[:2]
    content = next(data for data in map(b"%d".__mod__, range(100_000)) if blob_id(data).startswith(there))
    git(agents.lower, "update-ref", "refs/tags/later", git(agents.lower, "hash-object", "-w", "--stdin", data=content))
    sound(agents)
    place = agents.work("one")
    git(place, "gc", "-q", "--prune=now")
    agents.keep("one")
    assert len(os.listdir(agents.work("one") / ".git" / "objects")) == 2


def tree_id(files: dict[str, str]) -> str:
    blobs = {os.fsencode(name): bytes.fromhex(blob_id(text.encode())) for name, text in files.items()}
    entries = b"".join(b"100644 %s\0%s" % entry for entry in blobs.items())
    return hashlib.sha1(b"tree %d\0" % len(entries) + entries, usedforsecurity=False).hexdigest()


def test_what_a_branch_has_removed_again_comes_with_a_merge_that_needs_it(agents: Agents) -> None:
    """The lower has got the tree that the merge makes, in a directory of objects that the branch had removed before, too."""
    place = agents.work("one")
    git(place, "gc", "-q", "--prune=now")
    agents.keep("one")
    removed = {directory.name for directory in (agents.lower / ".git" / "objects").iterdir()}
    merged = next(
        files for files in ({"a": f"one {number}\n", "b": "two\n"} for number in range(100_000)) if tree_id(files)[:2] in removed
    )
    agents.opened.overlay.branches.create("two", "one")
    blobs = {name: git(agents.lower, "hash-object", "-w", "--stdin", data=text.encode()) for name, text in merged.items()}
    lines = "".join(f"100644 blob {blob}\t{name}\n" for name, blob in blobs.items())
    assert git(agents.lower, "mktree", data=lines.encode()) == tree_id(merged)
    agents.commit("two", {"b": merged["b"]}, "two's")
    came = f".git/objects/{tree_id(merged)[:2]}/{tree_id(merged)[2:]}"
    place = agents.work("one")
    assert (place / came).exists()
    git(place, "gc", "-q", "--prune=now")
    agents.keep("one")
    place = agents.work("one")
    assert not (place / came).exists()
    commit(place, {"a": merged["a"]}, "one's")
    agents.keep("one")
    assert agents.merge("two", into="one").conflicts == []
    place = agents.work("one")
    assert git(place, "rev-parse", "HEAD^{tree}") == tree_id(merged)
    git(place, "fsck", "--strict", "--no-dangling")


def test_directories_that_came_back_stay_after_a_commit_that_merges(agents: Agents) -> None:
    commit(agents.lower, {f"f{number}": f"{number}\n" for number in range(600)}, "objects in nearly all directories")
    place = agents.work("one")
    git(place, "gc", "-q", "--prune=now")
    agents.keep("one")
    agents.opened.overlay.branches.create("two", "one")
    agents.commit("one", {"a": "one's\n"}, "one's")
    later(agents)
    git(agents.lower, "switch", "-q", "main")
    commit(agents.lower, {f"g{number}": f"g{number}\n" for number in range(600)}, "a person's, in these directories again")
    before = {path.name for path in (agents.work("one") / ".git" / "objects").iterdir()}
    inode = agents.opened.tree("one").walk(b"a")
    data.open_(inode, os.O_RDONLY)  # a branch in use keeps what it has, and notes that the lower has the same
    assert commit_lower(agents.opened, ref="one", rule="merge").conflicts == []
    data.release(inode)
    sound(agents)
    assert before <= {path.name for path in (agents.work("one") / ".git" / "objects").iterdir()}


def test_a_directory_that_is_none_of_gits_is_the_branchs_alone(agents: Agents) -> None:
    overlay = agents.opened
    (agents.lower / "objects").mkdir()
    tree = overlay.tree("one")
    directory_entries.make(tree, tree.walk(b"objects"), b"ab", 0o40755, OWNER)
    (agents.lower / "objects" / "ab").mkdir()
    (agents.lower / "objects" / "ab" / "file").write_text("x")
    assert tree.names(tree.walk(b"objects/ab")) == []


def test_after_a_commit_of_the_branch_its_objects_are_the_lowers(agents: Agents) -> None:
    agents.commit("one", {"b": "one's\n"}, "one's")
    assert commit_lower(agents.opened, ref="one").conflicts == []
    later(agents)
    sound(agents)
    agents.commit("one", {"b": "one's again\n"}, "one's")
    assert commit_lower(agents.opened, ref="one", rule="merge").conflicts == []
    git(agents.lower, "fsck", "--strict", "--no-dangling")


def test_a_branch_that_has_just_looked_for_an_object_sees_it_once_it_is_there(
    tmp_path: Path, make_mount: Callable[..., Mounted]
) -> None:
    lower = tmp_path / "lower"
    start(lower, {"a": "a\n"})
    mounted = make_mount(lower)
    there = git(lower, "rev-parse", "main")[:2]
    content = next(data for data in map(b"%d".__mod__, range(100_000)) if blob_id(data).startswith(there))
    mounted.cli("branch create", "one")
    waits = f"git gc -q --prune=now; ! git cat-file -e {blob_id(content)} 2>/dev/null; echo gone; read go; git show later"
    shell = mounted.start(
        "one", "sh", "-ec", waits, view="namespace", stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )  # fmt: skip
    assert shell.stdout is not None
    assert shell.stdout.readline() == "gone\n"
    git(lower, "update-ref", "refs/tags/later", git(lower, "hash-object", "-w", "--stdin", data=content))
    assert shell.communicate("go\n")[0].encode() == content
