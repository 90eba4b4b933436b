"""Which rules by path hold for the caller of a request, on one connection.

On a connection that shows one branch only, the branch's rules hold for everybody: names in the kernel's cache are the same for
all. At the mount point they hold for bound processes, and the rules of the mount for all others.
"""

from agentfsd.binding.table import Bindings
from agentfsd.core.overlay import Overlay
from agentfsd.core.rule_checks import RuledCaller
from agentfsd.core.tree import Inode, Tree
from agentfsd.fuse.nodes import DirNode
from agentfsd.fuse.reply import CallContext


class PathGuard:
    """The rules on one connection.

    Attributes:
        rules: The rules of the overlay. While it is not ``active``, nothing needs to be asked here.
    """

    def __init__(self, overlay: Overlay, bindings: Bindings, tree_id: str) -> None:
        self.rules = overlay.rules
        self._overlay, self._bindings, self._tree_id = overlay, bindings, tree_id

    def of(self, ctx: CallContext, view_tree_id: str, tree: Tree) -> RuledCaller | None:
        """Return the caller if rules hold for it.

        Args:
            ctx: The caller.
            view_tree_id: The fixed tree of the view, "" for the caller-dependent one.
            tree: The tree that the caller sees there.
        """
        if self._tree_id:
            branch_id: str | None = self._tree_id
        elif not view_tree_id and tree.id != self._overlay.default_id:
            branch_id = tree.id  # only a bound process sees it there
        else:
            branch_id = self._bindings.branch_of(ctx.pid)
        rules = self.rules.for_everybody if branch_id is None else self.rules.for_branch(branch_id)
        return RuledCaller(rules) if rules is not None else None

    def in_directory(self, ctx: CallContext, node: DirNode, tree: Tree) -> RuledCaller | None:
        """Return the caller if rules hold for it, and there are any."""
        return self.of(ctx, node.view.tree_id, tree) if self.rules.active else None

    def of_inode(self, ctx: CallContext, inode: Inode) -> RuledCaller | None:
        """Return the same for a request about a file whose view is not known."""
        return self.of(ctx, inode.tree.id, inode.tree) if self.rules.active else None

    def check_change(self, ctx: CallContext, inode: Inode) -> None:
        """Check that the caller may change a file or directory, or its attributes. See RuledCaller."""
        if self.rules.active:
            caller = self.of(ctx, inode.tree.id, inode.tree)
            if caller is not None:
                caller.check_change(inode)

    def check_open(self, ctx: CallContext, inode: Inode, *, writes: bool) -> None:
        """Check that the caller may open a file or directory. See RuledCaller."""
        if self.rules.active:
            caller = self.of(ctx, inode.tree.id, inode.tree)
            if caller is not None:
                caller.check_open(inode, writes=writes)
