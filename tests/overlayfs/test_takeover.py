"""What commands do in a kernel overlay, taken over into a branch, is what they do in a plain copy."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentfs_host.descent import Descent
from agentfsd.overlayfs.layer_writer import LayerWriter
from agentfsd.overlayfs.takeover import Takeover
from agentfsd.overlayfs.upper_state import UpperState
from tests.overlayfs.listings import of_directory, of_tree, without_links, without_times
from tests.overlays import Opened

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount an overlay")

BASE = """
mkdir -p a/b/c d/e empty gone/x
for n in 1 2 3; do echo $n > a/f$n; echo $n > a/b/g$n; echo $n > a/b/c/h$n; echo $n > d/e/i$n; echo $n > gone/x/j$n; done
echo top > top; ln -s top link; chmod 755 a/f1; ln a/f2 a/twin
setfattr -n user.note -v one a/f3 2>/dev/null || true
"""

COMMANDS = {
    "nothing": "true",
    "edit in place": "echo more >> a/f1; echo other > d/e/i1",
    "new files and directories": "mkdir -p n/o/p; for n in 1 2 3; do echo $n > n/o/p/q$n; done; echo x > a/new; mkdir a/b/r",
    "remove": "rm a/f1 a/b/g1; rm -r gone; rmdir empty",
    "replace a file": "echo new > tmp; mv tmp a/f1; echo new > a/tmp2; mv a/tmp2 top",
    "replace a directory": "rm -r a/b; mkdir a/b; echo only > a/b/only",
    "replace a directory by a file and back": "rm -r gone; echo f > gone; rm top; mkdir top; echo in > top/in",
    "rename a directory": "mv a z; echo in > z/b/new; echo more >> z/f1",
    "rename a directory below another": "mv a/b d/moved; mv d/e e2; mv gone/x a/x",
    "exchange directories": "mv a t; mv d a; mv t d",
    "rename out of a directory and remove it": "mv a/b kept; rm -r a; mkdir a; echo x > a/x",
    "rename within the new": "mkdir n; echo 1 > n/1; mv n m; mv m/1 m/2; mkdir m/s; mv m/s s",
    "links": "echo 1 > one; ln one two; mkdir k; ln one k/three; rm one; ln -s nowhere broken; ln -sfn a link",
    "modes and times": (
        "chmod 600 a/f1; chmod 700 a/b; touch -d 2001-02-03T04:05:06.789 a/f3 d; chown 12:34 a/f3; touch -h -d 2001-01-01 link"
    ),
    "rename a directory and one above it": "mv a/b d/moved; mv a z; mv z/f1 d/moved/f; mv d a",
    "odd kinds": "mkfifo pipe; mknod dev c 1 3; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'",
    "extended attributes": "setfattr -n user.mine -v two a/f1 d; setfattr -x user.note a/f3",
    "access lists": "setfacl -m u:5:rw a/f1; setfacl -d -m u:6:rwx d; echo new > d/inherits",
    "holes": "truncate -s 1M hole; echo end >> hole; truncate -s 5 a/f1",
    "odd names": "printf x > \"$(printf 'a\\\\nb\\377c')\"; mkdir -p ' '; echo x > ' /-'",
    "a link broken by a write": "echo changed >> a/f2",
}


class Room:
    """A lower, a branch, a kernel overlay of both, and a plain copy."""

    def __init__(self, base: Path) -> None:
        self.base = base
        (base / "lower").mkdir()
        shell(BASE, base / "lower")
        subprocess.run(["cp", "-a", base / "lower", base / "plain"], check=True)
        self.opened = Opened(base)
        self.opened.overlay.branches.create("b")
        self.runs = 0
        self.mounted = ""

    def begin(self) -> None:
        """Mount an overlay over the branch as it is."""
        self.runs += 1
        place = self.base / f"run{self.runs}"
        for name in ("layer", "upper", "work", "merged"):
            (place / name).mkdir(parents=True)
        overlay = self.opened.overlay
        self.layer = overlay.trees.pinned(self.seal(), read_only=True)
        self.beneath = self.layer.__enter__()
        objects = os.open(self.base / "objects", os.O_RDONLY)
        LayerWriter(self.beneath, objects).write(str(place / "layer"))
        os.close(objects)
        self.since_ns = time.clock_gettime_ns(5)
        self.mounted, self.upper = str(place / "merged"), os.open(place / "upper", os.O_RDONLY)
        shutil.copystat(place / "layer", place / "upper")
        options = f"lowerdir={place}/layer:{self.base}/lower,upperdir={place}/upper,workdir={place}/work,redirect_dir=on"
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, self.mounted], check=True)
        self.state = UpperState()

    def seal(self) -> int:
        overlay = self.opened.overlay
        with self.opened.store.transaction() as tx:
            return overlay.layers.seal(tx, overlay.refs.branch("b"))

    def take_over(self) -> bool:
        takeover = Takeover(self.opened.tree("b"), self.beneath, Descent(self.upper), self.state, self.since_ns, Quiet())
        return takeover.apply(takeover.look())

    def end(self) -> None:
        if self.mounted:
            subprocess.run(["umount", self.mounted], check=True)
            self.layer.__exit__(None, None, None)
            os.close(self.upper)
            self.mounted = ""

    def run(self, script: str) -> None:
        shell(script, Path(self.mounted))
        shell(script, self.base / "plain")

    def close(self) -> None:
        self.end()
        self.opened.close()


class Quiet:
    is_heard = False

    def tell(self, *args: object) -> None: ...
    def tell_write(self, *args: object) -> None: ...
    def names_changed(self, *args: object) -> None: ...
    def file_changed(self, *args: object, data: bool) -> None: ...


def shell(script: str, place: Path) -> None:
    subprocess.run(["sh", "-ec", script], cwd=place, check=True)


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    room = Room(tmp_path)
    try:
        yield room
    finally:
        room.close()


def check(room: Room) -> None:
    merged = of_directory(os.fsencode(room.mounted), times=False)
    taken = of_tree(room.opened.tree("b"), times=False)
    assert without_links(taken) == without_links(merged)
    assert room.opened.overlay.fsck() == []


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_leave_in_the_branch_what_they_leave_in_a_plain_copy(room: Room, name: str) -> None:
    room.begin()
    room.run(COMMANDS[name])
    room.take_over()
    plain = of_directory(os.fsencode(room.base / "plain"), times=False)
    assert without_times(of_tree(room.opened.tree("b"), times=False)) == without_times(plain) or "link" in name
    check(room)
    assert not room.take_over()


@pytest.mark.parametrize("first", COMMANDS)
def test_the_next_run_begins_where_the_last_one_ended(room: Room, first: str) -> None:
    room.begin()
    room.run(COMMANDS[first])
    room.take_over()
    room.end()
    room.begin()
    before = of_tree(room.opened.tree("b"), times=True)
    assert without_links(of_directory(os.fsencode(room.mounted), times=True)) == without_links(before)
    room.take_over()
    assert of_tree(room.opened.tree("b"), times=True) == before
    room.run("mkdir -p again; echo x > again/y; rm -rf a")
    room.take_over()
    check(room)
