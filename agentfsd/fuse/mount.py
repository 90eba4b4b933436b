"""One mount and all its connections: the one at the mount point, and one for each branch that `agentfsd run` uses."""

import errno
import logging
import os
from typing import TYPE_CHECKING, cast

import trio

from agentfs_host import mount_table
from agentfsd.binding.table import Bindings
from agentfsd.core.overlay import Overlay
from agentfsd.core.tree import Inode, Tree
from agentfsd.fuse import resumption
from agentfsd.fuse.branch_connections import BranchConnections
from agentfsd.fuse.branch_mounts import BRANCHES, BranchMounts
from agentfsd.fuse.connection import Connection
from agentfsd.fuse.connections import Connections
from agentfsd.fuse.dentry_revival import DentryReviver
from agentfsd.fuse.ledger import Ledger, LedgerRecord
from agentfsd.fuse.lock_records import LockRecords
from agentfsd.fuse.native import fuse_device
from agentfsd.fuse.native import fuse_protocol as fuse
from agentfsd.fuse.native.handshake import IoMode, Unsupported
from agentfsd.fuse.native.native_session import NativeSession
from agentfsd.fuse.native.reactor import Reactor
from agentfsd.fuse.notifier import Notifier
from agentfsd.linux import process_info
from agentfsd.process.kept_descriptors import KeptDescriptors
from agentfsd.state.daemon_config import SessionKind
from agentfsd.types import ControlOpener, LowerNews

if TYPE_CHECKING:
    from agentfsd.fuse.pyfuse3_session import Pyfuse3Session

log = logging.getLogger(__name__)

OVERLAY = "overlay"
IO_MODES = ("auto", OVERLAY, "zero-message", "passthrough", "cached")
_BEST: IoMode = "zero-message"
_MAIN = "main"  # what the names of kept descriptors begin with: the connection at the mount point
_MAPS_S = 2.0
_map_readers = trio.CapacityLimiter(16)  # a limit of its own: readers that hang take no thread from other work


