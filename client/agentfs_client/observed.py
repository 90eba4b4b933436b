"""What a daemon says of its own work: records that replies hold."""

import msgspec


class KernelConnection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A connection of the kernel's: the mount point's (``branch`` ""), or one that shows a branch. ``io``: see requests.py."""

    branch: str
    session: str
    io: str


class PendingCommit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A commit into the lower. ``phase``: staging, applying, undoing, committed or undone. ``running``: it is under way, else it
    was interrupted. ``branch``: "" for one that is gone."""

    branch: str
    phase: str
    paths: int
    running: bool


class SlowRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request that took longer than log.slow_ms says. ``where``: the path, or what a control request was about."""

    time_ns: int
    took_ns: int
    request: str
    where: str
    branch: str
    pid: int
    command: str


class OperationLoad(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Requests of one kind within a span; how long the daemon took for half of them, for 99 in 100, and for the longest."""

    name: str
    count: int
    p50_ns: int
    p99_ns: int
    longest_ns: int


class ProcessLoad(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one process did in one branch. ``pid`` 0: the kernel's own doing, or nobody knows. ``busy_ns``: what the daemon took
    for it."""

    pid: int
    command: str
    branch: str
    requests: int
    read_bytes: int
    written_bytes: int
    busy_ns: int
