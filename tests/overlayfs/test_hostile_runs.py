"""What programs of a run do against the takeover: nothing outside is touched, and no takeover fails for ever."""

import errno
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentfs_host import syscalls
from agentfsd.overlayfs import new_entries, takeover, unlocking, upper_scan
from agentfsd.overlayfs.upper_scan import Found
from tests import rounds
from tests.overlayfs import listings, workspaces
from tests.overlayfs.workspaces import Workspace

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount an overlay")

_LOOKS = rounds.rounds("looks at a hostile run", 60, 2000)
LOWER = "mkdir -p a/b d; for n in f g; do echo $n > a/$n; echo $n > a/b/$n; done"


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_text("secret")
    (outside / "f").chmod(0o400)
    with workspaces.opened(tmp_path, LOWER) as workspace:
        workspace.begin()
        yield workspace
    status = os.stat(outside / "f")
    assert (stat.S_IMODE(status.st_mode), status.st_nlink) == (0o400, 1)
    assert (outside / "f").read_text() == "secret"


def check(workspace: Workspace) -> None:
    branch = workspace.in_branch(times=True)
    listings.check_same(listings.without_links(branch), listings.without_links(workspace.in_run(times=True)))
    assert workspace.opened.overlay.fsck() == []
    assert all(what.content != b"secret" for what in branch.values())


def between(workspace: Workspace, script: str) -> None:
    """Look, with the script between finding what has changed and taking it over. Then look again."""
    look = workspace.live.look()
    look.scan()
    workspaces.shell(script, workspace.merged)
    workspace.live.apply(look)
    workspace.look()
    check(workspace)


SWAPS = {
    "a directory becomes a symlink to outside": ("mkdir n; echo x > n/f", "mv n m; ln -s $OUT n"),
    "a directory of the lower becomes a symlink": ("echo x >> a/b/f", "mv a/b z; ln -s $OUT a/b"),
    "a directory goes": ("mkdir -p n/o; echo x > n/o/f; echo y >> a/b/f", "rm -r n a/b"),
    "a directory becomes a file": ("mkdir -p n/o; echo x > n/o/f", "rm -r n; echo x > n"),
    "a file becomes a symlink": ("echo x > f; echo y >> a/f", "ln -sfn $OUT/f f; ln -sfn $OUT/f a/f"),
    "a file becomes a fifo": ("echo x > f; echo y >> a/f", "rm f a/f; mkfifo f a/f"),
    "a file becomes a device": ("echo x > f; echo y >> a/f", "rm f a/f; mknod f c 1 5; mknod a/f c 1 3"),
    "a file becomes a directory": ("echo x > f; echo y >> a/f", "rm f a/f; mkdir f a/f; echo z > f/f"),
    "a file goes": ("echo x > f; echo y >> a/f; echo z > z", "rm f a/f"),
    "two directories change places": ("mkdir n o; echo n > n/f; echo o > o/f", "mv n t; mv o n; mv t o"),
    "a directory goes into another": ("mkdir n o; echo n > n/f; echo o > o/f", "mv n o/n"),
    "a directory comes out": ("mkdir -p n/o/p; echo n > n/o/p/f; echo x >> a/b/f", "mv n/o/p p; mv a/b b; rm -r n"),
    "another user's file": ("echo x > f; chown 12 f; chmod 0 f", "ln -sfn $OUT/f f"),
}


ATTRIBUTES = {
    "setfattr": "setfattr -n user.x -v $N f a/f one g/two",
    "chmod": "chmod 60$N f a/f one g/two",
    "chown": "chown 1$N f a/f one g/two",
}


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_attributes_set_between_finding_and_taking_are_not_lost(workspace: Workspace, name: str) -> None:
    workspaces.shell("mkdir g; echo x > f; echo y >> a/f; echo z > one; ln one g/two", workspace.merged)
    between(workspace, ATTRIBUTES[name].replace("$N", "4"))
    workspaces.shell("ln one three; ln one g/four; echo more >> f; rm a/f; echo y > a/f", workspace.merged)
    between(workspace, ATTRIBUTES[name].replace("$N", "6"))
    assert not workspace.look()


@pytest.mark.parametrize("name", SWAPS)
def test_what_changes_between_finding_and_taking_is_found_by_the_next_look(workspace: Workspace, name: str) -> None:
    before, swap = (script.replace("$OUT", str(workspace.base / "outside")) for script in SWAPS[name])
    workspaces.shell(before, workspace.merged)
    between(workspace, swap)


