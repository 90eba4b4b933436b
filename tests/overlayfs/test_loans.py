"""A branch that is lent to a run: what a kill, another state, or a failure in the middle leaves."""

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentfsd.core import directory_entries, inode_stat, lent_branches
from agentfsd.overlayfs import run_beginning, run_record
from agentfsd.overlayfs.branch_overlay import BranchOverlay
from agentfsd.overlayfs.layer_stack import LayerStack
from agentfsd.overlayfs.run_record import NotOurs
from tests.overlayfs.test_takeover import Quiet
from tests.overlays import Opened


class Lent:
    """A branch ``b`` with one file, lent to a run; ``upper`` is what the run would write to."""

    def __init__(self, base: Path) -> None:
        self.opened = Opened(base)
        (base / "layers").mkdir()
        self.place = base / "layers" / "run-b"
        self.id = self.opened.overlay.branches.create("b").id
        self.opened.write("precious", b"kept", "b")
        self.overlay = run_beginning.begin(self.opened.overlay, self.stack(), str(self.place), self.id, Quiet())
        self.upper = self.place / "upper"

    def stack(self) -> LayerStack:
        base = self.opened.base
        return LayerStack(str(base / "layers"), str(base / "objects"), self.opened.overlay.trees)

    def resume(self) -> None:
        """Go on as the next daemon does after a kill."""
        self.opened.reopen()
        record = run_record.read_record(str(self.place))
        assert record is not None
        self.overlay = BranchOverlay(self.opened.overlay, self.stack(), str(self.place), record, Quiet())

    def names(self) -> list[bytes]:
        tree = self.opened.tree("b")
        return sorted(tree.names(tree.root))


@pytest.fixture
def lent(tmp_path: Path) -> Iterator[Lent]:
    made = Lent(tmp_path)
    yield made
    made.overlay.close()
    made.opened.close()


def test_no_start_frees_the_layer_beneath_a_run(lent: Lent) -> None:
    overlay = lent.opened.overlay
    overlay.snapshots.create("b", None, "temporary", 0, "", "", temporary=True)
    with overlay.trees.frozen("b"), overlay.trees.scratch(overlay.trees.of_branch(lent.id)):
        (lent.upper / "new").write_text("new")
        lent.overlay.take_over()
    lent.resume()
    lent.overlay.take_over()
    assert lent.names() == [b"new", b"precious"]


def test_a_look_from_before_another_state_is_taken_anew(lent: Lent) -> None:
    overlay = lent.opened.overlay
    overlay.branches.create("other", "b")
    (lent.upper / "new").write_text("new")
    look = lent.overlay.look()
    look.scan()
    overlay.branches.restore("b", "other")
    lent.overlay.push(os.open(lent.upper, os.O_RDONLY))
    lent.overlay.apply(look)
    assert lent.names() == [b"new", b"precious"]


def test_a_state_that_programs_have_not_seen_is_shown_after_a_kill(lent: Lent) -> None:
    overlay = lent.opened.overlay
    overlay.branches.create("other", "b")
    lent.opened.write("theirs", b"theirs", "other")
    lent.overlay.take_over()
    overlay.branches.restore("b", "other")
    lent.resume()
    assert lent.overlay.is_replaced
    root = os.open(lent.upper, os.O_RDONLY)
    lent.overlay.push(root)
    os.close(root)
    assert (lent.upper / "theirs").read_text() == "theirs"
    assert not lent.overlay.is_replaced
    lent.overlay.take_over()
    assert lent.names() == [b"precious", b"theirs"]
    assert lent.opened.overlay.fsck() == []


def _changed_after_another_state(lent: Lent) -> None:
    """The branch has another state than programs see, in which two files have another content."""
    for content in ("before", "after"):
        for name in ("file", "other"):
            (lent.upper / name).write_text(content)
        lent.overlay.take_over()
        if content == "before":
            lent.opened.overlay.branches.create("other", "b")
    lent.opened.overlay.branches.restore("b", "other")


def _push(lent: Lent) -> None:
    root = os.open(lent.upper, os.O_RDONLY)
    lent.overlay.push(root)
    os.close(root)
    (lent.upper / "new").write_text("new")
    lent.overlay.take_over()


