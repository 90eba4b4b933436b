"""The daemon's side of fuse/mount_holder.py: asks processes to make and hold the mounts of single branches."""

import contextlib
import errno
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import trio

from agentfsd.fuse.keeper import KeeperPlace
from agentfsd.fuse.mount_holder import COPY, HOME, LOCK, MOUNT, NEW, OVERLAY, REFRESH, encode, send
from agentfsd.linux import process_syscalls
from agentfsd.linux.branch_overlays import OverlayPlan
from agentfsd.process.kept_descriptors import MAX_MESSAGE_BYTES, KeeperLink, KeptDescriptors, receive

BRANCHES, HOMES, OVERLAYS = "branch.", "home.", "overlay."  # what the names of kept descriptors begin with, before a branch's id
_SERVER = "holders"  # the name of the socket to the process that forks holders
_HAS_ENDED = "the process that holds the mounts of branches has ended"
_ANSWER_S = 10
_askers = trio.CapacityLimiter(64)  # a limit of its own: waiting for a holder takes no thread from other work


class _Conversation:
    """The socket to a mount holder: one request at a time. ``has_ended``: the process has ended, or close() was called."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._turn, self._busy = trio.Lock(), threading.Lock()
        self._number = time.monotonic_ns()  # answers to a killed daemon's requests may still be on their way
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
            try:
                send(self._connection, body, sent)
            except (BrokenPipeError, ConnectionResetError):
                self.has_ended = True
                raise OSError(errno.EPIPE, _HAS_ENDED) from None
            while True:
                reply, descriptors = receive(self._connection)
                if reply is not None and reply["number"] == self._number and not reply.get("errno"):
                    return reply, descriptors
                for fd in descriptors:
                    os.close(fd)
                if reply is None:
                    self.has_ended = True
                    raise OSError(errno.EPIPE, _HAS_ENDED)
                if reply["number"] == self._number:  # an older number answers a request whose caller has timed out
                    raise OSError(reply["errno"], reply["why"])

    def fileno(self) -> int:
        return self._connection.fileno()

    def close(self) -> None:
        self.has_ended = True
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits for an answer
        self._connection.close()


class HeldMount:
    """A mount that a holder has. Its socket is kept for the next daemon under the name ``NAME.holder``.

    ``holder_pid``: the process; 0 before the first copy().
    """

    def __init__(self, holder: _Conversation, kept: KeptDescriptors, name: str) -> None:
        self._holder, self._kept, self._name = holder, kept, name
        self.holder_pid = 0
        kept.keep(f"{name}.holder", holder.fileno())

    @property
    def is_lost(self) -> bool:
        """Return whether its holder has ended. Runs may still use copies of the mount."""
        return self._holder.has_ended

    async def copy(self) -> int:
        """Make one more mount of it, for another namespace; return its descriptor. OSError."""
        reply, descriptors = await self._holder.ask({"op": COPY})
        self.holder_pid = reply.get("pid", 0)
        return descriptors[0]

    def close(self) -> None:
        """End the holder, and with it its mount. Copies stay."""
        self._kept.drop(f"{self._name}.holder")
        self._holder.close()


class BranchMount(HeldMount):
    """A FUSE mount. ``user_namespace``: a descriptor of the holder's; None where it is the daemon's."""

    def __init__(self, holder: _Conversation, kept: KeptDescriptors, name: str, device: int, user_namespace: int | None) -> None:
        super().__init__(holder, kept, name)
        self.device, self.user_namespace = device, user_namespace
        if user_namespace is not None:
            kept.keep(f"{name}.namespace", user_namespace)

    async def refresh(self) -> None:
        """See branch_overlays.refresh(). OSError."""
        await self._holder.ask({"op": REFRESH})

    async def lock(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send HolderLocks.answer a request. No time-out: after one we would not know whether the lock is held. OSError."""
        reply, _ = await self._holder.ask({"op": LOCK, **message}, None)
        return reply

    def close(self) -> None:
        """End the holder, and with it its mount. Copies stay."""
        super().close()
        if self.user_namespace is not None:
            self._kept.drop(f"{self._name}.namespace")
            os.close(self.user_namespace)
            self.user_namespace = None


