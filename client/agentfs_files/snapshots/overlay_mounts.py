"""Find who uses a directory and what is mounted in it, in every mount namespace, from /proc; see proc(5)."""

import os
from collections.abc import Iterator

from agentfs_host.mount_table import Mounted, is_within, mount_table


def everybodys_mounts() -> Iterator[tuple[str, Mounted]]:
    """Yield the mounts of every mount namespace that this process may inspect, each with the pid of a process in it."""
    seen = set()
    for process in _processes():
        try:
            namespace = os.stat(f"/proc/{process}/ns/mnt").st_ino
            if namespace in seen:
                continue
            mounts = mount_table(process)
        except OSError:  # the process has ended, or may not be inspected
            continue
        seen.add(namespace)
        for mount in mounts:
            yield process, mount


def user_of(directory: str) -> str | None:
    """Describe a process whose current directory or open file is in the directory; None if none is found."""
    for process in _processes():
        for link in _links(process):
            try:
                path = os.readlink(link)
            except OSError:
                continue
            if is_within(path, directory):
                return f"process {process} ({link.rpartition(f'/proc/{process}/')[2]}: {path})"
        if mapped := _mapped(process, directory):
            return f"process {process} (mapped: {mapped})"
    return None


def _processes() -> list[str]:
    return [name for name in os.listdir("/proc") if name.isdigit()]


def _links(process: str) -> Iterator[str]:
    yield f"/proc/{process}/cwd"
    yield f"/proc/{process}/root"
    try:
        names = os.listdir(f"/proc/{process}/fd")
    except OSError:
        return
    for name in names:
        yield f"/proc/{process}/fd/{name}"


def _mapped(process: str, directory: str) -> str | None:
    """Return a file in the directory that the process has mapped for writing."""
    try:
        with open(f"/proc/{process}/maps", "rb") as lines:
            for line in lines:
                fields = os.fsdecode(line.rstrip(b"\n")).split(None, 5)
                if len(fields) == 6 and fields[1][1:2] == "w" and fields[1][3:4] == "s" and is_within(fields[5], directory):
                    return fields[5]
    except OSError:
        pass
    return None
