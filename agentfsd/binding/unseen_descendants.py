"""Descendants of bound processes that have sent no request yet: the kernel's fork events, or /proc, told us of them."""

import time
from collections.abc import Callable, Iterable, Iterator

import msgspec

from agentfsd.binding import procfs
from agentfsd.binding.binding_records import BindingRecords, Record
from agentfsd.binding.fork_watch import Fork
from agentfsd.binding.heritage import Heritage, left_by
from agentfsd.binding.watched_processes import WatchedProcesses


class UnseenDescendants:
    """Their records, by process id. Single-threaded.

    Args:
        watched: The processes that have sent a request, whose children may become unseen descendants.
        records: Where each record is kept, too; None to keep none.
    """

    def __init__(self, watched: WatchedProcesses, records: BindingRecords | None) -> None:
        self._watched, self._kept = watched, records
        self._by_pid: dict[int, Record] = {}
        self._threaded: set[int] = set()  # those that have started threads

    def __len__(self) -> int:
        return len(self._by_pid)

    def __contains__(self, pid: int) -> bool:
        return pid in self._by_pid

    def __iter__(self) -> Iterator[Record]:
        return iter(list(self._by_pid.values()))

    def heritage_of(self, pid: int, started: int) -> Heritage | None:
        """Return the binding of an unseen descendant; None if no record is of the process with that number and start time."""
        record = self._by_pid.get(pid)
        return _heritage(record) if record is not None and record.is_of(started) else None

    def add(self, record: Record) -> None:
        """Add a process, or replace its record."""
        self._by_pid[record.pid] = record
        if self._kept is not None:
            self._kept.put(record)

    def forget(self, pid: int) -> None:
        """Forget a process that has ended."""
        if self._by_pid.pop(pid, None) is not None and self._kept is not None:
            self._kept.drop(pid)

    def forget_earlier(self, pid: int, started: int) -> None:
        """Forget an earlier process with that number than the one with that start time."""
        record = self._by_pid.get(pid)
        if record is not None and not record.is_of(started):
            self.forget(pid)

    def forget_ended(self) -> None:
        """Forget the processes that have ended, as /proc shows."""
        for record in self:
            process = procfs.read(record.pid)
            if process is None or not record.is_of(process.started):
                self.forget(record.pid)

    def was_met(self, pid: int) -> None:
        """Leave a process to the watched ones; the kept record stays."""
        self._by_pid.pop(pid, None)
        self._threaded.discard(pid)

    # -- a binding has changed, or is taken over; the caller writes the kept records anew

    def put_back(self, record: Record) -> None:
        """Add a process without writing its record."""
        self._by_pid[record.pid] = record

    def give(self, heir_of: tuple[int, int], branch_id: str) -> None:
        """Bind the heirs of one process's binding to another branch."""
        for record in self:
            if record.heir_of == heir_of:
                self._by_pid[record.pid] = msgspec.structs.replace(record, branch_id=branch_id)

    def release(self, chosen: Callable[[Record], bool]) -> None:
        """Leave the chosen processes without a branch."""
        self._by_pid = {pid: record for pid, record in self._by_pid.items() if not chosen(record)}

    # -- what the kernel tells

    def follow(self, events: Iterable[Fork]) -> None:
        """Process fork and exit events, in order."""
        replaced: set[int] = set()  # numbers of processes that we watched, which later processes have
        since_boot_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        for parent, pid, at_ns in events:
            if parent == pid:
                if pid in self._by_pid:
                    self._threaded.add(pid)
                continue
            if pid in self._threaded:
                self._threaded.discard(pid)
                if not parent and pid in self._by_pid and self._watched.meet(pid) is not None:
                    continue  # only its first thread has ended; else its pidfd says so at once
            self.forget(pid)
            if not parent:
                continue
            if pid in self._watched.processes:
                replaced.add(pid)
            record = self._by_pid.get(parent)
            heritage = _heritage(record) if record is not None else None
            if heritage is None and parent not in replaced:
                heritage = left_by(self._watched.processes.get(parent))
            if heritage is not None:
                self.add(Record(pid, 0, at_ns + since_boot_ns, heritage.branch_id, heir_of=heritage.heir_of))


def _heritage(record: Record) -> Heritage:
    return Heritage(record.branch_id, record.heir_of)
