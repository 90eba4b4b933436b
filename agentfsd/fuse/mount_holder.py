"""Processes that hold the mounts of branches for the daemon: ``python -m agentfsd.fuse.mount_holder FD [KEEPER_FD PLACE...]``.

The daemon cannot enter a mount namespace, since it has threads and serves the mount point. So this process forks one *holder* for
each branch that runs use. A holder enters namespaces of its own, mounts the branch's FUSE file system there, and makes one more
mount of it for each `agentfsd run` of that branch. So all runs share one connection, with its caches, mappings and locks.

A holder of another kind has the layer of one branch over the home directory (linux/home_layers.py): the kernel says that two
overlays with one upper directory have undefined results, so the runs of a branch share one. One of a third kind has a branch as
an overlay of the kernel (linux/branch_overlays.py).

The same process keeps the daemon's descriptors, and starts the next daemon if this one dies (fuse/keeper.py). The daemon's end of
the socket to us is among them, and so are those to the holders: none of us ends with the daemon, unless it ends in order.

A holder knows nothing of branches and answers no request of the kernel: it sends the connection's descriptor to the daemon. It
ends when the daemon closes its socket. Its mount then goes; the mounts of runs stay.
"""

import contextlib
import errno
import json
import os
import select
import signal
import socket
import sys
from typing import Any

from agentfsd.fuse.held_locks import HolderLocks
from agentfsd.fuse.keeper import IGNORED, TICK_S, Keeper, KeeperPlace
from agentfsd.linux import branch_overlays, home_layers, mounts, namespaces, process_info, process_syscalls
from agentfsd.process.kept_descriptors import receive

NEW, MOUNT, COPY, LOCK, HOME, OVERLAY, REFRESH = "new", "mount", "copy", "lock", "home", "overlay", "refresh"


def encode(message: dict[str, Any]) -> bytes:
    """Return a message as it is sent."""
    return json.dumps(message).encode()


def send(connection: socket.socket, body: bytes, descriptors: list[int] | None = None) -> None:
    """Send one message with descriptors."""
    socket.send_fds(connection, [body], descriptors or [])


def _serve(daemon: socket.socket, keeper: Keeper | None) -> None:
    """Answer the daemon and its successors until one of them ends in order."""
    while True:
        poll = select.poll()
        for connection in [daemon, *(keeper.connections() if keeper is not None else ())]:
            poll.register(connection, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(TICK_S * 1000)}
        if not ready and keeper is not None and not keeper.tick(TICK_S):
            return
        if keeper is not None and any(connection.fileno() in ready for connection in keeper.connections()):
            if not keeper.answer():
                return
        elif daemon.fileno() in ready and not _fork_holder(daemon, keeper):
            return


def _fork_holder(daemon: socket.socket, keeper: Keeper | None) -> bool:
    """Fork a holder, and send the daemon the socket to it. Return False once the daemon has closed its end."""
    message = receive(daemon)[0]
    if message is None:
        return False
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        for fd in (daemon.fileno(), theirs.fileno(), *(keeper.descriptors() if keeper is not None else ())):
            os.close(fd)
        _hold(ours)
    send(daemon, encode({"number": message["number"]}), [theirs.fileno()])
    ours.close()
    theirs.close()
    return True


def _hold(daemon: socket.socket) -> None:
    """Run a holder until the daemon closes its socket; never return."""
    try:
        holder = _Holder()
        while True:
            message, received = receive(daemon)
            if message is None:
                break
            descriptors: list[int] = []
            try:
                reply = holder.answer(message, received, descriptors)
            except OSError as exc:
                reply = {"errno": exc.errno, "why": exc.strerror}
            except (LookupError, TypeError) as exc:  # from a daemon of another version, which outlives an update less than we do
                reply = {"errno": errno.EINVAL, "why": f"an unknown request: {exc}"}
            body = encode({**reply, "number": message["number"]})
            send(daemon, body, descriptors if "errno" not in reply else [])
            for fd in (*descriptors, *received):
                os.close(fd)
    finally:
        os._exit(0)


