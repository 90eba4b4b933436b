"""What others change in the lower while a run is on: what the run has changed, too, counts as moved, and nothing else does."""

import os

import pytest

from agentfsd.core import inode_attributes, tree_diff
from agentfsd.history.lower_drift import LowerDrift
from tests.overlayfs.workspaces import Workspace, shell

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount an overlay")

LOWER = """
mkdir -p a/b d
for n in f g h; do echo $n > a/$n; echo $n > a/b/$n; done
ln -s a link
"""

# What others do in the lower, what the run does, and the paths that both have changed.
BOTH = {
    "edited in place": ("echo theirs >> a/f", "echo ours >> a/f", "a/f"),
    "replaced below": ("echo theirs > a/t; mv a/t a/f", "echo ours >> a/f", "a/f"),
    "replaced in the run": ("echo theirs >> a/f", "echo ours > t; mv t a/f", "a/f"),
    "only its mode": ("echo theirs >> a/f", "chmod 600 a/f", "a/f"),
    "only its mode below": ("chmod 600 a/f", "echo ours >> a/f", "a/f"),
    "removed in the run": ("echo theirs >> a/f", "rm a/f", "a/f"),
    "removed below": ("rm a/f", "echo ours >> a/f", "a/f"),
    "replaced below and removed": ("echo theirs > a/t; mv a/t a/f", "rm a/f", "a/f"),
    "added on both sides": ("echo theirs > a/new", "echo ours > a/new", "a/new"),
    "removed and added again below": ("rm a/f; echo again > a/f", "rm a/f", "a/f"),
    "a directory removed in the run": ("echo theirs >> a/b/f", "rm -r a/b", "a/b/f"),
    "a directory replaced in the run": ("echo theirs >> a/b/f", "rm -r a/b; mkdir a/b; echo ours > a/b/f", "a/b/f"),
    "a symlink": ("ln -sfn d link", "ln -sfn nowhere link", "link"),
    "in a renamed directory": ("echo theirs >> a/f", "mv a z; echo ours >> z/f", "z/f"),
}
ORDERS = ["theirs first", "ours first", "ours first, with a look"]


def moved(workspace: Workspace) -> dict[str, bool]:
    """Each path that the branch has changed: whether a commit takes it to have moved in the lower."""
    overlay = workspace.opened.overlay
    pairs = list(tree_diff.pairs(overlay.parts, overlay.trees.side(None), workspace.tree))
    drift = LowerDrift(workspace.tree, pairs)
    return {os.fsdecode(pair.path): drift.has_moved(pair) for pair in pairs}


def do(workspace: Workspace, order: str, theirs: str, ours: str) -> None:
    if order == "theirs first":
        shell(theirs, workspace.base / "lower")
    shell(ours, workspace.merged)
    if order == "ours first, with a look":
        workspace.look()
    if order != "theirs first":
        shell(theirs, workspace.base / "lower")
    workspace.look()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", BOTH)
def test_what_both_have_changed_counts_as_moved(workspace: Workspace, name: str, order: str) -> None:
    theirs, ours, path = BOTH[name]
    if order == "theirs first" and name in ("removed below", "a directory removed in the run"):
        ours = ours.replace(">>", ">")
    workspace.begin()
    do(workspace, order, theirs, ours)
    found = moved(workspace)
    if name == "in a renamed directory":
        assert found.get("a/f") or found.get("z/f") or found.get("a")
    elif name == "removed below" and order == "theirs first":
        assert not found.get(path) or found[path]  # it is a new file
    else:
        assert found.get(path) is True, found
    assert workspace.opened.overlay.fsck() == []


@pytest.mark.parametrize("theirs", ["echo t >> a/f", "rm a/f", "echo t > t; mv t a/f", "echo t > a/new; mkdir a/m", "rm -r a/b"])
@pytest.mark.parametrize("order", ORDERS)
def test_what_only_the_lower_has_changed_is_no_change_of_the_branch(workspace: Workspace, theirs: str, order: str) -> None:
    workspace.begin()
    do(workspace, order, theirs, "echo ours > d/ours; echo ours >> a/h; ls -lR > /dev/null; cat a/* > /dev/null || true")
    found = moved(workspace)
    assert {path for path in found if found[path]} == set()
    assert {path for path in found if path not in ("a", "d")} == {"d/ours", "a/h"}
    workspace.finish()
    assert moved(workspace) == found


def test_a_copy_that_an_older_layer_has_is_not_taken_for_what_the_lower_has_now(workspace: Workspace) -> None:
    inode = workspace.tree.walk(b"a/f")
    inode_attributes.setattr_(workspace.tree, inode, inode_attributes.NewAttributes(mode=0o600))
    workspace.begin()
    workspace.finish()
    shell("echo theirs >> a/f", workspace.base / "lower")
    workspace.begin()
    shell("echo ours >> a/f", workspace.merged)
    workspace.look()
    assert moved(workspace)["a/f"]


def test_what_the_run_has_removed_stays_removed_when_it_appears_again_below(workspace: Workspace) -> None:
    workspace.begin()
    shell("rm a/f", workspace.merged)
    shell("rm a/f", workspace.base / "lower")
    workspace.look()
    shell("echo again > a/f", workspace.base / "lower")
    workspace.finish()
    workspace.begin()
    assert (b"/a/f" in workspace.in_branch()) == (workspace.merged / "a/f").exists()
    shell("echo ours > a/f", workspace.merged)
    workspace.look()
    assert moved(workspace)["a/f"]
