"""What random runs have found, each by itself: tests/overlayfs/test_random_runs.py."""

import mmap
import os
import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentfs_host.tree_removal import remove_tree
from agentfsd.core import data, directory_entries, inode_attributes
from agentfsd.core.inode_attributes import NewAttributes
from agentfsd.overlayfs import layer_stack
from agentfsd.overlayfs.branch_overlay import BranchOverlay
from tests.overlayfs import listings, workspaces
from tests.overlayfs.workspaces import Silent, Workspace
from tests.overlays import OWNER

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount an overlay")

LOWER = """
mkdir -p a/b d/e empty
for n in f g; do echo $n > a/$n; echo $n > a/b/$n; echo $n > d/e/$n; done
ln -s a link
"""


def test_writing_a_layer_leaves_the_sealed_state_that_it_shows(workspace: Workspace) -> None:
    workspace.opened.write("a/f", b"by the daemon", "b")
    (workspace.plain / "a/f").write_bytes(b"by the daemon")
    workspace.begin()
    workspace.look()
    workspace.check()


def test_a_directory_that_was_renamed_stays_there_when_only_something_in_it_changes(workspace: Workspace) -> None:
    workspace.begin()
    workspace.shell("mv a d/e/z")
    workspace.look()
    workspace.shell("echo more >> d/e/z/b/f")
    workspace.look()
    workspace.check()


def test_a_stored_directory_and_one_of_the_lower_change_places(workspace: Workspace) -> None:
    workspace.opened.write("a/b/f", b"by the daemon", "b")
    (workspace.plain / "a/b/f").write_bytes(b"by the daemon")
    workspace.begin()
    workspace.shell("mv d/e t; mv a/b d/e; mv t a/b")
    workspace.look()
    workspace.check()


def test_a_directory_of_the_lower_leaves_one_that_was_renamed(workspace: Workspace) -> None:
    workspace.begin()
    workspace.shell("mv d empty/d")
    workspace.look()
    workspace.seal()
    workspace.shell("mv empty/d/e a/e; mv a/b/f a/e/f; rm a/e/g")
    workspace.look()
    workspace.check()


def test_times_of_directories_and_symlinks_are_those_of_the_run(workspace: Workspace) -> None:
    workspace.begin()
    workspace.shell("echo x > a/new; touch -h -d 2001-01-01 link; mv a/b d/b")
    workspace.look()
    workspace.check()
    workspace.shell("rm -r d/e; touch -h -d 2002-02-02 link; mv d/b a/b")
    workspace.look()
    workspace.check()


@pytest.mark.parametrize("script", ["chmod 600 one", "mv d z; mv empty d", "echo more >> one; mv one d/one"])
def test_names_of_one_file_stay_so_after_a_snapshot(workspace: Workspace, script: str) -> None:
    workspace.begin()
    workspace.shell("echo x > one; ln one a/two; ln one d/three")
    workspace.look()
    before = workspace.seal()
    shown = workspace.sealed(before)
    workspace.look()
    workspace.shell(script)
    workspace.look()
    workspace.check()
    listings.check_same(shown, workspace.sealed(before))


def test_a_new_name_of_a_file_is_recognised_by_a_daemon_that_knows_nothing(workspace: Workspace) -> None:
    workspace.begin()
    workspace.shell("chmod 600 d/e/f")
    workspace.look()
    workspace.shell("ln d/e/f a/aa")
    workspace.lose_state()
    workspace.check()


@pytest.mark.parametrize("lost", [False, True])
def test_a_file_that_the_run_gives_to_another_user_can_be_read_and_sealed(workspace: Workspace, lost: bool) -> None:
    workspace.begin()
    workspace.shell("echo x > new")
    workspace.look()
    workspace.shell("chown 12:34 new")
    assert workspace.in_branch()[b"/new"].content == b"x\n"
    workspace.seal()
    if lost:
        workspace.lose_state()
    workspace.look()
    workspace.check()


def test_a_directory_that_two_looks_did_not_see_on_its_way_comes_back_with_all_that_is_in_it(workspace: Workspace) -> None:
    workspace.opened.write("a/b/f", b"by the daemon", "b")
    (workspace.plain / "a/b/f").write_bytes(b"by the daemon")
    workspace.begin()
    workspace.shell("mv a z; echo x > z/new; mv d/e e")
    look = workspace.live.look()
    look.scan()
    look.found.children = [found for found in look.found.children if found.name not in (b"z", b"e")]
    look.found.names -= {b"z", b"e"}
    workspace.live.apply(look)
    assert b"/z" not in workspace.in_branch()
    workspace.look()
    workspace.check()


@pytest.fixture
def deep_workspace(workspace: Workspace) -> Iterator[Workspace]:
    yield workspace
    workspace.unmount()
    remove_tree(str(workspace.base / "runs"))  # pytest cannot


def test_a_directory_that_comes_back_may_be_deeper_than_the_stack_of_python(deep_workspace: Workspace) -> None:
    workspace = deep_workspace
    node, depth = workspace.tree.walk(b"empty"), 1200
    for _ in range(depth):
        node = directory_entries.make(workspace.tree, node, b"d", 0o40755, OWNER)
    directory_entries.make(workspace.tree, node, b"leaf", 0o100644, OWNER)
    workspace.begin()
    workspace.shell("mv empty z")
    look = workspace.live.look()
    look.scan()
    look.found.children = [found for found in look.found.children if found.name != b"z"]
    look.found.names -= {b"z"}
    workspace.live.apply(look)
    assert workspace.tree.find(workspace.tree.root, b"z") is None
    workspace.look()
    assert workspace.tree.walk(b"z/" + b"d/" * depth + b"leaf").is_file
    assert workspace.opened.overlay.fsck() == []


