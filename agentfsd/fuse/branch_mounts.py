"""The daemon's side of fuse/mount_holder.py: asks processes to make and hold the mounts of single branches."""

import contextlib
import errno
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

import trio

from agentfsd.fuse.mount_holder import COPY, HOME, LOCK, MAX_MESSAGE_BYTES, MOUNT, NEW, encode, receive, send

_ANSWER_S = 10
_askers = trio.CapacityLimiter(64)  # a limit of its own: waiting for a holder takes no thread from other work


class _Conversation:
    """The socket to a mount holder: one request at a time. ``has_ended``: the process has ended, or close() was called."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._turn, self._busy = trio.Lock(), threading.Lock()
        self._number = 0
        self.has_ended = False

    async def ask(
        self, message: dict[str, Any], timeout_s: float | None = _ANSWER_S, descriptors: Sequence[int] = ()
    ) -> tuple[dict[str, Any], list[int]]:
        """Send a request; return the answer and the descriptors that came with it.

        A thread waits, since the process may be stopped (SIGSTOP).

        Args:
            message: The request.
            timeout_s: None to wait without a limit.
            descriptors: What to send along; they stay the caller's.

        Raises:
            OSError: What the holder answers, a time-out, or EPIPE once it has ended.
        """
        async with self._turn:
            return await trio.to_thread.run_sync(
                self._exchange, message, timeout_s, list(descriptors), abandon_on_cancel=True, limiter=_askers
            )

    def _exchange(self, message: dict[str, Any], timeout_s: float | None, sent: list[int]) -> tuple[dict[str, Any], list[int]]:
        with self._busy:
            self._number += 1
            body = encode({**message, "number": self._number})
            if len(body) > MAX_MESSAGE_BYTES:
                raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
            self._connection.settimeout(timeout_s)
            send(self._connection, body, sent)
            while True:
                reply, descriptors = receive(self._connection)
                if reply is not None and reply["number"] == self._number and not reply.get("errno"):
                    return reply, descriptors
                for fd in descriptors:
                    os.close(fd)
                if reply is None:
                    self.has_ended = True
                    raise OSError(errno.EPIPE, "the process that holds the mounts of branches has ended")
                if reply["number"] == self._number:  # an older number answers a request whose caller has timed out
                    raise OSError(reply["errno"], reply["why"])

    def close(self) -> None:
        self.has_ended = True
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits for an answer
        self._connection.close()


class HeldMount:
    """A mount that a holder has."""

    def __init__(self, holder: _Conversation) -> None:
        self._holder = holder

    @property
    def is_lost(self) -> bool:
        """Return whether its holder has ended. Runs may still use copies of the mount."""
        return self._holder.has_ended

    async def copy(self) -> int:
        """Make one more mount of it, for another namespace; return its descriptor. OSError."""
        _, descriptors = await self._holder.ask({"op": COPY})
        return descriptors[0]

    def close(self) -> None:
        """End the holder, and with it its mount. Copies stay."""
        self._holder.close()


class BranchMount(HeldMount):
    """A FUSE mount. ``user_namespace``: a descriptor of the holder's; None where it is the daemon's."""

    def __init__(self, holder: _Conversation, device: int, user_namespace: int | None) -> None:
        super().__init__(holder)
        self.device, self.user_namespace = device, user_namespace

    async def lock(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send HolderLocks.answer a request. No time-out: after one we would not know whether the lock is held. OSError."""
        reply, _ = await self._holder.ask({"op": LOCK, **message}, None)
        return reply

    def close(self) -> None:
        """End the holder, and with it its mount. Copies stay."""
        super().close()
        if self.user_namespace is not None:
            os.close(self.user_namespace)
            self.user_namespace = None


class BranchMounts:
    """Starts mount holders.

    Args:
        place: A directory over which each holder mounts, in its own namespace.
    """

    def __init__(self, place: str) -> None:
        self._place = os.path.realpath(place)
        self._server: _Conversation | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._starting = trio.Lock()

    async def start(self) -> None:
        """Start the server that forks holders. Call early: its interpreter takes time to start. OSError."""
        async with self._starting:
            if self._process is not None and (self._process.poll() is not None or self._server is None):
                self.close()
            if self._server is None:
                ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                with theirs:
                    self._process = await trio.to_thread.run_sync(_spawn, theirs)
                self._server = _Conversation(ours)

    async def _new_holder(self) -> _Conversation:
        await self.start()
        assert self._server is not None
        _, (number,) = await self._server.ask({"op": NEW})
        return _Conversation(socket.socket(fileno=number))

    async def mount_layer(self, home: str, layers: str, layer: str, source: str, prepared: Sequence[int] = ()) -> HeldMount:
        """Mount a layer over a home directory, as home_layers.mount() does.

        Args:
            home: The home directory.
            layers: The directory of all layers.
            layer: The name of the one in it.
            source: What the mount table shall show as the mount's source.
            prepared: Descriptors of home_layers.kept_by_child(); empty: the holder prepares namespaces.

        Raises:
            OSError: The kernel refuses.
        """
        holder = await self._new_holder()
        message = {"op": HOME, "home": home, "layers": layers, "layer": layer, "source": source}
        try:
            await holder.ask(message, descriptors=prepared)
        except BaseException:
            holder.close()
            raise
        return HeldMount(holder)

    async def mount(self, options: frozenset[str]) -> tuple[BranchMount, int]:
        """Make a mount whose requests nobody answers yet.

        Args:
            options: Options of mount(8), of which only restrictions take effect.

        Returns:
            The mount, and the descriptor of its FUSE connection.

        Raises:
            OSError: The kernel refuses.
        """
        holder = await self._new_holder()
        try:
            reply, descriptors = await holder.ask({"op": MOUNT, "place": self._place, "options": sorted(options)})
        except BaseException:
            holder.close()
            raise
        connection, *namespace = descriptors
        return BranchMount(holder, reply["device"], namespace[0] if namespace else None), connection

    def close(self) -> None:
        """Close the socket, upon which the server ends; kill it if it does not within a second."""
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