class BranchMounts:
    """Starts mount holders.

    Args:
        place: A directory over which each holder mounts, in its own namespace.
        kept: What the next daemon gets.

    Attributes:
        keeper_place: Where the process that forks holders writes, if it is to keep descriptors and start the next daemon; else
            None.
        keeper: The socket to it as a keeper; None where there is none.
        keeper_pid: Its process id; 0 where there is none.
    """

    def __init__(self, place: str, kept: KeptDescriptors) -> None:
        self._place, self._kept = place, kept
        self.keeper_place: KeeperPlace | None = None
        self.keeper: KeeperLink | None = None
        self.keeper_pid = 0
        self._pidfd = -1
        self._server: _Conversation | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._starting = trio.Lock()

    def resume(self, keeper: KeeperLink | None, keeper_pid: int) -> None:
        """Go on with the process of the daemon before.

        Args:
            keeper: The socket to it as a keeper; None where it is none.
            keeper_pid: Its process id.
        """
        fd = self._kept.take(_SERVER)
        if fd is not None:
            self._server = _Conversation(socket.socket(fileno=fd))
        if keeper is None:
            return
        try:
            self._use(keeper, keeper_pid)
        except OSError:  # it was killed, too: start() starts another one
            self.keeper, self.keeper_pid = None, 0

    def _use(self, keeper: KeeperLink, pid: int) -> None:
        self.keeper, self.keeper_pid = keeper, pid
        with contextlib.suppress(ProcessLookupError):
            self._pidfd = process_syscalls.pidfd_open(pid, thread=False)
        self._kept.held_by(keeper)

    async def start(self) -> None:
        """Start the process that forks holders. Call early: its interpreter takes time to start. OSError."""
        async with self._starting:
            if self._server is not None and self._has_ended():
                self.close()
            if self._server is None:
                ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                link, keeper = (
                    (None, None) if self.keeper_place is None else socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                )
                with theirs:
                    self._process = await trio.to_thread.run_sync(_spawn, theirs, keeper, self.keeper_place)
                self._server = _Conversation(ours)
                self._kept.keep(_SERVER, ours.fileno())
                if link is not None:
                    self._use(KeeperLink(link), self._process.pid)
                    self.serving()

    def _has_ended(self) -> bool:
        """Return whether the process was started and has ended."""
        if self._process is not None and self._process.poll() is not None:
            return True
        if self._pidfd >= 0 and _has_exited(self._pidfd, 0):
            return True
        if self.keeper_place is not None and self.keeper is None:
            return True  # it was started when there was no keeper to be had
        return self._server is not None and self._server.has_ended

    def serving(self) -> None:
        """Tell the keeper, if there is one, that this daemon serves from now on."""
        if self.keeper is not None:
            with contextlib.suppress(OSError):
                self.keeper.serving()

    def succeeded_by(self, pid: int) -> None:
        """Tell the keeper, if there is one, that another process takes over, and is to be killed if it does not come to serve."""
        if self.keeper is not None:
            with contextlib.suppress(OSError):
                self.keeper.succeeded_by(pid)

    def alive(self) -> None:
        """Tell the keeper, if there is one, that the daemon answers; and of descriptors that it could not be told of. OSError."""
        if self.keeper is not None:
            self.keeper.alive()
            if not self._kept.is_told:
                self._kept.held_by(self.keeper)

    async def keeper_ends(self) -> None:
        """Return when the process that is our keeper has ended; never if there is none."""
        if self._pidfd >= 0:
            await trio.lowlevel.wait_readable(self._pidfd)
        else:
            await trio.sleep_forever()

    async def _new_holder(self) -> _Conversation:
        await self.start()
        assert self._server is not None
        _, (number,) = await self._server.ask({"op": NEW})
        return _Conversation(socket.socket(fileno=number))

    def resume_layer(self, branch_id: str) -> HeldMount | None:
        """Return the layer of a branch that the daemon before had mounted, if it had."""
        holder = self._kept.take(f"{HOMES}{branch_id}.holder")
        return HeldMount(self._resumed(holder), self._kept, HOMES + branch_id) if holder is not None else None

    @staticmethod
    def _resumed(holder: int) -> _Conversation:
        return _Conversation(socket.socket(fileno=holder))

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
        return HeldMount(holder, self._kept, HOMES + layer)

    def resume_overlay(self, branch_id: str) -> BranchMount | None:
        """Return the overlay of a branch that the daemon before had mounted, if it had."""
        name = OVERLAYS + branch_id
        holder, namespace = self._kept.take(f"{name}.holder"), self._kept.take(f"{name}.namespace")
        return BranchMount(self._resumed(holder), self._kept, name, 0, namespace) if holder is not None else None

    async def mount_overlay(
        self, branch_id: str, plan: OverlayPlan, directory: str, lower: int, prepared: Sequence[int]
    ) -> BranchMount:
        """Mount a branch as an overlay, as branch_overlays.mount() does.

        Args:
            branch_id: The branch.
            plan: What to mount.
            directory: The directory of layers.
            lower: A descriptor of the lower.
            prepared: Descriptors of home_layers.kept_by_child(), for an ordinary user; empty for root.

        Raises:
            OSError: The kernel refuses.
        """
        holder = await self._new_holder()
        try:
            message = {"op": OVERLAY, "directory": directory, **plan._asdict()}
            reply, namespace = await holder.ask(message, descriptors=prepared or [lower])
        except BaseException:
            holder.close()
            raise
        return BranchMount(holder, self._kept, OVERLAYS + branch_id, reply["device"], namespace[0] if namespace else None)

    def resume_mount(self, branch_id: str, device: int) -> BranchMount | None:
        """Return the mount of a branch that the daemon before had. *device*: its st_dev."""
        name = BRANCHES + branch_id
        holder, namespace = self._kept.take(f"{name}.holder"), self._kept.take(f"{name}.namespace")
        return BranchMount(self._resumed(holder), self._kept, name, device, namespace) if holder is not None else None

    async def mount(self, branch_id: str, options: frozenset[str]) -> tuple[BranchMount, int]:
        """Make a mount whose requests nobody answers yet.

        Args:
            branch_id: What it will show.
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
        name = BRANCHES + branch_id
        return BranchMount(holder, self._kept, name, reply["device"], namespace[0] if namespace else None), connection

    def close(self) -> None:
        """Close the sockets, upon which the process ends; kill it if it does not within a second."""
        if self.keeper is not None:
            self._kept.held_by_nobody()
            self.keeper.end()
            self.keeper.connection.close()
            self.keeper, self.keeper_pid = None, 0
        if self._server is not None:
            self._kept.drop(_SERVER)
            self._server.close()
            self._server = None
        if self._pidfd >= 0:  # of a process that the daemon before has started, perhaps
            if not _has_exited(self._pidfd, _ANSWER_S / 10):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            os.close(self._pidfd)
            self._pidfd = -1
        if self._process is not None:
            try:
                self._process.wait(_ANSWER_S / 10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None


def _has_exited(pidfd: int, patience_s: float) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(patience_s * 1000))


def _spawn(theirs: socket.socket, keeper: socket.socket | None, place: KeeperPlace | None) -> subprocess.Popen[bytes]:
    numbers = [theirs.fileno(), *([keeper.fileno()] if keeper is not None else [])]
    command = [sys.executable, "-P", "-m", "agentfsd.fuse.mount_holder", *map(str, numbers), *(place or ())]
    path = os.pathsep.join(path for path in sys.path if path)
    try:
        return _start(command, numbers, {**os.environ, "PYTHONPATH": path})
    finally:
        if keeper is not None:
            keeper.close()


def _start(command: list[str], inherited: Sequence[int], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command, pass_fds=inherited, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=environment
    )  # fmt: skip
