"""What the processes that a process starts inherit from it. Knows branches as opaque ids."""

from typing import NamedTuple

from agentfsd.binding.watched_processes import WatchedProcess


class Heritage(NamedTuple):
    """A branch, and the process (pid, start time) that was bound to it explicitly."""

    branch_id: str
    heir_of: tuple[int, int]


def left_by(parent: WatchedProcess | None) -> Heritage | None:
    """Return what the processes that *parent* starts inherit; None for nothing."""
    if parent is None:
        return None
    if parent.children_branch_id is not None:
        return Heritage(parent.children_branch_id, (parent.pid, parent.started))
    return Heritage(parent.branch_id, parent.heir_of) if parent.branch_id is not None else None
