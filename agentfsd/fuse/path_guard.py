"""Which rules by path hold for the caller of a request, on one connection.

On a connection that shows one branch only, the branch's rules hold for everybody: names in the kernel's cache are the same for
all. At the mount point they hold for bound processes, and the rules of the mount for all others.
"""

import errno

from agentfsd.core.rule_checks import Asking, RuledCaller
from agentfsd.core.rule_set import DENY, HIDE, UNKNOWN
from agentfsd.core.tree import Inode, Tree
from agentfsd.fuse.connections import Connections
from agentfsd.fuse.kernel_nodes import DirNode
from agentfsd.fuse.reply import CallContext


class PathGuard:
    """The rules on one connection.

    Attributes:
        rules: The rules of the overlay. While it is not ``active``, nothing needs to be asked here.
    """

    def __init__(self, shared: Connections, tree_id: str) -> None:
        self._shared, self._tree_id = shared, tree_id
        self._overlay, self._bindings = shared.overlay, shared.bindings
        self.rules = shared.overlay.rules

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
        if rules is None:
            return None
        return RuledCaller(rules, self._asking(ctx.pid, branch_id or tree.id) if rules.asks else None)

    def _asking(self, tid: int, branch_id: str) -> Asking | None:
        questions = self._shared.questions
        return None if questions is None else lambda path, what: questions.check(tid, branch_id, path, what)

    def looked_up(self, ctx: CallContext, view_tree_id: str, directory: Inode, name: bytes, inode: Inode) -> int:
        """Return what the rules say about a name that a look-up has found; UNKNOWN where they do not hold for the caller.

        This is the hot path: it asks once what of() and RuledCaller would ask in three steps.

        Raises:
            PermissionError: EACCES, a rule denies the directory.
        """
        branch_id = self._tree_id or ("" if view_tree_id else directory.tree.id)
        if not self._tree_id and (not branch_id or branch_id == self._overlay.default_id):
            branch_id = self._bindings.branch_of(ctx.pid) or ""
        rules = self.rules.for_branch(branch_id) if branch_id else self.rules.for_everybody
        if rules is None:
            return UNKNOWN
        state = rules.state_in(directory)
        if state.inherited == DENY:
            raise PermissionError(errno.EACCES, "a rule denies that directory")
        is_dir = inode.is_dir
        verdict = (state.dirs if is_dir else state.files).get(name)
        if verdict is None:
            verdict = state.verdict(name, is_dir=is_dir)
        return verdict if verdict == HIDE or branch_id in (inode.tree.id, self._tree_id) else UNKNOWN

    def in_directory(self, ctx: CallContext, node: DirNode, tree: Tree) -> RuledCaller | None:
        """Return the caller if rules hold for it, and there are any."""
        return self.of(ctx, node.view.tree_id, tree) if self.rules.active else None

    def strictest(self, tree: Tree) -> RuledCaller | None:
        """Return a caller for whom the rules of a tree's branch hold, where nobody knows any more who it is."""
        rules = self.rules.for_branch(tree.id) if self.rules.active else None
        return RuledCaller(rules, None) if rules is not None else None

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
