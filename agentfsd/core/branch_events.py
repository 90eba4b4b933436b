"""The events that listeners of an overlay get (see OverlayEvents.listeners). This module knows no listener."""

from collections.abc import Callable
from typing import Literal, NamedTuple

from agentfsd.core.tree import Inode

EventKind = Literal[
    "created", "modified", "deleted", "renamed", "attributes",
    "snapshot", "snapshot-deleted", "restore", "merge", "commit", "undo", "discard",
    "branch-created", "branch-renamed", "branch-deleted", "bound", "unbound", "overlap", "conflict",
    "note-added", "note-answered", "note-resolved", "note-reopened", "note-removed",
]  # fmt: skip


class BranchEvent(NamedTuple):
    """Something that happened in a branch.

    Attributes:
        kind: What happened.
        branch_id: Id of the branch.
        pid: The process that did it; for ``bound`` and ``unbound`` the process whose binding changed. 0 if it is not known.
        inode: The file or directory that changed, if any.
        path: Its path when it changed; None for its path now.
        old_path: Its path before a rename.
        branch: Name of the branch; "" for the name that the branch has now.
        name: Name of the snapshot, or of what else the kind is about; of ``overlap`` and ``conflict`` the other branches.
        by: The process that asked for a binding; 0 for other kinds.
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
