"""File systems that can share blocks, on loop devices, for tests; and which files do."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.mounted import needs_root

REFLINKING = {"btrfs": ["mkfs.btrfs", "-q"], "xfs": ["mkfs.xfs", "-q"]}
_IMAGE_BYTES = 320 << 20  # the least that xfs takes


@contextmanager
def reflinking_disk(base: Path, kind: str) -> Iterator[Path]:
    """An empty one, mounted below *base*; skips where there can be none."""
    needs_root()
    if shutil.which(REFLINKING[kind][0]) is None:
        pytest.skip(f"{REFLINKING[kind][0]} is missing: apt-get install btrfs-progs xfsprogs")
    if not os.path.exists("/dev/loop-control"):
        pytest.skip("no loop devices here")
    image, where = base / f"{kind}.img", base / kind
    where.mkdir()
    with image.open("wb") as file:
        file.truncate(_IMAGE_BYTES)
    subprocess.run([*REFLINKING[kind], image], check=True)
    subprocess.run(["mount", "-o", "loop", image, where], check=True)
    try:
        yield where
    finally:
        subprocess.run(["umount", "--lazy", where], check=True)


def make_subvolume(path: Path) -> None:
    """Make one, on btrfs."""
    subprocess.run(["btrfs", "subvolume", "create", path], check=True, stdout=subprocess.DEVNULL)


def shares_blocks(path: Path) -> bool:
    """Whether any block of a file belongs to another file as well, as the file system tells (FIEMAP)."""
    if shutil.which("filefrag") is None:
        pytest.skip("filefrag is missing: apt-get install e2fsprogs")
    command = ["filefrag", "-s", "-v", path.name]  # the path above it may hold any word
    return "shared" in subprocess.run(command, cwd=path.parent, capture_output=True, text=True, check=True).stdout
