"""What happens in a branch, as whoever listens is told (see Overlay.listeners). It knows no listener."""

from collections.abc import Callable
from typing import Literal, NamedTuple

from agentfsd.core.tree import Inode

EventKind = Literal[
    "created", "modified", "deleted", "renamed", "attributes",
    "snapshot", "snapshot-deleted", "restore", "merge", "commit", "undo", "discard",
    "branch-created", "branch-renamed", "branch-deleted", "bound", "unbound",
]  # fmt: skip


class BranchEvent(NamedTuple):
    """``pid``: the process that did it (of a binding: the one it is about), 0 where nobody knows. ``path``: None for where
    ``inode`` is now.

    ``branch``: the branch's name, "" for the one that its id has now. ``name``: of the snapshot, or whatever the kind is about.
    ``by``: the process that asked for a binding, 0 elsewhere.
    """

    kind: EventKind
    branch_id: str
    pid: int = 0
    inode: Inode | None = None
    path: bytes | None = None
    old_path: bytes = b""
    branch: str = ""
    name: str = ""
    by: int = 0


Listener = Callable[[BranchEvent], None]
