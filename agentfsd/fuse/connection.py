"""The services of one FUSE connection, which every request handler in ``handlers/`` gets as its first argument.

Handlers are plain functions and never await, but for the few that are declared async: each is one atomic step. What a request
*means* is core's business; a handler finds the branch and the inode, and says what the kernel may cache.
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
from agentfsd.fuse.nodes import NodeTable
from agentfsd.fuse.notifier import Notifier
from agentfsd.fuse.tree_access import TreeAccess


@dataclass(frozen=True, slots=True)
class Connection:
    """One FUSE connection, whichever session reads its requests.

    Attributes:
        shared: What all connections of the daemon share.
        cache: What the kernel holds of us here; other connections know this one by it.
        nodes: ``cache.nodes``.
        handles: ``cache.handles``.
        notifier: ``cache.notifier``.
        access: From node and caller to tree and inode.
        replies: What the kernel is told, and how long it may keep that.
        changes: Who else is told of a change.
    """

    shared: Connections
    overlay: Overlay
    bindings: Bindings
    cache: KernelCache
    nodes: NodeTable
    handles: HandleTable
    notifier: Notifier
    access: TreeAccess
    replies: KernelReplies
    changes: ChangeNotices

    @classmethod
    def make(cls, shared: Connections, notifier: Notifier, reviver: DentryReviver | None, tree_id: str = "") -> "Connection":
        """Make a connection and add it to those of the daemon.

        Args:
            reviver: Gives processes their working directory back; None where the connection shows one branch only.
            tree_id: The one branch that the connection shows; "" for the caller's.
        """
        cache = KernelCache(notifier, tree_id)
        made = cls(
            shared, shared.overlay, shared.bindings, cache, cache.nodes, cache.handles, notifier,
            TreeAccess(shared.overlay, shared.bindings, cache.nodes, reviver),
            KernelReplies(shared, cache), ChangeNotices(shared, cache, reviver),
        )  # fmt: skip
        shared.add(cache)
        return made
