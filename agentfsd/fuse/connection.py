"""The services of one FUSE connection, which every request handler in ``handlers/`` gets as its first argument.

Handlers are plain functions. One that does not await is one atomic step; the few async ones are declared so. A handler finds the
branch and the inode, calls core, which decides what the request means, and says how long the kernel may cache the answer.
"""

from dataclasses import dataclass

from agentfsd.binding.table import Bindings
from agentfsd.core.overlay import Overlay
from agentfsd.fuse.change_notices import ChangeNotices
from agentfsd.fuse.connections import Connections
from agentfsd.fuse.dentry_revival import DentryReviver
from agentfsd.fuse.handles import HandleTable
from agentfsd.fuse.kernel_cache import KernelCache
from agentfsd.fuse.kernel_replies import KernelReplies
from agentfsd.fuse.ledger import Ledger
from agentfsd.fuse.nodes import NodeTable
from agentfsd.fuse.notifier import Notifier
from agentfsd.fuse.path_guard import PathGuard
from agentfsd.fuse.tree_access import TreeAccess


@dataclass(frozen=True, slots=True)
class Connection:
    """One FUSE connection, whichever session reads its requests.

    Attributes:
        shared: What all connections of the daemon share.
        overlay: Branches, snapshots and their trees.
        bindings: Which process is bound to which branch.
        cache: What the kernel holds through this connection. Other connections use it to invalidate that.
        nodes: ``cache.nodes``.
        handles: ``cache.handles``.
        notifier: ``cache.notifier``.
        access: Resolves a node and a caller to a tree and an inode.
        guard: Finds the rules by path that hold for a caller.
        replies: Builds answers, with how long the kernel may cache them.
        changes: Tells other connections and listeners of a change.
    """

    shared: Connections
    overlay: Overlay
    bindings: Bindings
    cache: KernelCache
    nodes: NodeTable
    handles: HandleTable
    notifier: Notifier
    access: TreeAccess
    guard: PathGuard
    replies: KernelReplies
    changes: ChangeNotices

    @classmethod
    def make(
        cls,
        shared: Connections,
        notifier: Notifier,
        reviver: DentryReviver | None,
        tree_id: str = "",
        ledger: Ledger | None = None,
    ) -> "Connection":
        """Make a connection and add it to those of the daemon.

        Args:
            shared: What all connections of the daemon share.
            notifier: Sends the kernel notifications on this connection.
            reviver: Restores lost working directories; None where the connection shows one branch only.
            tree_id: The one branch that the connection shows; "" where each caller sees its own.
            ledger: What the daemon before recorded of it; None for a new one.
        """
        cache = KernelCache(notifier, tree_id, ledger)
        made = cls(
            shared, shared.overlay, shared.bindings, cache, cache.nodes, cache.handles, notifier,
            TreeAccess(shared.overlay, shared.bindings, cache.nodes, reviver),
            PathGuard(shared, tree_id),
            KernelReplies(shared, cache), ChangeNotices(shared, cache, reviver),
        )  # fmt: skip
        shared.add(cache)
        return made
