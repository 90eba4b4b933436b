"""Receives an event for each fork and exit on the machine, in order, before the new process runs. Knows no branch.

When a process forks twice (a daemon), the parent of the grandchild may end before the grandchild's first request to us. /proc
then shows no ancestry. The kernel's process events connector does. Root may listen, and since Linux 6.6 every user in the initial
namespaces. Source: linux/cn_proc.h, linux/connector.h.
"""

import contextlib
import errno
import os
import socket
import struct
from typing import NamedTuple

_NETLINK_CONNECTOR = 11
_CN_IDX_PROC = _CN_VAL_PROC = 1
_LISTEN = 1
_FORK, _EXIT, _ACK = 0x1, 0x80000000, 0x0
_NLMSG_DONE = 3

_NLMSG = struct.Struct("=IHHII")
_CN_MSG = struct.Struct("=IIIIHH")
_EVENT = struct.Struct("=IIQ4i")  # what, cpu, timestamp; of a fork: parent's thread, process; child's thread, process
_EVENT_HEAD = struct.Struct("=IIQ")
_EVENT_AT = _NLMSG.size + _CN_MSG.size
_BUFFER_BYTES = 4 << 20
_SO_RCVBUFFORCE = 33


class Fork(NamedTuple):
    """A process was started by ``parent`` at ``at_ns`` (CLOCK_MONOTONIC), or its first thread has ended (``parent`` 0).

    With ``parent`` equal to ``pid`` the process has started a thread: it may then outlive its first thread.
    """

    parent: int
    pid: int
    at_ns: int = 0


class ForkWatch:
    """Listens to process events. ``fd`` is readable when there are any, and -1 while we do not listen.

    Attributes:
        listening: Whether the kernel tells us of events.
        lost: Whether the kernel dropped events, because nobody took them in time. The caller resets it.
    """

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self.listening = self.lost = False

    def listen(self) -> bool:
        """Begin to listen; return False if the kernel does not permit it."""
        if self.listening:
            return True
        try:
            self._socket = self._connect()
        except OSError:
            return False
        self.listening = self._subscribe((_FORK | _EXIT,)) or self._subscribe(())
        if not self.listening:
            self.close()
        return self.listening

    @property
    def fd(self) -> int:
        return self._socket.fileno() if self._socket is not None else -1

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket, self.listening = None, False

    def news(self) -> list[Fork]:
        """Return the events since the last call, in order."""
        events: list[Fork] = []
        while self._socket is not None:
            try:
                message = self._socket.recv(4096)
            except BlockingIOError:
                break
            except OSError as exc:
                if exc.errno != errno.ENOBUFS:
                    raise
                self.lost = True
                continue
            event = _decode(message)
            if event is not None:
                events.append(event)
        return events

    @staticmethod
    def _connect() -> socket.socket:
        netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK, _NETLINK_CONNECTOR)
        try:
            netlink.bind((0, _CN_IDX_PROC))
        except BaseException:
            netlink.close()
            raise
        netlink.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        with contextlib.suppress(PermissionError):
            netlink.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
        return netlink

    def _subscribe(self, wanted: tuple[int, ...]) -> bool:
        """Subscribe to a mask of events (Linux 6.6), or to all if *wanted* is empty; return whether the kernel accepts."""
        assert self._socket is not None
        body = struct.pack(f"={1 + len(wanted)}I", _LISTEN, *wanted)
        message = _CN_MSG.pack(_CN_IDX_PROC, _CN_VAL_PROC, 0, 0, len(body), 0) + body
        try:
            self._socket.send(_NLMSG.pack(_NLMSG.size + len(message), _NLMSG_DONE, 0, 0, os.getpid()) + message)
            while True:  # events may come before the answer, if others listen already
                answer = self._socket.recv(4096)
                if len(answer) >= _EVENT_AT + 20 and _EVENT_HEAD.unpack_from(answer, _EVENT_AT)[0] == _ACK:
                    return True
        except OSError:
            return False


def _decode(message: bytes) -> Fork | None:
    if len(message) < _EVENT_AT + _EVENT.size:
        return None
    kind, _, at_ns, first, second, third, fourth = _EVENT.unpack_from(message, _EVENT_AT)
    if kind == _FORK:
        return Fork(second if third == fourth else fourth, fourth, at_ns)
    if kind == _EXIT and first == second:
        return Fork(0, second)
    return None