class FuseMount:
    """A mount and its connections.

    Attributes:
        kind: The session that serves the mount point, "native" or "pyfuse3"; "" before mount().
        why: Why that one, or which protocol version it uses.
        main: The connection at the mount point.
        runs: The connections of single branches.
    """

    def __init__(
        self, overlay: Overlay, bindings: Bindings, control: ControlOpener, watch: LowerNews | None,
        mountpoint: str, options: frozenset[str], wanted: SessionKind, branch_mounts: BranchMounts, kept: KeptDescriptors,
    ) -> None:  # fmt: skip
        self.connections = Connections(overlay, bindings, control, watch)
        self.connections.admits_others = "allow_other" in options
        self.connections.moves_atime = not options & {"noatime", "ro"}
        self._mountpoint, self._options, self._wanted = mountpoint, options, wanted
        self._kept = kept
        self._reviver = DentryReviver(mountpoint)
        ledger = kept.take(f"{_MAIN}.ledger")
        self.main = self._connection("", Ledger(ledger) if ledger is not None else None)
        LockRecords(self.connections.locks.table, self.main.nodes.records.ledger, self.connections.locks.is_mortal)
        self._reactor = Reactor()
        self.connections.locks.start = self._reactor.start_aside
        self._libfuse: Pyfuse3Session | None = None
        self._native: NativeSession | None = None
        self._resumed: list[NativeSession] = []
        self._is_resumed = ledger is not None
        self._terminated = self._libfuse_ended = False
        self.kind, self.why = "", ""
        overlay.events.on_replaced.append(self._tree_replaced)
        bindings.on_bind = self._bound
        self._branch_mounts = branch_mounts
        self.runs = BranchConnections(
            branch_mounts, self.options_in_force, self._serve_branch, bindings.is_in, self.connections.locks
        )

    def _connection(self, tree_id: str, ledger: Ledger | None = None) -> Connection:
        return Connection.make(self.connections, Notifier(), None if tree_id else self._reviver, tree_id, ledger)

    def _keep(self, name: str, session: NativeSession) -> None:
        """Keep a connection for the next daemon."""
        self._kept.keep(f"{name}.connection", session.fd)
        self._kept.keep(f"{name}.ledger", session.connection.nodes.records.ledger.fd)

    def _drop(self, name: str) -> None:
        self._kept.drop(f"{name}.connection")
        self._kept.drop(f"{name}.ledger")

    # -- beginning

    def mount(self) -> None:
        """Mount with the session that was asked for; "auto" falls back to pyfuse3.

        Raises:
            OSError: The kernel or fusermount3 refuses; the text says why.
            Unsupported: The native session was asked for, and this kernel's FUSE does not support it.
        """
        connection = self._kept.take(f"{_MAIN}.connection")
        if connection is not None:
            self._resume_native(connection)
            return
        if self._wanted != "pyfuse3":
            try:
                self._mount_native()
            except (Unsupported, OSError) as exc:
                if self._wanted == "native":
                    raise
                log.warning("the native session is not available (%s): using pyfuse3", exc)
                self.why = f"the native session is not to be had: {exc}"
            else:
                assert self._native is not None
                self.kind, self.why = "native", f"FUSE 7.{self._native.minor}"
                return
        self._libfuse = self._libfuse_session()
        self._libfuse.mount()
        self.kind, self.why = "pyfuse3", self.why or "asked for"

    def _libfuse_session(self) -> "Pyfuse3Session":
        """Return a pyfuse3 session. pyfuse3 is imported only here, so that the native session works where libfuse is missing."""
        try:
            from agentfsd.fuse.pyfuse3_session import Pyfuse3Session
        except ImportError as exc:
            raise OSError(errno.ENOSYS, f"pyfuse3 cannot be imported: {exc} (`agentfsd doctor` says more)") from exc
        return Pyfuse3Session(self.main, self._mountpoint, self._options)

    def _mount_native(self) -> None:
        fd = fuse_device.mount(self._mountpoint, self._options)
        session = NativeSession(self.main, self._reactor, fd, "cached")
        try:
            session.shake_hands()
        except BaseException:
            session.abandon()
            fuse_device.unmount(self._mountpoint)
            raise
        self._native = session
        session.on_end = lambda: self._drop(_MAIN)
        self.connections.overlay.store.db.unanswered.clear()  # of connections that nobody goes on with
        self._keep(_MAIN, session)

    # -- connections of the daemon before

    @property
    def why_not_resumable(self) -> str:
        """Why no daemon could go on with the connections of this one; "" if one can."""
        if self._native is None:
            return "pyfuse3 cannot go on with a connection"
        if not self._native.offered & fuse.HAS_RESEND:
            return "this kernel does not send requests again, as Linux 6.9 does"
        return ""

    def _resume_native(self, connection: int) -> None:
        """Go on with the mount of the daemon before, and with the connections of its branches. OSError."""
        self._native = NativeSession(self.main, self._reactor, connection, "cached")
        self._native.on_end = lambda: self._drop(_MAIN)
        kept = resumption.resume(self._native)
        self.kind, self.why = "native", f"FUSE 7.{self._native.minor}"
        for name in self._kept.former_names(BRANCHES):
            if name.endswith(".connection"):
                kept += self._resume_branch(name.removeprefix(BRANCHES).removesuffix(".connection"))
        alone = {connection.cache.tree_id: connection for session in self._resumed for connection in [session.connection]}
        resumption.take_locks({"": self.main} | alone, kept)
        sessions = [self._native, *self._resumed]
        database = self.connections.overlay.store.db
        database.unanswered = {key for key in database.unanswered if any(session.is_request_of(key) for session in sessions)}

    def _resume_branch(self, branch_id: str) -> list[LedgerRecord]:
        name = BRANCHES + branch_id
        fd, ledger = self._kept.take(f"{name}.connection"), self._kept.take(f"{name}.ledger")
        if fd is None or ledger is None or not self.connections.overlay.refs.exists(branch_id):
            self._drop(name)
            for each in (fd, ledger):
                if each is not None:
                    os.close(each)
            return []
        connection = self._connection(branch_id, Ledger(ledger))
        session = NativeSession(connection, self._reactor, fd, _BEST)
        session.on_end = lambda: self._drop(name)
        try:
            kept = resumption.resume(session)
        except Exception:  # whatever is wrong with one branch, the others go on
            log.exception("runs of branch %s cannot go on", branch_id)
            self.connections.remove(connection.cache)
            self._drop(name)
            session.abandon()
            return []
        self._resumed.append(session)
        self.runs.resume(branch_id, session, session.connection.cache.device)
        return kept

    def _add_resumed(self) -> None:
        """Begin to serve the connections of the daemon before: all at once, as pages are asked back from one for another.

        The kernel asks again for what it has cached through them.
        """
        for session in self._resumed:
            self.connections.run_begins(session.connection.cache.tree_id, self.main.cache)
            self._reactor.add(session)
        self.connections.page_owners.forget_former()
        for connection in (self.main, *(session.connection for session in self._resumed)):
            connection.cache.expire_all(self.connections.page_owners.files())

    def is_at(self, device: int) -> int:
        """Take note of the st_dev of the mount point, and return that of our file system, which may be unmounted there by now."""
        cache = self.main.cache
        cache.device = cache.device or device
        if self._native is not None:
            self._native.note_facts()
        return cache.device

    # -- connections that show one branch

    def options_in_force(self) -> frozenset[str]:
        """Return the mount point's present options, which a remount may have changed."""
        mounted = mount_table.mount_at(self._mountpoint)
        return mounted.options if mounted is not None else self._options

    def _serve_branch(self, fd: int, tree_id: str, io: str, device: int) -> NativeSession:
        connection = self._connection(tree_id)
        connection.cache.device = device
        rules = self.connections.overlay.rules.for_branch(tree_id)
        best: IoMode = "cached" if rules is not None and rules.asks else _BEST  # each open is asked about
        chosen = best if io == "auto" else cast(IoMode, io)
        session = NativeSession(connection, self._reactor, fd, chosen)
        try:
            session.shake_hands()
        except BaseException:
            self.connections.remove(connection.cache)
            session.abandon()
            raise
        self._keep(BRANCHES + tree_id, session)
        session.on_end = lambda: self._drop(BRANCHES + tree_id)
        self.connections.run_begins(tree_id, self.main.cache)
        self._reactor.add(session)
        return session

    async def start_holder(self) -> None:
        """Start the mount holder's server soon after the mount, so that the first run need not wait for it."""
        try:
            await self._branch_mounts.start()
        except OSError as exc:
            log.warning("no connections for single branches: %s", exc.strerror)

    def _tree_replaced(self, tree: Tree) -> None:
        if not self.connections.overlay.refs.exists(tree.id):
            self.runs.branch_gone(tree.id)

    # -- living

    def _bound(self, branch_id: str) -> None:
        self.connections.before_binding(branch_id)
        if branch_id != self.connections.overlay.default_id:
            self.main.cache.diverge()

    def unite(self) -> None:
        """Let the caller-dependent view cache names again once no process is bound to another branch. Call periodically."""
        default_id = self.connections.overlay.default_id
        self.connections.bound_to &= self.connections.bindings.branches()
        if not self.main.nodes.uniform_id and not self.connections.bindings.sees_other_than(default_id):
            self.main.cache.unite(default_id)

    async def serve(self) -> None:
        """Answer requests until the mount point is unmounted and no run needs a connection, or until terminate()."""
        self._reviver.start()
        try:
            async with trio.open_nursery() as nursery:
                if self._libfuse is not None:
                    nursery.start_soon(self._reactor.serve, self._is_over)
                    await self._libfuse.serve()
                    self._libfuse_ended = True
                    self._reactor.wake()
                else:
                    assert self._native is not None
                    self._reactor.add(self._native)
                    self.unite()
                    if self._is_resumed:
                        self._add_resumed()
                        nursery.start_soon(self.runs.resume_locks)
                    await self._reactor.serve(self._is_over)
        finally:
            self._reviver.stop()

    def _is_over(self) -> bool:
        main_ended = self._native.ended if self._native is not None else self._libfuse_ended
        return self._terminated or (main_ended and (not len(self._reactor) or self.runs.is_idle()))

    def terminate(self) -> None:
        """Ask serve() to return. The mount stays until close()."""
        self._terminated = True
        self._reactor.wake()
        if self._libfuse is not None:
            self._libfuse.terminate()

    async def settled(self) -> None:
        """Wait until the kernel has taken every notification that was queued so far."""
        await self.connections.settled()

    def pages_back_soon(self, inode: Inode, patience_s: float) -> bool:
        """Have each connection write back and drop its pages of a file, and block the event loop meanwhile.

        Returns:
            False if a connection takes longer than *patience_s*. True at once if none has pages.
        """
        waiting = []
        for connection in self.connections.all:
            node = connection.nodes.find_file(inode)
            if node is not None and node.has_pages:
                connection.notifier.expire_data(node.id)
                waiting.append((connection.notifier, node))
        if not all([notifier.settled_soon(patience_s) for notifier, _ in waiting]):
            return False
        for _, node in waiting:
            node.has_pages = False
        return True

    def close(self, *, unmount: bool) -> None:
        """End all connections.

        Args:
            unmount: Unmount the mount point too. Pass True only while our mount is there: whatever is on top is unmounted.
        """
        if self._libfuse is not None:
            self._libfuse.close(unmount=unmount)
        if self._native is not None:
            self._native.end()
            if unmount:
                fuse_device.unmount(self._mountpoint)
        self.runs.close()
        self._branch_mounts.close()

    async def flush_mapped(self, branch_id: str | None) -> None:
        """Have the kernel write back dirty pages of shared mappings, on connections that show one branch.

        Args:
            branch_id: The branch; None for all.
        """
        for cache in self.connections.all:
            tree_id = cache.tree_id
            if not tree_id or branch_id not in (None, tree_id) or not cache.device:
                continue
            pids = [process.pid for process in self.connections.bindings.bindings() if process.branch_id == tree_id]
            mapped = await _mapped_for_writing(pids, cache.device)
            for node in cache.nodes.files() if mapped != set() else ():
                if node.has_pages if mapped is None else node.inode.ino in mapped:
                    cache.notifier.expire_data(node.id)
            await cache.notifier.settled()

    @property
    def writers(self) -> int:
        """How many files are open for writing, as far as the kernel tells us of opens."""
        return sum(cache.handles.writers for cache in self.connections.all)

    def sessions(self) -> list[tuple[str, str, str]]:
        """Return (branch id, kind of session, io) of each connection; the branch id is "" for the mount point's."""
        main = [("", "pyfuse3", "cached")] if self._libfuse is not None else []
        return main + [(session.connection.cache.tree_id, session.kind, session.io) for session in self._reactor.sessions()]

    def measure(self) -> dict[str, int]:
        """Return how many nodes, handles, connections and pending notifications there are."""
        return {
            "notifications": sum(cache.notifier.waiting for cache in self.connections.all),
            "connections": len(self.connections.all),
            "nodes": sum(len(cache.nodes) for cache in self.connections.all),
            "handles": sum(len(cache.handles) for cache in self.connections.all),
        }


async def _mapped_for_writing(pids: list[int], device: int) -> set[int] | None:
    """Return the inode numbers that these processes have mapped for writing; None if that takes longer than _MAPS_S.

    A thread reads /proc: the kernel locks a process's mappings while the process faults on a mapped file, perhaps for ever.
    """
    with trio.move_on_after(_MAPS_S):
        return await trio.to_thread.run_sync(
            process_info.mapped_for_writing, pids, device, abandon_on_cancel=True, limiter=_map_readers
        )
    log.warning("reading the mappings of processes takes too long: writing back every file that the kernel has pages of")
    return None
