"""Mounts of single branches, which processes of their own hold for the daemon: its side of fuse/mount_holder.py."""

import contextlib
import errno
import os
import socket
import subprocess
import sys
import threading
from typing import Any

import trio

from agentfsd.fuse.mount_holder import COPY, LOCK, MAX_MESSAGE_BYTES, MOUNT, NEW, encode, receive, send

_ANSWER_S = 10
_askers = trio.CapacityLimiter(64)  # of their own: what waits for a holder takes no thread from others


class _Conversation:
    """With a process that holds mounts: one question after the other. ``has_ended``: it has gone, or close() was called."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._turn, self._busy = trio.Lock(), threading.Lock()
        self._number = 0
        self.has_ended = False

    async def ask(self, message: dict[str, Any], timeout_s: float | None = _ANSWER_S) -> tuple[dict[str, Any], list[int]]:
        """The answer, and the descriptors that came along. In a thread: the process may have been stopped. OSError."""
        async with self._turn:
            return await trio.to_thread.run_sync(self._exchange, message, timeout_s, abandon_on_cancel=True, limiter=_askers)

    def _exchange(self, message: dict[str, Any], timeout_s: float | None) -> tuple[dict[str, Any], list[int]]:
        with self._busy:
            self._number += 1
            body = encode({**message, "number": self._number})
            if len(body) > MAX_MESSAGE_BYTES:
                raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
            self._connection.settimeout(timeout_s)
            send(self._connection, body)
            while True:
                reply, descriptors = receive(self._connection)
                if reply is not None and reply["number"] == self._number and not reply.get("errno"):
                    return reply, descriptors
                for fd in descriptors:
                    os.close(fd)
                if reply is None:
                    self.has_ended = True
                    raise OSError(errno.EPIPE, "the process that holds the mounts of branches has ended")
                if reply["number"] == self._number:  # else it is the answer to a question that was given up
                    raise OSError(reply["errno"], reply["why"])

    def close(self) -> None:
        self.has_ended = True
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)  # whoever waits for an answer is told
        self._connection.close()


class BranchMount:
    """One FUSE mount in a namespace of its own. ``user_namespace``: a descriptor of it, None where that is the daemon's."""

    def __init__(self, holder: _Conversation, device: int, user_namespace: int | None) -> None:
        self._holder = holder
        self.device, self.user_namespace = device, user_namespace

    @property
    def is_lost(self) -> bool:
        """Whether nobody holds it any more; copies of it may be in use."""
        return self._holder.has_ended

    async def copy(self) -> int:
        """One more mount of it, for another namespace: a descriptor. OSError."""
        _, descriptors = await self._holder.ask({"op": COPY})
        return descriptors[0]

    async def lock(self, message: dict[str, Any]) -> dict[str, Any]:
        """See HolderLocks.answer. However long it takes: who gave up would not know whether the lock is held. OSError."""
        reply, _ = await self._holder.ask({"op": LOCK, **message}, None)
        return reply

    def close(self) -> None:
        """The holder ends, and its mount with it; copies of it stay."""
        self._holder.close()
        if self.user_namespace is not None:
            os.close(self.user_namespace)
            self.user_namespace = None


class BranchMounts:
    """``place``: a directory, over which each holder mounts in its own namespace."""

    def __init__(self, place: str) -> None:
        self._place = os.path.realpath(place)
        self._server: _Conversation | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._starting = trio.Lock()

    async def start(self) -> None:
        """Call some time before the first mount(): an interpreter takes its time to start. OSError."""
        async with self._starting:
            if self._process is not None and (self._process.poll() is not None or self._server is None):
                self.close()
            if self._server is None:
                ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                with theirs:
                    self._process = await trio.to_thread.run_sync(_spawn, theirs)
                self._server = _Conversation(ours)

    async def mount(self, options: frozenset[str]) -> tuple[BranchMount, int]:
        """A mount that nobody serves yet, and its connection's descriptor. OSError when the kernel or the machine refuses.

        *options*: those of mount(8) that it shall have, of which only restrictions are heeded.
        """
        await self.start()
        assert self._server is not None
        _, (number,) = await self._server.ask({"op": NEW})
        holder = _Conversation(socket.socket(fileno=number))
        try:
            reply, descriptors = await holder.ask({"op": MOUNT, "place": self._place, "options": sorted(options)})
        except BaseException:
            holder.close()
            raise
        connection, *namespace = descriptors
        return BranchMount(holder, reply["device"], namespace[0] if namespace else None), connection

    def close(self) -> None:
        """The process ends with its socket; one that was stopped is killed."""
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._process is not None:
            try:
                self._process.wait(_ANSWER_S / 10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None


def _spawn(theirs: socket.socket) -> subprocess.Popen[bytes]:
    number = theirs.fileno()
    command = [sys.executable, "-m", "agentfsd.fuse.mount_holder", str(number)]
    path = os.pathsep.join(path for path in sys.path if path)
    return subprocess.Popen(
        command, pass_fds=[number], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": path}
    )