class _Holder:
    """The mount of one branch, and the locks that are held there; or a layer over the home directory."""

    def __init__(self) -> None:
        self._place = ""
        self._process = os.open("/proc/self", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._locks = HolderLocks("", self._process)
        self._plan: branch_overlays.OverlayPlan | None = None
        self._control = -1  # keeps an overlay's control directory there

    def answer(self, message: dict[str, Any], received: list[int], descriptors: list[int]) -> dict[str, Any]:
        """Answer a request; append the descriptors to send to *descriptors*. OSError."""
        if message["op"] == MOUNT:
            return self._mount(message["place"], frozenset(message["options"]), descriptors)
        if message["op"] == HOME:
            return self._cover_home(message, received)
        if message["op"] == OVERLAY:
            return self._overlay(message, received, descriptors)
        if self._place != "/":
            self._stand_alone()
        if message["op"] == LOCK:
            return self._locks.answer(message)
        if message["op"] == REFRESH:
            assert self._plan is not None
            branch_overlays.refresh(self._place, self._plan)
            return {}
        descriptors.append(namespaces.copy_mount(self._place))
        return {"pid": os.getpid()}

    def _mount(self, place: str, options: frozenset[str], descriptors: list[int]) -> dict[str, Any]:
        """Mount over *place* in a namespace of our own; send the connection, and the user namespace if it is a new one."""
        is_owner = namespaces.enter_private_mounts()
        descriptors.append(mounts.mount_fuse(place, options, is_owner or "allow_other" in options))
        self._place, self._locks = place, HolderLocks(place, self._process)
        if is_owner:
            descriptors.append(os.open("/proc/self/ns/user", os.O_RDONLY | os.O_CLOEXEC))
        return {"device": process_info.device_at(os.getpid(), place)}

    def _cover_home(self, message: dict[str, Any], prepared: list[int]) -> dict[str, Any]:
        """Mount a layer over the home directory, in namespaces that were *prepared*, or in new ones."""
        if prepared:
            home_layers.enter(*prepared)
        else:
            home_layers.prepare(message["home"], message["layers"])
        home_layers.mount(message["layer"], message["source"])
        self._place = home_layers.MERGED
        return {}

    def _overlay(self, message: dict[str, Any], received: list[int], descriptors: list[int]) -> dict[str, Any]:
        """Mount a branch as an overlay; send the user namespace if it is a new one.

        *received*: the prepared namespaces of an ordinary user, or the lower.
        """
        plan = self._plan = branch_overlays.OverlayPlan.read(message)
        privileged = len(received) == 1
        namespace = branch_overlays.enter(() if privileged else received, received[0], message["directory"], self._process)
        self._control = branch_overlays.mount(plan, privileged=privileged)
        self._place = branch_overlays.MERGED
        if namespace is not None:
            descriptors.append(namespace)
        return {"device": os.stat(self._place).st_dev}

    def _stand_alone(self) -> None:
        """Drop all other mounts of this namespace: they would stay here after users unmount them. Needs the daemon to answer."""
        with contextlib.suppress(OSError):
            namespaces.keep_only(self._place)
            self._place, self._locks = "/", HolderLocks("/", self._process)


def main() -> None:
    """Serve the daemon's socket, the first argument; then come, for a keeper, its socket and the fields of its KeeperPlace."""
    for number in IGNORED:  # we end with our socket instead; holders are reaped by the kernel
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        process_syscalls.set_name(b"agentfsd-mounts")
    conversation, *kept = sys.argv[1:]
    keeper = Keeper(socket.socket(fileno=int(kept[0])), KeeperPlace(*kept[1:])) if kept else None
    os.chdir("/")
    _serve(socket.socket(fileno=int(conversation)), keeper)


if __name__ == "__main__":
    main()
