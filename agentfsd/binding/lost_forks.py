"""Judges processes that were started while nobody followed forks: which branch they inherit, and which may have escaped.

A process whose parents live has their branch. One whose parent has ended is a child of process 1, or of another ancestor of the
bound process (a subreaper, prctl(2)), and /proc no longer shows where it comes from. It is in doubt, if no mark tells it apart.
Knows branches as opaque heritages.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeVar

from agentfsd.binding import procfs

Heritage = TypeVar("Heritage")


class Search(Generic[Heritage]):
    """One search.

    Args:
        since_ns: Since when nobody has followed forks (CLOCK_BOOTTIME, nanoseconds).
        own_pid: The daemon, which is in no branch, and neither are its children.
        heritage_of: What the children of a live process inherit; None for nothing, or if it is not known.
        ancestors: Process id and start time of the ancestors of bound processes.
        marked_only: Whether every process that was bound runs under a seccomp filter, as its descendants then do.
    """

    def __init__(
        self, since_ns: int, own_pid: int, heritage_of: Callable[[procfs.Process], Heritage | None], ancestors: Mapping[int, int],
        marked_only: bool,
    ) -> None:  # fmt: skip
        self._since_ns, self._own_pid, self._heritage_of = since_ns, own_pid, heritage_of
        self._ancestors, self._marked_only = ancestors, marked_only

    def judge(self, process: procfs.Process) -> Heritage | procfs.Process | None:
        """Judge a process.

        Returns:
            What it inherits; or, if it may have escaped, its oldest ancestor that is in doubt as well (perhaps itself); or None
            if it is in no branch.
        """
        oldest = process
        while True:
            if self._own_pid in (oldest.pid, oldest.parent):
                return None
            parent = procfs.read(oldest.parent) if oldest.parent > 1 else None
            heritage = self._heritage_of(parent) if parent is not None else None
            if heritage is not None:
                return heritage
            if parent is None or not _is_since(parent, self._since_ns):
                break
            oldest = parent
        return oldest if self._may_be_orphan(oldest, parent) else None

    def _may_be_orphan(self, process: procfs.Process, parent: procfs.Process | None) -> bool:
        adopted = process.parent == 1
        if parent is not None:
            adopted = self._ancestors.get(parent.pid) == parent.started or procfs.is_namespace_init(parent.pid)
        gone = parent is None and process.parent > 1  # it ended just now
        return (adopted or gone) and not (self._marked_only and not procfs.has_filter(process.pid))


def started_since(since_ns: int) -> Iterator[procfs.Process]:
    """Yield the live processes that may have been started since then (CLOCK_BOOTTIME, nanoseconds)."""
    for pid in procfs.numbers():
        process = procfs.read(pid)
        if process is not None and _is_since(process, since_ns):
            yield process


def _is_since(process: procfs.Process, since_ns: int) -> bool:
    return procfs.ticks_to_ns(process.started + 1) >= since_ns


def ancestors(pid: int) -> Iterator[procfs.Process]:
    """Yield the parent of a process, its parent, and so on; process 1 is left out."""
    process = procfs.read(pid)
    while process is not None and process.parent > 1:
        process = procfs.read(process.parent)
        if process is not None:
            yield process


def lives(pid: int, started: int) -> bool:
    """Return whether the process with that number and start time lives."""
    process = procfs.read(pid)
    return process is not None and process.started == started