def test_a_new_directory_with_the_inode_number_of_a_removed_one_shows_nothing_of_it(workspace: Workspace) -> None:
    workspace.begin()
    workspace.shell("echo x > a/b/new; mkdir m; echo x > m/x")
    workspace.look()
    for _ in range(3):  # ext4 gives the number away again
        workspace.shell("rm -rf a/b m n o; mkdir n; mkdir o; mkdir a/b; mkdir m")
        workspace.look()
        workspace.check()


def test_inode_numbers_of_two_directories_may_lead_to_one(workspace: Workspace) -> None:
    workspace.begin()
    workspace.shell("mkdir m; echo x > m/f")
    workspace.look()
    workspace.shell("mkdir n a/n; echo y > n/f; echo z > a/n/f; echo x > m/g")
    for path in ("n", "a/n"):
        workspace.live._state.directories[os.stat(workspace.upper / path).st_ino] = workspace.tree.walk(b"m").id
    workspace.look()
    workspace.check()
    assert not workspace.look()


def test_the_files_of_a_renamed_directory_are_not_taken_again(workspace: Workspace) -> None:
    workspace.begin()
    workspace.shell("mkdir n; for i in 1 2 3; do echo $i > n/$i; done")
    workspace.look()
    workspace.seal()
    before = workspace.tree.walk(b"n/1").content
    workspace.shell("mv n m")
    workspace.look()
    workspace.check()
    assert workspace.tree.walk(b"m/1").content == before != 0


@pytest.mark.parametrize("place", ["/dev/shm", ""])
def test_what_is_written_through_a_mapping_after_a_snapshot_is_in_the_branch_at_the_end(tmp_path: Path, place: str) -> None:
    with tempfile.TemporaryDirectory(dir=place or tmp_path) as base, workspaces.opened(Path(base)) as workspace:
        workspace.begin()
        with open(workspace.merged / "mapped", "w+b") as file:
            file.write(b"x" * 8192)
            file.flush()
            with mmap.mmap(file.fileno(), 8192) as mapped:
                mapped[:4] = b"1111"
                workspace.look()
                sealed = workspace.seal()
                shown = workspace.sealed(sealed)
                workspace.look()
                mapped[:4] = b"2222"
        workspace.finish()
        content = workspace.in_branch()[b"/mapped"].content
        assert content is not None and content[:4] == b"2222"
        listings.check_same(shown, workspace.sealed(sealed))


def test_a_layer_that_has_all_leaves_those_that_others_lie_over(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer_stack, "_MOST", 2)
    for script in ("echo x > one; echo y > two", "rm one a/f; echo x > three", "mv a z", "rm two; mkdir a", "echo x > four"):
        workspace.begin()
        workspace.check()
        workspace.shell(script)
        workspace.look()
        workspace.check()
        workspace.finish()
    names = [name for name in os.listdir(workspace.base / "runs") if not name.endswith(".beneath")]
    assert any("-" in name.removeprefix("layer-") for name in names)
    for gone in workspace.stack.put_aside_unneeded([workspace.seal()], ()):
        layer_stack.remove(gone)
    workspace.begin()
    workspace.check()


def test_a_layer_with_copies_of_the_lower_is_written_anew_when_the_lower_changes(workspace: Workspace) -> None:
    inode_attributes.setattr_(workspace.tree, workspace.tree.walk(b"a/f"), NewAttributes(mode=0o600))
    (workspace.plain / "a/f").chmod(0o600)
    workspace.begin()
    workspace.finish()
    for place in (workspace.base / "lower", workspace.plain):
        workspaces.shell("echo theirs > a/f", place)
    workspace.begin()
    assert (workspace.merged / "a/f").read_text() == "theirs\n"
    workspace.look()
    workspace.check()


@pytest.fixture
def few_descriptors() -> Iterator[int]:
    """As many as may be opened more."""
    limits, more = resource.getrlimit(resource.RLIMIT_NOFILE), 60
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + more, limits[1]))
    yield more
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_many_files_can_be_removed_between_two_looks(workspace: Workspace, few_descriptors: int) -> None:
    workspace.begin()
    workspace.shell("mkdir n; for i in $(seq 100); do echo $i > n/$i; done")
    workspace.look()
    inode = workspace.tree.walk(b"n/7")
    data.open_(inode, os.O_RDONLY)
    workspace.shell("rm -r n")
    workspace.look()
    workspace.check()
    while workspace.opened.overlay.layers.reap():
        pass
    assert data.read(inode, 9, 0) == b"7\n"
    data.release(inode)
    objects = workspace.opened.backstore.usage()["objects"]
    del inode
    assert workspace.opened.backstore.usage()["objects"] == objects - 1


def test_nothing_is_sealed_before_a_new_daemon_has_looked(workspace: Workspace) -> None:
    workspace.begin()
    workspace.shell("echo x > new")
    workspace.look()
    run = workspace.live
    run.close()
    workspace.run = BranchOverlay(workspace.opened.overlay, workspace.stack, run.place, run.record, Silent())
    with pytest.raises(OSError, match="not be brought"):
        workspace.seal()
    workspace.look()
    workspace.seal()
    workspace.check()
