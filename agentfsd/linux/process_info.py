"""What /proc says of processes: their command, their mappings, what they have mounted."""

import os
from collections.abc import Iterable

from agentfs_host.mount_table import mount_table


def mapped_for_writing(pids: Iterable[int], device: int) -> set[int]:
    """Return the inode numbers on *device* of which any of these processes has a shared, writable mapping."""
    shown = b"%02x:%02x" % (os.major(device), os.minor(device))
    numbers = set()
    for pid in pids:
        try:
            with open(f"/proc/{pid}/maps", "rb") as file:
                for line in file:
                    _, modes, _, at, ino, *_ = line.split(maxsplit=5)
                    if modes[1:2] == b"w" and modes[3:4] == b"s" and at == shown:
                        numbers.add(int(ino))
        except OSError:
            continue  # it has ended, or is none of ours
    return numbers


def device_at(pid: int, mountpoint: str) -> int:
    """Return the st_dev of the topmost mount at a path, as a process sees it; 0 when nothing is mounted there."""
    return next((mounted.device for mounted in reversed(mount_table(pid)) if mounted.mountpoint == mountpoint), 0)


def command_of(pid: int) -> str:
    """Return the name of a process's program; "" when the process has ended."""
    try:
        with open(f"/proc/{pid}/comm", "rb") as file:
            return file.read().decode(errors="replace").strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""