def test_an_unreadable_file_that_becomes_a_symlink_leads_nowhere(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for an ordinary user's daemon, which has to open what denies that to everybody."""
    for module in (new_entries, takeover, unlocking, upper_scan):
        monkeypatch.setattr(module, "is_locked", lambda status: not status.st_mode & stat.S_IRUSR)
    workspaces.shell("echo x > f; chmod 0 f; echo y > g; chmod 0 g; echo z > h; chmod 0 h", workspace.merged)
    between(workspace, f"ln -sfn {workspace.base}/outside/f f; rm g; mkfifo g; rm h; mkdir h")


def test_no_look_at_a_run_that_swaps_directories_all_the_time_fails(workspace: Workspace) -> None:
    merged, stop = workspace.merged, threading.Event()
    outside = str(workspace.base / "outside")
    workspaces.shell(
        f"mkdir -p n/o; for i in 1 2 3 4 5 6 7 8 9; do echo $i > n/o/f$i; done; cp -a n m; ln -s {outside} l", merged
    )

    def swap() -> None:
        turn = 0
        while not stop.is_set():
            turn += 1
            syscalls.exchange(f"{merged}/n", f"{merged}/{'lm'[turn % 2]}")
            if turn % 3 == 0:
                syscalls.exchange(f"{merged}/a/b", f"{merged}/d")
            if turn % 5 == 0:
                Path(merged, f"f{turn % 7}").write_text(str(turn))

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(_LOOKS):
            workspace.look()
    finally:
        stop.set()
        thread.join()
    workspace.look()
    check(workspace)


def test_odd_names_depths_and_attributes(workspace: Workspace) -> None:
    merged = os.fsencode(workspace.merged)
    for name in (b"x" * 255, b"\n", b"\xff\xfe", b" ", b"-", b"\\", b".agentfs-moving-1", b".wh.f"):
        with open(merged + b"/" + name, "wb") as file:
            file.write(name)
    (workspace.merged / "many").write_text("x")
    for number in range(60):
        os.setxattr(workspace.merged / "many", f"user.attribute{number}", b"v" * 20)
    deep = os.open(merged, os.O_RDONLY)
    for _ in range(300):
        os.mkdir(b"deep", dir_fd=deep)
        below = os.open(b"deep", os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = below
    os.close(os.open(b"leaf", os.O_CREAT | os.O_WRONLY, dir_fd=deep))
    os.close(deep)
    workspace.look()
    tree = workspace.tree
    assert tree.walk(b"deep/" * 300 + b"leaf").is_file
    os.rename(merged + b"/deep/deep", merged + b"/moved")
    workspace.look()
    assert tree.walk(b"moved/" + b"deep/" * 298 + b"leaf").is_file
    assert len(listings.all_xattrs(tree, tree.walk(b"many"))) == 60
    assert set(tree.names(tree.root)) == set(os.listdir(merged)) - {b".agentfs"}
    assert workspace.opened.overlay.fsck() == []
    workspace.finish()
    workspace.opened.write("small", b"", "b")
    workspace.begin()  # a layer is written that has all of it
    assert os.path.exists(workspace.merged / "many")
    workspaces.shell("rm -r moved deep", workspace.merged)
    workspace.look()
    assert workspace.opened.overlay.fsck() == []


def test_a_device_like_a_whiteout_is_what_the_kernel_makes_of_it(workspace: Workspace) -> None:
    script = "for p in w a/w a/f; do rm -f $p; mknod $p c 0 0 || true; done; echo x > n; rm n; mknod n c 0 0 || true"
    workspaces.shell(script, workspace.merged)
    workspace.look()
    branch, run = workspace.in_branch(), workspace.in_run()
    assert branch.keys() == run.keys()
    workspace.look()
    assert workspace.opened.overlay.fsck() == []


FORGED = """
mkdir -p n/o; echo x > n/o/f; echo y >> a/f
for space in user trusted; do
    for path in n a a/b d; do
        setfattr -n $space.overlay.opaque -v y $path
        setfattr -n $space.overlay.redirect -v /d $path
        setfattr -n $space.overlay.overlay.redirect -v /a $path
    done
    for path in n/o/f a/f a/g; do
        setfattr -n $space.overlay.origin -v x $path
        setfattr -n $space.overlay.whiteout -v y $path
    done
done
"""


def test_attributes_like_those_of_overlayfs_are_the_files_own(workspace: Workspace) -> None:
    workspaces.shell(FORGED, workspace.merged)
    workspace.look()
    check(workspace)
    shown = listings.without_links(workspace.in_run(times=True))
    assert len(shown[b"/n"].xattrs) == 6
    workspace.finish()
    workspace.opened.write("new", b"", "b")  # a layer is written that has all of it
    workspace.begin()
    assert os.path.exists(workspace.merged / "new")
    check(workspace)
    now = listings.without_links(workspace.in_run(times=True))
    assert [path for path in shown if shown[path] != now[path]] == []


@pytest.mark.parametrize("redirect", [b"..", b".", b"", b"/", b"/a/../../outside", b"//a", b"a/b", b"a\0", b"x" * 256, b"/f" * 9])
def test_a_redirect_that_leads_nowhere_shows_nothing(workspace: Workspace, redirect: bytes) -> None:
    workspaces.shell("mkdir n a/n; echo x > n/f; echo y > a/n/f", workspace.merged)
    for path in ("n", "a/n"):
        os.setxattr(workspace.upper / path, "trusted.overlay.redirect", redirect)
    for _ in range(2):
        workspace.look()
        branch = workspace.in_branch()
        assert [path for path in branch if path.startswith((b"/n", b"/a/n"))] == [b"/a/n", b"/a/n/f", b"/n", b"/n/f"]
        workspace.lose_state()


@pytest.mark.parametrize("error", [errno.EMLINK, errno.EXDEV])
def test_a_file_that_can_have_no_further_name_is_copied(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    workspaces.shell("echo x > f; chmod 640 f", workspace.merged)
    backstore, refused = workspace.opened.backstore, list[Found]()

    def take(directory: int, name: bytes, number: int) -> os.stat_result:
        refused.append(Found(name, os.stat(name, dir_fd=directory), has_changed=True))
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(backstore, "take", take)
    workspace.look()
    assert refused
    check(workspace)
    workspaces.shell("echo y >> f", workspace.merged)
    workspace.look()
    check(workspace)
