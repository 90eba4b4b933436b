"""Where is measured: a directory on tmpfs or on the disk, and what holds for both (mounts, room, dropping caches)."""

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmark.worker import BenchError

_UMOUNT_TIMEOUT_S = 30.0
_DROP_CACHES = Path("/proc/sys/vm/drop_caches")


@dataclass(frozen=True, slots=True)
class Place:
    """A directory of our own on one file system. ``filesystem`` is its type."""

    name: str
    path: Path
    filesystem: str

    def scratch(self, label: str) -> Path:
        """A new empty directory, named after what it is for."""
        return Path(tempfile.mkdtemp(prefix=f"{label}-", dir=self.path))

    def free_bytes(self) -> int:
        info = os.statvfs(self.path)
        return info.f_bavail * info.f_frsize

    def sync(self) -> None:
        """What one target wrote must not be written to the disk at the cost of the next."""
        subprocess.run(["sync", "-f", str(self.path)], check=False)


@contextlib.contextmanager
def tmpfs() -> Iterator[Place]:
    """A tmpfs of our own where we may mount one; else a directory in /dev/shm."""
    if os.geteuid() != 0:
        with _directory("/dev/shm") as path:
            yield Place("tmpfs", path, filesystem_of(path))
        return
    size = int(available_memory_bytes() * 0.9)
    with _directory(None) as path:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},nr_inodes=0", "agentfsd-bench", str(path)], check=True)
        yield Place("tmpfs", path, "tmpfs")


@contextlib.contextmanager
def disk(parent: str) -> Iterator[Place]:
    """A directory beneath *parent*, which should be on a disk."""
    with _directory(parent) as path:
        yield Place("disk", path, filesystem_of(path))


@contextlib.contextmanager
def _directory(parent: str | None) -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="agentfsd-bench-", dir=parent)).resolve()
    try:
        yield path
    finally:
        unmount_beneath(path)
        unmount(path)
        shutil.rmtree(path, ignore_errors=True)


# -- mounts -----------------------------------------------------------------------------------------------------------


def mount_points() -> list[tuple[str, str]]:
    """(mount point, type) of every mount, in the order in which they were made."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        mount_point = fields.split()[4].encode().decode("unicode_escape")
        found.append((mount_point, rest.split()[0]))
    return found


def is_mounted(path: Path) -> bool:
    return any(mount_point == str(path) for mount_point, _ in mount_points())


def filesystem_of(path: Path) -> str:
    resolved = f"{path.resolve()}/"
    holding = [found for found in mount_points() if resolved.startswith(f"{found[0].rstrip('/')}/")]
    return max(reversed(holding), key=lambda found: len(found[0]))[1]


def unmount(path: Path) -> None:
    """Unmounts what is on *path*, if anything, and waits while it is busy; at last it takes it away from under its users."""
    deadline = time.monotonic() + _UMOUNT_TIMEOUT_S
    while is_mounted(path):
        lazy = ["-l" if os.geteuid() == 0 else "-z"] if time.monotonic() > deadline else []
        command = ["umount"] if os.geteuid() == 0 else ["fusermount3", "-u"]
        subprocess.run([*command, *lazy, str(path)], check=False, capture_output=True)
        time.sleep(0.02)
        if lazy:
            return


def unmount_beneath(path: Path) -> None:
    """A safety net: whatever a failed target left mounted goes, the newest first."""
    inside = [Path(mount_point) for mount_point, _ in mount_points() if mount_point.startswith(f"{path}/")]
    for mount_point in reversed(inside):
        lazy = ["umount", "-l"] if os.geteuid() == 0 else ["fusermount3", "-uz"]
        subprocess.run([*lazy, str(mount_point)], check=False, capture_output=True)


# -- caches and room --------------------------------------------------------------------------------------------------


def why_caches_stay() -> str:
    """Why the kernel's caches cannot be dropped; "" when they can."""
    return "" if os.access(_DROP_CACHES, os.W_OK) else "needs root, to drop the kernel's caches"


def drop_names() -> None:
    """The kernel forgets names and attributes (not the contents of files)."""
    try:
        _DROP_CACHES.write_text("2")
    except OSError as exc:
        raise BenchError(f"the caches cannot be dropped: {exc.strerror}") from exc


def available_memory_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def used_bytes(path: Path) -> int:
    """What a directory takes up on its file system, as du(1) has it; what is mounted beneath does not count."""
    done = subprocess.run(["du", "-sx", "-B1", str(path)], capture_output=True, text=True, check=False)
    return int(done.stdout.split()[0]) if done.stdout else 0
