"""Places of this machine to try a HostFilesystem on: somebody else's, full, with few descriptors left, deep."""

import gc
import os
import resource
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentfs_files.backends.base_filesystem import BaseFilesystem
from tests.mounted import needs_root

NOBODY = 65534
MANY_NAMES = [f"{number:05}.{'py' if number % 2 else 'txt'}" for number in range(10_000)]


@contextmanager
def as_nobody() -> Iterator[None]:
    """Only what the effective ids decide: descriptors that are open stay."""
    needs_root()
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


@contextmanager
def small_disk(path: Path, size: str) -> Iterator[Path]:
    needs_root()
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(path)], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


@contextmanager
def free_descriptors(count: int) -> Iterator[None]:
    """No more than *count* can be opened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    spare = [os.open("/", os.O_PATH) for _ in range(count + 1)]
    for fd in spare:
        os.close(fd)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(spare[:count], default=min(spare) - 1) + 1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def open_descriptors() -> int:
    gc.collect()  # or a test that ended with a cycle of objects closes its descriptors in the middle of this one
    return len(os.listdir("/proc/self/fd"))


def make_deep(root: Path, name: str, depth: int) -> None:
    """Directories in one another, with a file ``leaf`` in the last one."""
    fd = os.open(root, os.O_PATH)
    for _ in range(depth):
        os.mkdir(name, dir_fd=fd)
        below = os.open(name, os.O_PATH, dir_fd=fd)
        os.close(fd)
        fd = below
    leaf = os.open("leaf", os.O_CREAT | os.O_WRONLY, dir_fd=fd)
    os.write(leaf, b"needle\n")
    os.close(leaf)
    os.close(fd)


def check_large_directory(fs: BaseFilesystem) -> None:
    """Of files with MANY_NAMES."""
    start = time.monotonic()
    assert [entry.name for entry in fs.list()] == MANY_NAMES
    assert len(fs.glob("*.py")) == 5000
    fs.delete(".", recursive=True)
    assert time.monotonic() - start < 3
    assert len(fs.list()) == 0
