"""An open() for programs that read and write much in a workspace. It opens the file as usual and returns a faster descriptor if
possible.

It must never open another file than the builtin open() would, and never fail if that succeeds.
"""

import builtins
import errno
import io
import os
import stat
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import IO, Any

from agentfs_client import locate, wire
from agentfs_client.control import ControlClient
from agentfs_client.forwarded_descriptors import Doorway
from agentfs_host.mount_table import FSTYPE, mount_table

_LOOK_AGAIN_S = 1.0


def open(
    file: str | bytes | os.PathLike[str] | os.PathLike[bytes] | int,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Callable[[Any, int], int] | None = None,
) -> IO[Any]:
    """Open a file like the builtin open(), with a real descriptor if agentfsd forwards it (`agentfsd interpose set enabled=on`).

    Reads and writes then go to the backing file system and bypass the daemon. Otherwise, and for small files that are only read,
    this is the builtin open(). os.fstat() and locks on a real descriptor concern the content object and not the file on the
    mount; use the builtin open() for those.
    """

    def open_better(path: Any, flags: int) -> int:
        fd = os.open(path, flags, 0o666) if opener is None else opener(path, flags)
        return _better(fd, flags)

    coding = encoding if "b" in mode else io.text_encoding(encoding)
    return builtins.open(file, mode, buffering, coding, errors, newline, closefd, open_better)


def _better(fd: int, flags: int) -> int:
    """Return a real descriptor of the same file and close *fd*; else return *fd*."""
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        return fd
    way = _way(status.st_dev)
    if way.doorway is None or (flags & os.O_ACCMODE == os.O_RDONLY and status.st_size < way.min_read_bytes):
        return fd
    try:
        better = way.doorway.forward(fd)
    except OSError as exc:
        if exc.errno == errno.EPERM:  # this program gets no descriptors
            with _finding:
                _ways[status.st_dev] = replace(way, doorway=None)  # until the state is checked again
        return fd
    os.close(fd)
    return better


@dataclass(frozen=True, slots=True)
class _Way:
    """The recent connection to the daemon of a device. ``doorway`` is None if there is none, or if it gives out no
    descriptors.
    """

    doorway: Doorway | None
    min_read_bytes: int
    until_s: float


_ways: dict[int, _Way] = {}  # st_dev -> connection
_finding = threading.Lock()


def _way(device: int) -> _Way:
    with _finding:
        known = _ways.get(device)
        if known is None or known.until_s < time.monotonic():
            known = _ways[device] = _find(device, None if known is None else known.doorway)
        return known


def _find(device: int, doorway: Doorway | None) -> _Way:
    """Look up the connection for a device. *doorway* is the previous one, which is reused if possible."""
    min_read_bytes = 0
    try:
        way = _interpose(device)
        if way is None or not way.possible or way.settings["enabled"] != "on":
            doorway = None
        else:
            min_read_bytes = int(way.settings["min_read_bytes"])
            if doorway is None or doorway.has_ended():
                doorway = Doorway(way.socket)
    except (OSError, KeyError, ValueError):  # ignore every failure: the file is already open
        doorway = None
    return _Way(doorway, min_read_bytes, time.monotonic() + _LOOK_AGAIN_S)


def _interpose(device: int) -> wire.InterposeReply | None:
    """Ask the daemon of a device for its settings. Return None if there is no such mount or no way to ask."""
    for mounted in mount_table():
        if mounted.device == device and mounted.fstype == FSTYPE:
            socket = locate.at(mounted).socket
            if socket is not None:
                with ControlClient.connect(socket) as client:
                    return client.interpose()
    return None


def _forget() -> None:
    """Drop all connections in a forked child. They belong to its parent, and another thread may have held the lock at
    the fork.
    """
    global _finding
    _ways.clear()
    _finding = threading.Lock()


os.register_at_fork(after_in_child=_forget)
