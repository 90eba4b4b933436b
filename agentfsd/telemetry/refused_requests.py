"""Counts requests to the mount that were refused: which path, which operation, why, by whom. It never knows a rule.

Whoever decides raises EACCES, EPERM or EROFS; the session that answers the kernel notes it here. What the kernel itself refuses
by mode bits never reaches the daemon.
"""

import errno
from typing import NamedTuple

CODES = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_MOST = 2000  # kinds of refusals that are remembered, of all branches together


class RefusedRequest(NamedTuple):
    """One kind of refusal.

    Attributes:
        branch_id: The branch in which.
        op: The FUSE operation.
        code: The errno.
        path: The file or directory that was asked about; for a name to be made or removed, its directory.
        command: The process's command name; "" if unknown.
    """

    branch_id: str
    op: str
    code: int
    path: str
    command: str


class RefusedRequests:
    """How often each kind of request was refused since the daemon started, the latest kinds."""

    def __init__(self) -> None:
        self._counts: dict[RefusedRequest, int] = {}

    def note(self, refused: RefusedRequest) -> None:
        """Count one refusal."""
        count = self._counts.pop(refused, 0)
        if len(self._counts) >= _MOST:
            del self._counts[next(iter(self._counts))]
        self._counts[refused] = count + 1

    def of_branch(self, branch_id: str) -> list[tuple[RefusedRequest, int]]:
        """Return the refusals in a branch with their counts, the latest last."""
        return [(refused, count) for refused, count in self._counts.items() if refused.branch_id == branch_id]
