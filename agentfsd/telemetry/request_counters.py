"""How many requests there were, of which kind, and how long they took. By process they are counted only while somebody asks.

It never knows what a request means: the code that answers a request says what it was.
"""

from collections import deque
from collections.abc import Callable

from agentfsd.telemetry.process_identity import ProcessIdentity
from agentfsd.telemetry.refused_requests import RefusedRequests
from agentfsd.telemetry.slow_requests import SlowOperationLog

_CLASSES = 64  # of times: class n ends at 2^n ns
_LAGS = 120  # that are remembered: of the last minute
_SAMPLES = 4096  # of times, of each operation, in one profile
_ROWS_MAX = 4096  # processes in one profile; all further ones share one row


class OperationCounter:
    """All requests of one kind since the daemon began. ``classes[n]``: how many took less than 2^n ns, and 2^(n-1) or more."""

    __slots__ = ("channel", "classes", "errors", "op", "total_ns")

    def __init__(self, channel: str, op: str) -> None:
        self.channel, self.op = channel, op
        self.classes = [0] * _CLASSES
        self.total_ns = self.errors = 0

    @property
    def count(self) -> int:
        return sum(self.classes)


class ProcessActivity:
    """What one process did in one branch."""

    __slots__ = ("busy_ns", "read_bytes", "requests", "who", "written_bytes")

    def __init__(self, who: ProcessIdentity) -> None:
        self.who = who
        self.requests = self.read_bytes = self.written_bytes = self.busy_ns = 0


class OperationTimes:
    """How long requests of one operation took, in ns. ``count`` counts all of them; ``samples`` holds the last ones."""

    __slots__ = ("count", "longest_ns", "samples")

    def __init__(self) -> None:
        self.count = self.longest_ns = 0
        self.samples: deque[int] = deque(maxlen=_SAMPLES)

    def percentiles(self, *shares: float) -> list[int]:
        """Return the times in ns that these shares of the samples do not exceed."""
        ordered = sorted(self.samples)
        return [ordered[min(len(ordered) - 1, int(share * len(ordered)))] for share in shares] if ordered else [0] * len(shares)


class RequestCounters:
    """All counters of one daemon.

    ``lags_s``: how many seconds too late the event loop resumed a task that slept.
    """

    def __init__(self) -> None:
        self.tallies: dict[tuple[str, str], OperationCounter] = {}
        self.read_bytes = self.written_bytes = 0  # by requests; what the kernel reads and writes without a request is not counted
        self.profiles: list[ActivityProfile] = []
        self.slow = SlowOperationLog()
        self.refused = RefusedRequests()
        self.lags_s: deque[float] = deque([0.0], maxlen=_LAGS)

    def tally(self, channel: str, op: str) -> OperationCounter:
        """Return the counter of an operation. ``channel``: fuse or control."""
        counter = self.tallies.get((channel, op))
        if counter is None:
            counter = self.tallies[channel, op] = OperationCounter(channel, op)
        return counter

    def profile(self, identify: Callable[[int, str], ProcessIdentity], branch_id: str | None) -> "ActivityProfile":
        """Record each request until the profile is stopped. *branch_id*: only requests in that branch; None: all."""
        made = ActivityProfile(self, identify, branch_id)
        self.profiles.append(made)
        return made


class ActivityProfile:
    """Which process did what, from the profile's beginning to stop()."""

    def __init__(self, traffic: RequestCounters, identify: Callable[[int, str], ProcessIdentity], branch_id: str | None) -> None:
        self._traffic, self._identify, self._branch_id = traffic, identify, branch_id
        self._read, self._written = traffic.read_bytes, traffic.written_bytes
        self._rows: dict[tuple[int, str], ProcessActivity] = {}
        self._rest = ProcessActivity(ProcessIdentity(0, "", ""))
        self.times: dict[str, OperationTimes] = {}

    def stop(self) -> None:
        self._traffic.profiles.remove(self)

    def note(self, op: str, took_ns: int, tid: int, tree_id: str) -> None:
        """Record that a request was answered.

        Args:
            op: The operation.
            took_ns: How long it took.
            tid: The thread that made the request.
            tree_id: The branch that the connection shows; "" when it shows each caller's own branch.
        """
        read, written = self._traffic.read_bytes, self._traffic.written_bytes
        read_now, self._read = read - self._read, read
        written_now, self._written = written - self._written, written
        row = self._rows.get((tid, tree_id)) or self._meet(tid, tree_id)
        if self._branch_id not in (None, row.who.branch_id):
            return
        row.requests += 1
        row.busy_ns += took_ns
        row.read_bytes += read_now
        row.written_bytes += written_now
        times = self.times.get(op)
        if times is None:
            times = self.times[op] = OperationTimes()
        times.count += 1
        times.longest_ns = max(times.longest_ns, took_ns)
        times.samples.append(took_ns)

    def _meet(self, tid: int, tree_id: str) -> ProcessActivity:
        """Identify the process. It still waits for the answer, so /proc still shows its name."""
        if len(self._rows) >= _ROWS_MAX:
            return self._rest
        row = self._rows[tid, tree_id] = ProcessActivity(self._identify(tid, tree_id))
        return row

    def rows(self) -> list[ProcessActivity]:
        """Return the activity of each process, the busiest first."""
        together: dict[tuple[int, str], ProcessActivity] = {}
        for row in [*self._rows.values(), self._rest]:
            if not row.requests:
                continue
            into = together.setdefault((row.who.pid, row.who.branch_id), ProcessActivity(row.who))
            into.requests += row.requests
            into.busy_ns += row.busy_ns
            into.read_bytes += row.read_bytes
            into.written_bytes += row.written_bytes
        return sorted(together.values(), key=lambda row: row.busy_ns, reverse=True)
