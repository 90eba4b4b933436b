"""Runs of an ordinary user, whose daemon has no right to read what modes deny to everybody."""

import ctypes
import os
import stat
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentfs_host import syscalls
from agentfs_host.tree_removal import remove_tree
from agentfsd.core import data, inode_attributes
from agentfsd.core.inode_attributes import NewAttributes
from agentfsd.overlayfs.unlocking import UnlockedDirectories
from tests.mounted import needs_namespaces
from tests.overlayfs import listings, workspaces
from tests.overlayfs.workspaces import Workspace

_USER = 65534
_SET_DUMPABLE = 4  # prctl(2)
_NEWUSER, _NEWNS = 0x10000000, 0x00020000  # unshare(2)


class OfUser(Workspace):
    """What a run does happens in a process of its own, in a user namespace where it may mount."""

    def mount(self) -> None: ...

    def do(self, script: str) -> None:
        """Let a program of the run do something."""
        child = os.fork()
        if child == 0:
            code = 1
            try:
                syscalls.unshare(_NEWUSER | _NEWNS)
                for name, text in (("setgroups", "deny"), ("uid_map", "0 %d 1"), ("gid_map", "0 %d 1")):
                    Path(f"/proc/self/{name}").write_text(text % _USER if "%" in text else text)
                run = self.live
                below = ":".join([*(str(self.base / "runs" / name) for name in run.record.layers), str(self.base / "lower")])
                options = f"lowerdir={below},upperdir={run.place}/upper,workdir={run.place}/work,userxattr"
                syscalls.mount(b"overlay", os.fsencode(self.merged), b"overlay", 0, options.encode())
                workspaces.shell(script, self.merged)
                code = 0
            finally:
                if code:
                    traceback.print_exc()
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        workspaces.shell(script, self.plain)


@pytest.fixture
def base() -> Iterator[Path]:
    needs_namespaces()
    place = Path(tempfile.mkdtemp(prefix="agentfsd-user-"))
    if os.geteuid() == 0:
        os.chown(place, _USER, _USER)
    try:
        yield place
    finally:
        remove_tree(str(place))


