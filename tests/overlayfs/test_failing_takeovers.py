"""A takeover that fails changes nothing in the branch, and a later one brings everything."""

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentfsd.backstore.hostfs import HostBackstore
from agentfsd.core import data
from agentfsd.metadata.row_store import Store
from agentfsd.overlayfs.takeover import Takeover
from agentfsd.overlayfs.upper_scan import Found, Known
from tests.overlayfs import listings, workspaces
from tests.overlayfs.workspaces import Workspace

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount an overlay")

LOWER = "mkdir -p a/b d gone/x; for n in f g; do echo $n > a/$n; echo $n > a/b/$n; echo $n > gone/x/$n; done"
FIRST = "echo one > kept; ln kept twin; mkdir n; echo n > n/f; echo more >> a/f; mv d e"
SECOND = "echo two >> kept; mv n m; mv a z; echo x > z/new; echo y >> z/b/g; rm -r gone; ln z/f m/l; mkfifo pipe; chmod 600 z/g"


def failing(function: Callable[..., object], after: int) -> Callable[..., object]:
    """The function, which fails after so many calls."""
    calls = [0]

    def call(*arguments: object, **options: object) -> object:
        calls[0] += 1
        if calls[0] > after:
            raise OSError(errno.ENOSPC, "no room")
        return function(*arguments, **options)

    return call


@pytest.mark.parametrize("where", [(HostBackstore, "take"), (Store, "put_inode"), (Store, "put_dentry"), (Store, "put_new")])
def test_an_error_in_the_middle_changes_nothing(workspace: Workspace, where: tuple[type, str]) -> None:
    workspace.begin()
    workspace.shell(FIRST)
    workspace.look()
    workspace.shell(SECOND)
    before, after = listings.without_times(workspace.in_branch()), 0
    before = {path: what for path, what in before.items() if path not in (b"/kept", b"/twin")}  # its content is the run's own
    while True:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(*where, failing(getattr(*where), after))
            try:
                workspace.look()
                break
            except OSError as exc:
                assert exc.errno == errno.ENOSPC
        now = listings.without_times(workspace.in_branch())
        listings.check_same(before, {path: what for path, what in now.items() if path not in (b"/kept", b"/twin")})
        assert workspace.opened.overlay.fsck() == []
        after += 1 if after < 4 else 7
    assert after
    workspace.check()


@pytest.mark.parametrize("is_open", [False, True])
def test_a_file_that_a_failed_takeover_has_changed_and_then_removed_is_as_before(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, is_open: bool
) -> None:
    workspace.begin()
    workspace.shell("echo one > kept")
    workspace.look()
    workspace.seal()
    workspace.shell("echo two >> kept")
    all_below, inode = Takeover._all_below, workspace.tree.walk(b"kept")

    def fail(takeover: Takeover, root: Found) -> Known:
        all_below(takeover, root)
        takeover._remove(workspace.tree.root, b"kept")
        assert not inode.nlink
        raise OSError(errno.EIO, "broken")

    if is_open:
        data.open_(inode, os.O_RDONLY)
    with monkeypatch.context() as patch:
        patch.setattr(Takeover, "_all_below", fail)
        with pytest.raises(OSError, match="broken"):
            workspace.look()
    assert workspace.tree.walk(b"kept") is inode
    if is_open:
        assert data.read(inode, 99, 0) == b"one\n"
        data.release(inode)
    assert workspace.in_branch()[b"/kept"].content == b"one\n"
    assert not workspace.tree.doomed.numbers()
    workspace.look()
    workspace.check()


def test_a_snapshot_after_a_failed_takeover_holds_still(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace.begin()
    workspace.shell(FIRST)
    workspace.look()
    workspace.shell("echo x > new; echo y > m")
    with monkeypatch.context() as patch:
        patch.setattr(Store, "put_new", failing(Store.put_new, 0))
        with pytest.raises(OSError, match="no room"):
            workspace.look()
    layer = workspace.seal()
    shown = workspace.sealed(layer)
    workspace.shell("echo changed >> kept; echo changed >> n/f; echo changed > a/f")
    listings.check_same(shown, workspace.sealed(layer))
    workspace.look()
    listings.check_same(shown, workspace.sealed(layer))
    workspace.check()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB."""
    image, place = tmp_path / "image", tmp_path / "disk"
    place.mkdir()
    with open(image, "wb") as file:
        file.truncate(24 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", "-N", "6000", image], check=True)
    if subprocess.run(["mount", "-o", "loop", image, place], check=False, capture_output=True).returncode:
        pytest.skip("no loop devices here")
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


def test_a_full_disk_changes_nothing_and_what_was_written_comes_when_there_is_room(small_disk: Path) -> None:
    (small_disk / "w").mkdir()
    with workspaces.opened(small_disk / "w", LOWER) as workspace:
        workspace.begin()
        workspace.shell("mkdir n; for i in $(seq 300); do echo $i > n/$i; done; echo more >> a/f")
        workspace.look()
        workspace.shell("mv n m; for i in $(seq 500); do echo $i > m/x$i; done; rm a/f")
        ballast = workspace.base / "ballast"
        with open(ballast, "wb") as file:
            while _write(file.fileno(), b"x" * 4096):
                pass
        before = listings.without_times(workspace.in_branch())
        failed = 0
        for _ in range(2):
            try:
                workspace.look()
            except OSError as exc:
                assert exc.errno == errno.ENOSPC
                failed += 1
                listings.check_same(before, listings.without_times(workspace.in_branch()))
        os.unlink(ballast)
        workspace.look()
        workspace.check()
        workspace.finish()
        assert b"/m/x500" in workspace.in_branch()


def _write(fd: int, content: bytes) -> bool:
    try:
        return os.write(fd, content) > 0
    except OSError:
        return False
