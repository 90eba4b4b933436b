"""Power loss: the disk below the state directory is copied while the daemon works, and each copy is started again.

The state lies on a loop mount. A copy of its image holds what the file system had handed to the disk at that moment: not
what was still in its caches, nor in the daemon's. What was fsync'ed before the copy was begun must be in it.
"""

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mounted import Mounted, needs_root
from tests.rounds import rounds

ROUNDS = rounds("power cuts", 3, 10)
MAKE = {"ext4": ["mkfs.ext4", "-q"], "xfs": ["mkfs.xfs", "-q"], "btrfs": ["mkfs.btrfs", "-q"]}

# Makes files and changes those of the lower; says after each fsync which contents are safe. Some are never synced.
WORK = r"""
import json, os, random, sys
chance, safe, number = random.Random(int(sys.argv[1])), {}, 0
def sync(path, flags=os.O_RDONLY):
    fd = os.open(path, flags); os.fsync(fd); os.close(fd)
while True:
    number += 1
    kind, name = chance.randrange(6), f"f{chance.randrange(40)}"
    text = f"{number} " * chance.randrange(1, 4000)
    safe.pop(name, None)
    if kind == 0:
        with open(name, "w") as f: f.write(text)
        if chance.random() < 0.3: continue
        sync(name); safe[name] = text
    elif kind == 1:
        with open(name, "a") as f:
            f.write(text); f.flush(); os.fsync(f.fileno())
        safe[name] = open(name).read()
    elif kind == 2:
        with open("temporary", "w") as f:
            f.write(text); f.flush(); os.fsync(f.fileno())
        os.rename("temporary", name); sync(".", os.O_DIRECTORY); safe[name] = text
    elif kind == 3:
        if os.path.exists(name):
            os.unlink(name); sync(".", os.O_DIRECTORY)
        safe[name] = None
    elif kind == 4:
        other = f"f{chance.randrange(40)}"
        if other != name and os.path.exists(name):
            safe.pop(other, None)
            text = open(name).read()
            sync(name); os.rename(name, other); sync(".", os.O_DIRECTORY); safe[other] = text; safe[name] = None
    else:
        with open(name, "w") as f: f.write("never synced")
        continue
    print(json.dumps(safe), flush=True)
    sys.stdin.readline()
"""


class Disk:
    """A file system in an image, mounted by loop."""

    def __init__(self, image: Path, where: Path, kind: str) -> None:
        self.image, self.where, self.kind = image, where, kind
        where.mkdir(exist_ok=True)

    def mount(self) -> None:
        subprocess.run(["mount", "-o", "loop,nouuid" if self.kind == "xfs" else "loop", self.image, self.where], check=True)

    def unmount(self) -> None:
        subprocess.run(["umount", self.where], check=True)

    def copy(self, image: Path) -> None:
        subprocess.run(["cp", "--sparse=always", self.image, image], check=True)


@pytest.fixture(params=MAKE)
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Disk]:
    needs_root()
    command = MAKE[request.param]
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed: scripts/install --tests")
    made = Disk(tmp_path / "image", tmp_path / "disk", request.param)
    with made.image.open("wb") as file:
        file.truncate(320 << 20)
    subprocess.run([*command, made.image], check=True, stdout=subprocess.DEVNULL)
    made.mount()
    yield made
    subprocess.run(["umount", "-l", made.where], check=True)


def test_what_was_synced_survives_the_loss_of_power(tmp_path: Path, disk: Disk) -> None:
    mounted = Mounted(tmp_path)
    for number in range(0, 40, 3):
        (mounted.lower / f"f{number}").write_text("lower\n" * 100)
    mounted.state = disk.where / "state"
    mounted.mount()
    try:
        copies = cut_while_working(mounted, disk, tmp_path)
    finally:
        mounted.end()
    for number, safe in copies:
        check_copy(Disk(tmp_path / f"cut{number}", tmp_path / "after", disk.kind), mounted, safe)


def cut_while_working(mounted: Mounted, disk: Disk, base: Path) -> list[tuple[int, dict[str, str | None]]]:
    """Copies of the image at moments just after an fsync, with what must be in each."""
    copies: list[tuple[int, dict[str, str | None]]] = []
    chance = random.Random(7)
    worker = subprocess.Popen(
        [sys.executable, "-c", WORK, "1"], cwd=mounted.path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert worker.stdout is not None
    assert worker.stdin is not None
    with worker:
        for number in range(ROUNDS):
            for _ in range(chance.randrange(5, 40)):
                safe = json.loads(worker.stdout.readline())
                worker.stdin.write("go on\n")
                worker.stdin.flush()
            safe = json.loads(worker.stdout.readline())
            disk.copy(base / f"cut{number}")
            copies.append((number, safe))
            worker.stdin.write("go on\n")
            worker.stdin.flush()
        worker.kill()
    return copies


def check_copy(disk: Disk, mounted: Mounted, safe: dict[str, str | None]) -> None:
    disk.mount()
    again = Mounted(disk.where.parent, mounted.lower)
    again.state = disk.where / "state"
    try:
        again.mount()
        for name, text in safe.items():
            path = again.path / name
            if text is None:
                assert not path.exists(), name
            else:
                assert path.read_text() == text, name
        for path in again.path.iterdir():
            path.read_bytes()
        assert again.fsck() == []
        (again.path / "goes-on").write_text("working")
        assert again.fsck() == []
    finally:
        again.end()
        disk.unmount()
