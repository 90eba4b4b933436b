"""What is mounted where, and who uses a directory: read from /proc, see proc(5)."""

import os
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class Mount:
    """*device* as major:minor. *inside*: the path within its file system of what is mounted at *path*."""

    device: bytes
    inside: bytes
    path: bytes
    kind: bytes
    source: bytes


def read_mounts(process: str = "self") -> list[Mount]:
    """Of a process's mount namespace, in order; of two at one path the last counts."""
    found = []
    with open(f"/proc/{process}/mountinfo", "rb") as lines:
        for line in lines:
            first, _, second = line.rstrip(b"\n").partition(b" - ")
            fields, others = first.split(b" "), second.split(b" ")
            found.append(Mount(fields[2], _unescape(fields[3]), _unescape(fields[4]), others[0], _unescape(others[1])))
    return found


def mounts_beneath(root_fd: int) -> set[bytes]:
    """Paths beneath a directory at which something is mounted in this process's view."""
    root = os.readlink(b"/proc/self/fd/%d" % root_fd).rstrip(b"/") + b"/"
    return {mount.path.removeprefix(root) for mount in read_mounts() if mount.path.startswith(root) and mount.path != root}


def mount_of(path: bytes) -> Mount:
    """What a path lies in."""
    mounts = [mount for mount in read_mounts() if (path + b"/").startswith(mount.path.rstrip(b"/") + b"/")]
    longest = max(len(mount.path) for mount in mounts)
    return [mount for mount in mounts if len(mount.path) == longest][-1]


def everybodys_mounts() -> Iterator[Mount]:
    """Of every mount namespace with a process in it that we may look at."""
    seen = set()
    for process in _processes():
        try:
            namespace = os.stat(f"/proc/{process}/ns/mnt").st_ino
            if namespace in seen:
                continue
            mounts = read_mounts(process)
        except OSError:  # it has ended, or is not ours to look at
            continue
        seen.add(namespace)
        yield from mounts


def user_of(directory: bytes) -> str | None:
    """A process that stands in a directory or has something open there, and what; None when there is none to be found."""
    for process in _processes():
        for link in _links(process):
            try:
                path = os.readlink(os.fsencode(link))
            except OSError:
                continue
            if path == directory or path.startswith(directory + b"/"):
                return f"process {process} ({link.rpartition(f'/proc/{process}/')[2]}: {os.fsdecode(path)})"
        if mapped := _mapped(process, directory):
            return f"process {process} (mapped: {os.fsdecode(mapped)})"
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


def _mapped(process: str, directory: bytes) -> bytes | None:
    """A file that is written through memory."""
    try:
        with open(f"/proc/{process}/maps", "rb") as lines:
            for line in lines:
                fields = line.rstrip(b"\n").split(None, 5)
                if (
                    len(fields) == 6
                    and fields[1][1:2] == b"w"
                    and fields[1][3:4] == b"s"
                    and fields[5].startswith(directory + b"/")
                ):
                    return fields[5]
    except OSError:
        pass
    return None


def _unescape(field: bytes) -> bytes:
    if b"\\" not in field:
        return field
    parts = field.split(b"\\")
    return parts[0] + b"".join(bytes([int(part[:3], 8)]) + part[3:] for part in parts[1:])
