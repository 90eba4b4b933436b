"""The ``.agentfs`` directory at the root of every view: control, status, and the trees of branches and snapshots.

It is looked up, never listed, so that nothing which walks a workspace walks into it. The ``.git`` file of a branch that is a
worktree is a file of the daemon's own, too.
"""

import errno
from collections.abc import Awaitable, Iterable, Iterator

from agentfsd.core.inode import Attributes
from agentfsd.core.linked_worktrees import GIT_FILE
from agentfsd.core.tree import Tree
from agentfsd.fuse.connection import Connection
from agentfsd.fuse.handles import DirHandle, TextHandle
from agentfsd.fuse.kernel_nodes import DirNode, VirtualNode
from agentfsd.fuse.reply import LONG_S, NOW_S, CallContext, ListedName, LookupReply
from agentfsd.types import CONTROL_DIR

_FILES = {b"control": "control", b"status": "text", b"status.json": "text"}
_DIRS = {b"branches": "branches", b"snapshots": "snapshots"}

DOTS = (b".", b"..")


def dot_entry(attributes: Attributes) -> LookupReply:
    """Return ``.`` or ``..`` of a listing: the kernel takes only number and type, and counts no look-up."""
    return LookupReply(0, attributes, NOW_S, NOW_S)


# -- looking up and listing


def lookup_control_dir(conn: Connection, root: DirNode, ctx: CallContext) -> LookupReply:
    """Look ``.agentfs`` up. The mount's owner and root see it; FileNotFoundError for anybody else.

    The kernel keeps the name where it lets nobody else into the mount. On a connection that shows one branch only it is an empty
    place, over which that of the mount is mounted.
    """
    if conn.cache.tree_id:
        node = conn.nodes.virtual_child(root, None, CONTROL_DIR, "dir")
        return conn.replies.virtual_entry(node)._replace(entry_s=LONG_S, attr_s=LONG_S)
    if ctx.uid not in (conn.shared.owner_uid, 0):
        raise FileNotFoundError(errno.ENOENT, "no such name")
    entry = conn.replies.virtual_entry(conn.nodes.virtual_child(root, None, CONTROL_DIR, "dir"))
    return entry._replace(entry_s=NOW_S if conn.shared.admits_others else LONG_S)


def shows_git_file(conn: Connection, root: DirNode) -> bool:
    """Return whether a view's root shows a ``.git`` file in place of what its branch has there: see linked_worktrees.py."""
    return not conn.cache.tree_id and bool(root.view.tree_id and conn.overlay.worktrees.directory(root.view.tree_id))


def git_file(conn: Connection, root: DirNode) -> LookupReply:
    """Return the ``.git`` file of the view whose root is *root*; count one look-up."""
    place = conn.nodes.virtual_child(root, None, CONTROL_DIR, "dir")
    return conn.replies.virtual_entry(conn.nodes.virtual_child(root, place, GIT_FILE, "git"))


def lookup_virtual(conn: Connection, node: VirtualNode, name: bytes, ctx: CallContext) -> LookupReply:
    """Look a name up in ``.agentfs``, or a branch or snapshot below it.

    The kernel keeps ``branches`` and ``snapshots``, and asks for each name in them again, since that depends on the caller.

    Raises:
        FileNotFoundError: There is no such name.
        PermissionError: EACCES, a bound process asks for a branch.
    """
    if conn.cache.tree_id:
        raise FileNotFoundError(errno.ENOENT, "no such name")
    if node.kind == "dir":
        kind = _child_kinds(node).get(name)
        if kind is None:
            raise FileNotFoundError(errno.ENOENT, "no such name")
        entry = conn.replies.virtual_entry(conn.nodes.virtual_child(node.owner, node, name, kind))
        return entry._replace(entry_s=LONG_S) if kind in _DIRS.values() else entry
    return _lookup_view(conn, node, name, ctx)


def _lookup_view(conn: Connection, node: VirtualNode, name: bytes, ctx: CallContext) -> LookupReply:
    tree = _named_tree(conn, node.kind, name.decode("ascii", "replace"))
    bound = conn.bindings.branch_of(ctx.pid)
    if bound is not None and not (node.kind == "snapshots" and conn.overlay.snapshots.in_history(bound, tree.id)):
        raise PermissionError(errno.EACCES, "a bound process sees its own branch only")
    return conn.replies.view_root(node, tree)


