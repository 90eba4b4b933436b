"""Requests that took long: each is counted, and at most 20 a minute are logged. It never knows what a request means."""

import logging
import time
from collections import deque
from typing import NamedTuple

from agentfsd.escape import printable

log = logging.getLogger(__name__)

_KEPT = 20
_LINES, _SPAN_S = 20, 60.0  # at most so many lines in so many seconds, so that other messages stay visible
NEVER_NS = 1 << 62


class SlowOperation(NamedTuple):
    """One request that took long. ``where`` is a path from the branch's root, or the subject of a control request.

    ``branch`` and ``branch_id`` are "" for a request without a branch.
    """

    time_ns: int
    took_ns: int
    op: str
    where: str
    branch: str
    branch_id: str
    pid: int
    command: str


class SlowOperationLog:
    """Count and log slow requests. A request is slow above ``limit_ns``. ``recent``: the last 20, newest last."""

    def __init__(self) -> None:
        self.limit_ns = NEVER_NS
        self.count = 0
        self.recent: deque[SlowOperation] = deque(maxlen=_KEPT)
        self._span_began_s = 0.0
        self._lines = self._left_out = 0

    def set_limit(self, limit_ms: int) -> None:
        """Set the time above which a request is slow, in ms. 0: no request is slow."""
        self.limit_ns = limit_ms * 1_000_000 or NEVER_NS

    def note(self, slow: SlowOperation) -> None:
        self.count += 1
        self.recent.append(slow)
        now = time.monotonic()
        if now - self._span_began_s > _SPAN_S:
            if self._left_out:
                log.warning("%d slow requests more were not logged one by one", self._left_out)
            self._span_began_s, self._lines, self._left_out = now, 0, 0
        if self._lines >= _LINES:
            self._left_out += 1
            return
        self._lines += 1
        seconds = slow.took_ns / 1e9
        by = f", for process {slow.pid} {printable(slow.command)}".rstrip() if slow.pid else ""
        log.warning(
            "slow: %s %s took %.3f s%s%s", slow.op, printable(slow.where) or "(the root)", seconds,
            f" in branch {slow.branch}" if slow.branch else "", by,
            extra={"op": slow.op, "branch": slow.branch, "pid": slow.pid, "duration": seconds},
        )  # fmt: skip
