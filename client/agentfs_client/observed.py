"""What a daemon reports about its own work. These records are parts of replies."""

import msgspec


class KernelConnection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A FUSE connection to the kernel: that of the mount point (``branch`` is ""), or one that shows a branch. For ``io`` see
    requests.py.
    """

    branch: str
    session: str
    io: str


class PendingCommit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A commit into the lower.

    ``phase`` is staging, applying, undoing, committed or undone. ``running`` is false for a commit that was interrupted.
    ``branch`` is "" if the branch no longer exists.
    """

    branch: str
    phase: str
    paths: int
    running: bool


class SlowRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request that took longer than log.slow_ms. ``where`` is its path, or the subject of a control request."""

    time_ns: int
    took_ns: int
    request: str
    where: str
    branch: str
    pid: int
    command: str


class OperationLoad(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The requests of one kind in a period: the daemon's median, 99th percentile and maximum times for them."""

    name: str
    count: int
    p50_ns: int
    p99_ns: int
    longest_ns: int


class AgentActivity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What happens in one branch: the processes in it, and what they changed last.

    ``commands`` names the commands of bound processes, each once. ``changed`` and ``counted`` are as in Branch. ``changed_ns`` is
    the time of the last change, 0 if it is not known, and ``last_path`` what it changed, escaped for people, "" if that is not
    known. ``overlaps`` and ``conflicts`` are as in Branch.
    """

    branch: str
    processes: int
    commands: list[str]
    changed: int
    counted: bool
    changed_ns: int
    last_path: str = ""
    overlaps: int = 0
    conflicts: int = 0


class ProcessLoad(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The requests of one process in one branch. ``pid`` 0 means the kernel or an unknown process. ``busy_ns`` is the time that
    the daemon spent on them.
    """

    pid: int
    command: str
    branch: str
    requests: int
    read_bytes: int
    written_bytes: int
    busy_ns: int