def as_user(base: Path, do: Callable[[OfUser], None]) -> None:
    """Do something with a workspace, as an ordinary user."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setresgid(_USER, _USER, _USER)
                os.setresuid(_USER, _USER, _USER)
                ctypes.CDLL(None).prctl(_SET_DUMPABLE, 1)  # or /proc/self is root's
            workspace = OfUser(base, "mkdir -p a/b d; for n in f g; do echo $n > a/$n; echo $n > a/b/$n; done")
            workspace.begin()
            do(workspace)
            workspace.close()
            code = 0
        finally:
            if code:
                traceback.print_exc()
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def check(workspace: OfUser, modes: dict[bytes, int]) -> None:
    """The branch has what the plain copy has; *modes*: of what cannot be read there."""
    branch = workspace.in_branch()
    assert {path: stat.S_IMODE(int(branch[path].mode, 8)) for path in modes} == modes
    for path in modes:
        os.chmod(os.fsencode(workspace.plain) + path, 0o700)
    plain = listings.without_times(workspace.in_plain())
    for path, mode in reversed(modes.items()):
        os.chmod(os.fsencode(workspace.plain) + path, mode)
        plain[path] = plain[path]._replace(mode=branch[path].mode)
    listings.check_same(listings.without_times(branch), plain)
    assert workspace.opened.overlay.fsck() == []
    writes = workspace.opened.store.writes.copy()
    workspace.look()
    assert workspace.opened.store.writes == writes


def _unreadable(workspace: OfUser) -> None:
    modes = {b"/n": 0o000, b"/n/o": 0o100, b"/f": 0o000, b"/a/f": 0o200}
    workspace.do("mkdir -p n/o; echo x > n/o/f; echo y > f; echo more >> a/f; setfattr -n user.x -v y f")
    workspace.do("chmod 100 n/o; chmod 0 n f; chmod 200 a/f")
    workspace.look()
    check(workspace, modes)
    layer = workspace.seal()
    shown = workspace.sealed(layer)
    workspace.do("chmod 700 n; chmod 700 n/o; echo more >> n/o/f; chmod 0 n/o; chmod 0 n; chmod 600 f; echo more >> f; chmod 0 f")
    workspace.look()
    check(workspace, modes | {b"/n/o": 0})
    listings.check_same(shown, workspace.sealed(layer))
    workspace.lose_state()
    check(workspace, modes | {b"/n/o": 0})
    workspace.do("chmod 700 n; mv n m; chmod 0 m; rm -f f; chmod 600 a/f")
    workspace.look()
    check(workspace, {b"/m": 0, b"/m/o": 0})
    workspace.finish()
    check_next(workspace)


def check_next(workspace: OfUser) -> None:
    """The next run sees what the branch has."""
    workspace.begin()
    workspace.do("test $(stat -c %a m) = 0; chmod 700 m; chmod 700 m/o; grep -q more m/o/f")
    workspace.look()
    check(workspace, {})


def _made_unreadable_after_a_look(workspace: OfUser) -> None:
    workspace.do("mkdir n; echo x > n/f; echo y > f")
    workspace.look()
    workspace.do("chmod 0 n/f f; chmod 0 n")
    workspace.look()
    check(workspace, {b"/n": 0, b"/n/f": 0, b"/f": 0})
    workspace.seal()
    workspace.do("chmod 700 n; chmod 600 n/f f; echo more >> f")
    workspace.look()
    check(workspace, {})


def _written_layer(workspace: OfUser) -> None:
    workspace.do("mkdir n; echo x > n/f; echo y > f; chmod 0 n/f n")
    workspace.look()
    workspace.finish()
    workspace.opened.write("a/f", b"by the daemon", "b")
    (workspace.plain / "a/f").write_bytes(b"by the daemon")
    workspace.begin()
    workspace.do("chmod 700 n; chmod 600 n/f; grep -q x n/f; grep -q daemon a/f; rm -r a/b; mkdir a/b")
    workspace.look()
    check(workspace, {})


def _not_touched_in_vain(workspace: OfUser) -> None:
    workspace.do("mkdir -p m n/o; echo x > m/f; echo y > n/o/f; chmod 555 m; chmod 100 n/o; chmod 0 n")
    before = os.stat(workspace.upper / "m").st_ctime_ns
    workspace.look()
    check(workspace, {b"/n": 0, b"/n/o": 0o100})
    assert os.stat(workspace.upper / "m").st_ctime_ns == before
    assert not workspace.look()
    workspace.do("chmod 700 n; echo more > n/new; chmod 0 n")
    assert workspace.look()
    check(workspace, {b"/n": 0, b"/n/o": 0o100})
    assert not workspace.look()


def _written_again(workspace: OfUser) -> None:
    for name in ("f", "g", "h"):
        workspace.do(f"echo {name} > {name}; chmod 444 {name}")
    workspace.look()
    workspace.finish()
    tree, (sealed,) = workspace.tree, workspace.tree.chain - {workspace.tree.head}
    with workspace.opened.store.transaction() as tx:  # the head gets the objects
        workspace.opened.overlay.layers.release(tx, sealed)
    assert tree.walk(b"f").content_layer == tree.head
    for name in (b"f", b"g", b"h"):
        inode_attributes.setattr_(tree, tree.walk(name), NewAttributes(mode=0o644))
    data.open_(tree.walk(b"f"), os.O_WRONLY)
    assert data.write(tree.walk(b"f"), b"more", 2) == 4
    assert data.write(tree.walk(b"f"), b"!", 6) == 1
    data.release(tree.walk(b"f"))
    data.open_(tree.walk(b"g"), os.O_WRONLY | os.O_TRUNC)
    data.release(tree.walk(b"g"))
    inode_attributes.setattr_(tree, tree.walk(b"h"), NewAttributes(size=1))
    branch = workspace.in_branch()
    assert [branch[b"/" + name].content for name in (b"f", b"g", b"h")] == [b"f\nmore!", b"", b"h"]
    assert {oct(0o100644)} == {branch[b"/" + name].mode for name in (b"f", b"g", b"h")}
    assert workspace.opened.overlay.fsck() == []
    layer = next(Path(workspace.base / "runs").glob("layer-*/f"))
    assert (stat.S_IMODE(layer.stat().st_mode), layer.read_bytes()) == (0o444, b"f\n")


def _another_state_below_what_may_not_be_changed(workspace: OfUser) -> None:
    branches = workspace.opened.overlay.branches
    workspace.do("mkdir -p n/o m; echo x > n/o/f; echo x > n/o/g; chmod 555 n/o; chmod 500 n; chmod 0 m")
    workspace.look()
    branches.create("other", "b")
    workspace.do("chmod 700 n n/o m; rm n/o/f; echo y > n/o/g; echo n > n/o/h; echo n > m/f; chmod 0 n/o m; chmod 555 n .")
    workspace.look()
    branches.restore("b", "other")
    root = os.open(workspace.upper, os.O_RDONLY)
    workspace.live.push(root)
    os.close(root)
    modes = {name: stat.S_IMODE((workspace.upper / name).stat().st_mode) for name in ("n", "n/o", "m", ".")}
    assert modes == {"n": 0o500, "n/o": 0o555, "m": 0, ".": 0o755}
    assert [(workspace.upper / "n/o" / name).read_bytes() for name in ("f", "g")] == [b"x\n", b"x\n"]
    assert not (workspace.upper / "n/o/h").exists()
    workspace.look()
    assert set(workspace.in_branch()) >= {b"/n/o/f", b"/n/o/g", b"/m"}
    assert not set(workspace.in_branch()) & {b"/n/o/h", b"/m/f"}


@pytest.mark.parametrize("is_changed", [False, True])
def test_a_mode_that_somebody_else_sets_meanwhile_stays(tmp_path: Path, is_changed: bool) -> None:
    place, told = tmp_path / "n", list[os.stat_result]()
    place.mkdir(0o200)
    directory = os.open(tmp_path, os.O_RDONLY)
    with UnlockedDirectories() as unlocked:
        unlocked.unlock(directory, b"n", place.stat(), told.append)
        assert stat.S_IMODE(place.stat().st_mode) == 0o700
        if is_changed:
            place.chmod(0o711)
    os.close(directory)
    assert stat.S_IMODE(place.stat().st_mode) == (0o711 if is_changed else 0o200)
    assert told == ([] if is_changed else [place.stat()])


def test_another_state_shows_below_directories_that_may_not_be_changed(base: Path) -> None:
    as_user(base, _another_state_below_what_may_not_be_changed)


@pytest.mark.parametrize("do", [_written_again, _not_touched_in_vain, _unreadable, _made_unreadable_after_a_look, _written_layer])
def test_what_an_ordinary_users_run_makes_unreadable_comes_into_the_branch(base: Path, do: Callable[[OfUser], None]) -> None:
    as_user(base, do)