def _contents(lent: Lent) -> list[bytes]:
    """What the branch has, which is what programs see."""
    found = [lent.opened.read(name, "b") for name in ("file", "other")]
    assert [(lent.upper / name).read_bytes() for name in ("file", "other")] == found
    assert lent.opened.overlay.fsck() == []
    return found


def test_a_directory_with_the_name_of_an_unfinished_file_holds_up_nothing(lent: Lent) -> None:
    _changed_after_another_state(lent)
    (lent.upper / f".agentfs-restored-{lent.overlay.record.mark}" / "in it").mkdir(parents=True)
    (lent.upper / ".agentfs-restored").mkdir()
    _push(lent)
    assert lent.names() == [b".agentfs-restored", b"file", b"new", b"other", b"precious"]
    assert _contents(lent) == [b"before", b"before"]


def test_a_file_that_nobody_may_replace_holds_up_nothing(lent: Lent, monkeypatch: pytest.MonkeyPatch) -> None:
    _changed_after_another_state(lent)
    rename = os.rename

    def is_immutable(source: bytes, target: bytes, **places: int) -> None:
        if target == b"other":
            raise PermissionError(1, "Operation not permitted")
        rename(source, target, **places)

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", is_immutable)
        _push(lent)
    assert _contents(lent) == [b"before", b"after"]
    assert lent.names() == [b"file", b"new", b"other", b"precious"]


def test_a_workspace_of_somebody_else_stays_theirs(lent: Lent, monkeypatch: pytest.MonkeyPatch) -> None:
    (lent.upper / "new").write_text("new")
    os.chown(lent.upper, 65534, 65534)  # an ordinary user's daemon can make no other
    lent.upper.chmod(0o750)
    with monkeypatch.context() as patched:
        patched.setattr(os, "geteuid", lambda: 65534)
        lent.overlay.take_over()
    root = inode_stat.attributes(lent.opened.tree("b").root)
    assert (root.uid, root.gid, oct(root.mode)) == (os.geteuid(), os.getegid(), "0o40750")
    assert lent.names() == [b"new", b"precious"]


def test_an_end_that_fails_leaves_the_branch_lent(lent: Lent, monkeypatch: pytest.MonkeyPatch) -> None:
    (lent.upper / "new").write_text("new")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(LayerStack, "add", full)
        with pytest.raises(OSError, match="No space"):
            lent.overlay.finish()
    tree = lent.opened.tree("b")
    with pytest.raises(OSError, match="only that run changes it"):
        directory_entries.unlink(tree, tree.root, b"new")
    lent.overlay.finish()
    assert lent.names() == [b"new", b"precious"]
    assert lent_branches.find(lent.opened.store, lent.id) is None
    lent.opened.unlink("new", "b")
    assert not lent.place.exists()


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("how", ["descriptor", "mapping"])
def test_what_a_process_outside_goes_on_writing_after_the_run_reaches_no_sealed_state(lent: Lent, sealed: bool, how: str) -> None:
    overlay = lent.opened.overlay
    for name in ("file", "other"):
        (lent.upper / name).write_text("inside")
    lent.overlay.take_over()
    if sealed:
        overlay.branches.create("copy", "b")
    outside = os.open(lent.upper / "file", os.O_RDWR)
    mapping = mmap.mmap(outside, 6) if how == "mapping" else None
    if mapping is not None:
        os.close(outside)
    lent.overlay.finish()
    overlay.branches.create("copy2", "b")
    if mapping is not None:
        mapping[:] = b"beyond"
        mapping.close()
    else:
        os.write(outside, b"beyond")
        os.close(outside)
    shown = [lent.opened.read("file", name) for name in ("b", "copy2", *["copy"] * sealed)]
    assert set(shown) == {b"inside"}
    lent.opened.reopen()
    begun = run_beginning.begin(lent.opened.overlay, lent.stack(), str(lent.place), lent.id, Quiet())
    shown = [(Path(lent.opened.base) / "layers" / begun.record.layers[0] / name).read_text() for name in ("file", "other")]
    assert shown == ["inside", "inside"]
    begun.abandon()
    assert lent.opened.overlay.fsck() == []


def test_a_record_of_another_loan_is_not_taken_over(lent: Lent) -> None:
    with lent.opened.store.transaction():
        lent_branches.put(lent.opened.store, lent.id, lent_branches.Loan(0, "other"))
    lent.overlay.close()
    with pytest.raises(NotOurs):
        lent.resume()
    lent.overlay = lent.overlay
