"""Mounts of single branches, which processes of their own hold for the daemon: its side of fuse/mount_holder.py."""

import errno
import os
import socket
import subprocess
import sys
from typing import Any

import trio

from agentfsd.fuse.mount_holder import COPY, LOCK, MOUNT, NEW, receive, send

_ANSWER_S = 10


class BranchMount:
    """One FUSE mount in a namespace of its own. ``user_namespace``: a descriptor of it, None where that is the daemon's."""

    def __init__(self, holder: socket.socket, device: int, user_namespace: int | None) -> None:
        self._holder, self._turn = holder, trio.Lock()
        self.device, self.user_namespace = device, user_namespace

    async def copy(self) -> int:
        """One more mount of it, for another namespace: a descriptor. OSError."""
        async with self._turn:
            _, descriptors = await _ask(self._holder, {"op": COPY})
        return descriptors[0]

    async def lock(self, message: dict[str, Any]) -> dict[str, Any]:
        """See HeldLocks.answer. OSError."""
        async with self._turn:
            reply, _ = await _ask(self._holder, {"op": LOCK, **message})
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
        self._server: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """Call some time before the first mount(): an interpreter takes its time to start. OSError."""
        if self._process is not None and self._process.poll() is not None:
            self.close()
        if self._server is None:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                self._process = await trio.to_thread.run_sync(_spawn, theirs)
            self._server = ours

    async def mount(self, options: frozenset[str]) -> tuple[BranchMount, int]:
        """A mount that nobody serves yet, and its connection's descriptor. OSError when the kernel or the machine refuses.

        *options*: those of mount(8) that it shall have, of which only restrictions are heeded.
        """
        await self.start()
        assert self._server is not None
        _, (number,) = await _ask(self._server, {"op": NEW})
        holder = socket.socket(fileno=number)
        try:
            reply, descriptors = await _ask(holder, {"op": MOUNT, "place": self._place, "options": sorted(options)})
        except BaseException:
            holder.close()
            raise
        connection, *namespace = descriptors
        return BranchMount(holder, reply["device"], namespace[0] if namespace else None), connection

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._process is not None:
            self._process.wait(_ANSWER_S)  # it ends with its socket
            self._process = None


def _spawn(theirs: socket.socket) -> subprocess.Popen[bytes]:
    number = theirs.fileno()
    command = [sys.executable, "-m", "agentfsd.fuse.mount_holder", str(number)]
    path = os.pathsep.join(path for path in sys.path if path)
    return subprocess.Popen(
        command, pass_fds=[number], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": path}
    )


async def _ask(connection: socket.socket, message: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
    """In a thread: whoever holds it may have been stopped, and the mount goes on meanwhile."""
    return await trio.to_thread.run_sync(_exchange, connection, message)


def _exchange(connection: socket.socket, message: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
    connection.settimeout(_ANSWER_S)
    try:
        send(connection, message)
        reply, descriptors = receive(connection)
    except TimeoutError:
        connection.close()  # or a later request would be given this one's answer
        raise
    if reply is None:
        raise OSError(errno.EPIPE, "the process that holds the mounts of branches has ended")
    if reply.get("errno"):
        raise OSError(reply["errno"], reply["why"])
    return reply, descriptors
