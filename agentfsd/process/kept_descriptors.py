"""Descriptors that outlive the daemon: another process holds them, and hands them to the next daemon.

With them the next daemon goes on with the connections to the kernel, so programs wait for a moment instead of getting ENOTCONN.
Under systemd the service manager holds them (its file descriptor store), else the process of fuse/keeper.py. This module does not
know what they are.
"""

import contextlib
import errno
import json
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

MAX_MESSAGE_BYTES = 1 << 16
MOST_DESCRIPTORS = 64  # in one message; the kernel takes 253


class Holder(Protocol):
    """The process that holds the descriptors."""

    def keep(self, name: str, fd: int) -> None:
        """Hold a copy of a descriptor under a name. OSError."""

    def drop(self, name: str) -> None:
        """Close the copy of that name. OSError."""


class KeptDescriptors:
    """The descriptors that the next daemon shall get.

    Args:
        former: Those that the daemon before has left, by name. What nobody takes is closed by close_former().

    Attributes:
        is_resumed: A daemon before has left some.
        is_told: The process that holds them did not fail to answer: call held_by() again if it did.
    """

    def __init__(self, former: dict[str, int] | None = None) -> None:
        self._former = former or {}
        self.is_resumed = bool(self._former)
        self.is_told = True
        self._kept: dict[str, int] = {}
        self._untold: set[str] = set()
        self._holder: Holder | None = None

    def all(self) -> dict[str, int]:
        """Return all of them by name; they stay as they are."""
        return dict(self._kept)

    def held_by(self, holder: Holder) -> None:
        """Have a process hold the descriptors from now on. OSError."""
        self._holder, self.is_told = None, False
        for name in self._untold:
            holder.drop(name)
        for name, fd in self._kept.items():
            holder.keep(name, fd)
        self._untold.clear()
        self._holder, self.is_told = holder, True

    def keep(self, name: str, fd: int) -> None:
        """Keep a descriptor, which stays the caller's. *name*: 255 characters at most, neither ":" nor control characters."""
        self._kept[name] = fd
        self._tell(lambda holder: holder.keep(name, fd))

    def drop(self, name: str) -> None:
        """Keep a descriptor no longer; nothing if it is not kept."""
        if self._kept.pop(name, None) is not None:
            self._tell(lambda holder: holder.drop(name))
            if not self.is_told:
                self._untold.add(name)

    def held_by_nobody(self) -> None:
        """Tell no process any more: it ends, too."""
        self._holder = None

    def end(self) -> None:
        """Keep none any longer: the daemon ends in order."""
        for name in list(self._kept):
            self.drop(name)

    def _tell(self, work: Callable[[Holder], None]) -> None:
        if self._holder is None:
            return
        try:
            work(self._holder)
        except OSError as exc:
            import logging  # only here: the process itself, which lives as long as a mount, logs nothing

            logging.getLogger(__name__).warning(
                "the process that keeps connections for the next daemon does not answer: %s", exc.strerror
            )
            self._holder, self.is_told = None, False

    def take(self, name: str) -> int | None:
        """Take a descriptor over from the daemon before, and keep it; None if there is none of that name."""
        fd = self._former.pop(name, None)
        if fd is not None:
            self._kept[name] = fd
        return fd

    def former_names(self, prefix: str) -> list[str]:
        """Return the names, of those that nobody has taken, that begin so."""
        return sorted(name for name in self._former if name.startswith(prefix))

    def close_former(self) -> None:
        """Close what nobody has taken."""
        while self._former:
            name, fd = self._former.popitem()
            os.close(fd)
            self._tell(lambda holder, name=name: holder.drop(name))  # type: ignore[misc]


# -- messages between the daemon and the process that holds descriptors: JSON and descriptors, over a SOCK_SEQPACKET socket


def send(connection: socket.socket, message: dict[str, object], descriptors: Sequence[int] = ()) -> None:
    """Send one message with descriptors. OSError."""
    socket.send_fds(connection, [json.dumps(message).encode()], list(descriptors))


def receive(connection: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """Receive one message and its descriptors, close-on-exec; the message is None once the other end has closed. OSError."""
    body, descriptors, _, _ = socket.recv_fds(connection, MAX_MESSAGE_BYTES, MOST_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
    return (json.loads(body) if body else None), descriptors


def hand_over(connection: socket.socket, kept: dict[str, int]) -> None:
    """Send all descriptors to the next daemon, which calls received(). OSError."""
    names = list(kept)
    for first in range(0, len(names), MOST_DESCRIPTORS):
        part = names[first : first + MOST_DESCRIPTORS]
        send(connection, {"names": part}, [kept[name] for name in part])
    send(connection, {"names": []})


def received(connection: socket.socket) -> dict[str, int]:
    """Return what hand_over() sends. OSError."""
    return dict(_parts(connection))


def _parts(connection: socket.socket) -> Iterator[tuple[str, int]]:
    while True:
        message, descriptors = receive(connection)
        if message is None:
            raise OSError(errno.ECONNRESET, "whoever hands over has ended")
        names = message["names"]
        if not isinstance(names, list) or not names:
            return
        yield from zip(names, descriptors, strict=True)


class KeeperLink:
    """The daemon's side of a keeper: see fuse/keeper.py. It is a Holder."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        connection.setblocking(True)
        connection.settimeout(1.0)

    def keep(self, name: str, fd: int) -> None:
        send(self.connection, {"do": "keep", "name": name}, [fd])

    def drop(self, name: str) -> None:
        send(self.connection, {"do": "drop", "name": name})

    def serving(self) -> None:
        """Report that this process serves, and is to be replaced if it ends. OSError."""
        send(self.connection, {"do": "serving", "pid": os.getpid()})

    def succeeded_by(self, pid: int) -> None:
        """Report that another process takes over from this one, and will serve. OSError."""
        send(self.connection, {"do": "succeeded", "pid": pid})

    def alive(self) -> None:
        """Report that this process answers. Once it has, the keeper replaces it if it stops to report. OSError."""
        send(self.connection, {"do": "alive"})

    def end(self) -> None:
        """Have the keeper end, and with it all copies of descriptors."""
        with contextlib.suppress(OSError):
            send(self.connection, {"do": "end"})
