"""A directory for each way of keeping its snapshots, on the file system that the way needs."""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from agentfs_files.filesystem.records import SnapshotStrategy
from tests.client.snapshot_trees import KINDS, Workspace, unmount_all
from tests.mounted import needs_root

MAKE = {"btrfs": ["mkfs.btrfs", "-q", "-M"], "xfs": ["mkfs.xfs", "-q"]}
SIZE = {"btrfs": 64 << 20, "xfs": 320 << 20}
CLONE_NEWNS = 0x20000


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Path]]:
    """File systems in images, made when they are first asked for."""
    made: dict[str, Path] = {}

    def disk(kind: str) -> Path:
        needs_root()
        if shutil.which(MAKE[kind][0]) is None:
            pytest.skip(f"{MAKE[kind][0]} is not installed: scripts/install --tests")
        if kind not in made:
            base = tmp_path_factory.mktemp(kind)
            with (base / "image").open("wb") as file:
                file.truncate(SIZE[kind])
            subprocess.run([*MAKE[kind], base / "image"], check=True, stdout=subprocess.DEVNULL)
            (base / "disk").mkdir()
            subprocess.run(["mount", "-o", "loop", base / "image", base / "disk"], check=True)
            made[kind] = base / "disk"
        return made[kind]

    yield disk
    for where in made.values():
        subprocess.run(["umount", "-l", where], check=True)


@pytest.fixture(params=KINDS)
def workspace(request: pytest.FixtureRequest, tmp_path: Path, disks: Callable[[str], Path]) -> Iterator[Workspace]:
    kind, _, disk = request.param.partition("-")
    if kind == "overlay":
        request.getfixturevalue("own_mounts")
    base = disks(disk) / str(uuid4()) if disk else tmp_path
    (base / "root").mkdir(parents=True)
    yield Workspace(base / "root", SnapshotStrategy(kind), base / "storage")
    unmount_all(base)


@pytest.fixture
def own_mounts() -> Iterator[None]:
    """A mount namespace for this thread: what somebody else begins meanwhile has none of our mounts, which would be refused."""
    needs_root()
    libc = ctypes.CDLL(None, use_errno=True)
    home, place = os.open("/proc/thread-self/ns/mnt", os.O_RDONLY), os.open(".", os.O_PATH)
    try:
        if libc.unshare(CLONE_NEWNS) != 0:
            pytest.skip(f"no mount namespace of our own here: {os.strerror(ctypes.get_errno())}")
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)
        yield
        assert libc.setns(home, CLONE_NEWNS) == 0
        os.fchdir(place)
    finally:
        os.close(home)
        os.close(place)