def _named_tree(conn: Connection, kind: str, name: str) -> Tree:
    """Return a branch or snapshot by its exact name only: an id or prefix would be a second name of one directory."""
    for known_name, tree_id in conn.overlay.refs.names(branches=kind == "branches"):
        if known_name == name:
            return conn.overlay.trees.by_id(tree_id)
    raise FileNotFoundError(errno.ENOENT, "no such branch or snapshot")


def _child_kinds(node: VirtualNode) -> dict[bytes, str]:
    """Return what ``.agentfs`` holds. Branches are reached from the mount's root only: one directory, one place."""
    if node.owner.view.tree_id:
        return {**_FILES, b"snapshots": "snapshots"}
    return {**_FILES, **_DIRS}


def list_virtual(conn: Connection, node: VirtualNode, handle: DirHandle, start: int) -> Iterator[ListedName]:
    """List ``.agentfs`` or a directory in it from a position on; each entry counts as a look-up. A bound process is shown the
    snapshots that it can enter.
    """
    if start == 0 or not handle.listing:
        if node.kind == "dir":
            names = sorted(_child_kinds(node))
        else:
            names = [name.encode() for name, _ in _named(conn, node.kind, handle.bound)]
        handle.listing = [*DOTS, *names]
    for position in range(start, len(handle.listing)):
        name = handle.listing[position]
        entry = _listed(conn, node, name)
        if entry is not None:
            yield ListedName(name, entry, position + 1)


def _named(conn: Connection, kind: str, bound: str | None) -> Iterable[tuple[str, str]]:
    named = conn.overlay.refs.names(branches=kind == "branches")
    if bound is None:
        return named
    entered = conn.overlay.snapshots.history_of(bound)
    return [(name, tree_id) for name, tree_id in named if tree_id in entered]


def _listed(conn: Connection, node: VirtualNode, name: bytes) -> LookupReply | None:
    if name in DOTS:
        return dot_entry(conn.replies.virtual_attributes(node))
    if node.kind == "dir":
        return conn.replies.virtual_entry(conn.nodes.virtual_child(node.owner, node, name, _child_kinds(node)[name]))
    try:
        tree = _named_tree(conn, node.kind, name.decode())
    except OSError:
        return None
    return conn.replies.view_root(node, tree)


# -- its files


def open_text(conn: Connection, node_id: int, ctx: CallContext) -> Awaitable[int] | None:
    """Return the handle's number of a file in ``.agentfs``, to be awaited; None where the node is any other file's."""
    node = conn.nodes[node_id]
    return _open_virtual(conn, node, ctx) if isinstance(node, VirtualNode) else None


async def _open_virtual(conn: Connection, node: VirtualNode, ctx: CallContext) -> int:
    """A status takes as long as there are files and branches to be looked at."""
    if node.is_dir:
        raise IsADirectoryError(errno.EISDIR, "is a directory")
    if node.kind == "git":
        return conn.handles.add(TextHandle(conn.overlay.worktrees.file(node.owner.view.tree_id), None), node.id)
    control = conn.shared.control
    if node.kind == "control":
        return conn.handles.add(TextHandle(b"", control.open(conn.access.caller(ctx))), node.id)
    make = control.status_json if node.name.endswith(b".json") else control.status_text
    return conn.handles.add(TextHandle(await make(conn.access.caller(ctx)), None), node.id)


def read_text(conn: Connection, number: int, size: int, offset: int) -> bytes:
    """Read an open file of ``.agentfs``; a control channel has no offsets. OSError (EBADF) for any other handle."""
    handle = conn.handles[number]
    if not isinstance(handle, TextHandle):
        raise OSError(errno.EBADF, "no file")
    handle.check()
    return handle.channel.read(size) if handle.channel is not None else handle.text[offset : offset + size]


def write_text(conn: Connection, number: int, text: bytes) -> Awaitable[None]:
    """Write a request to an open control file, to be awaited: it may have to wait. PermissionError (EACCES) for a status."""
    handle = conn.handles[number]
    if isinstance(handle, TextHandle):
        handle.check()
    if not isinstance(handle, TextHandle) or handle.channel is None:
        raise PermissionError(errno.EACCES, "read-only")
    return handle.channel.write(text)
