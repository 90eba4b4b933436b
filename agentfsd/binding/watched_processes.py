"""Processes and threads that sent a request, each watched by a pidfd until it ends, with the binding that others give it."""

import os
import select
import time
from collections.abc import Callable

from agentfsd.binding import procfs


class WatchedProcess:
    """A live process that was seen or bound.

    Attributes:
        heir_of: Process id and start time of the process whose binding it has; zeros without one.
        children_branch_id: The branch of the processes that it starts; it is not bound itself.
        since_ns: When it was seen first, or bound, in nanoseconds by the wall clock.
    """

    __slots__ = ("branch_id", "children_branch_id", "explicit", "fd", "heir_of", "pid", "since_ns", "started", "threads")

    def __init__(self, pid: int, started: int, fd: int) -> None:
        self.pid, self.started, self.fd = pid, started, fd
        self.branch_id: str | None = None
        self.explicit = False
        self.heir_of: tuple[int, int] = (0, 0)
        self.children_branch_id: str | None = None
        self.since_ns = time.time_ns()
        self.threads: set[int] = set()


class WatchedProcesses:
    """All of them, by process id and by thread id. Single-threaded.

    Args:
        follow_forks: Called when descriptors are readable, before ended processes are forgotten.
        inherit: Called with a process that is met for the first time and its parent's number: sets its binding.
        met: Called once it is watched.
        ended: Called when it has ended.
    """

    def __init__(
        self, follow_forks: Callable[[], None], inherit: Callable[[WatchedProcess, int], None],
        met: Callable[[WatchedProcess], None], ended: Callable[[WatchedProcess], None],
    ) -> None:  # fmt: skip
        self._follow_forks, self._inherit, self._met, self._ended = follow_forks, inherit, met, ended
        self._epoll = select.epoll()
        self._by_fd: dict[int, tuple[int, bool]] = {}  # pidfd -> (number, is a thread)
        self._threads: dict[int, tuple[WatchedProcess, int]] = {}  # tid -> (its process, pidfd of the thread)
        self.processes: dict[int, WatchedProcess] = {}

    def close(self) -> None:
        """Close all descriptors."""
        for fd in list(self._by_fd):
            os.close(fd)
        self._by_fd.clear()
        self.processes.clear()
        self._threads.clear()
        self._epoll.close()

    def thread_count(self) -> int:
        """Return how many threads besides the first of a process are watched."""
        return len(self._threads)

    # -- the hot path

    def find(self, tid: int) -> WatchedProcess | None:
        """Return the live process of a thread; None if there is none, or it is outside our pid namespace."""
        if self._epoll.poll(0):
            self._follow_forks()  # first: a parent that has ended may have started processes before
            self._bury([fd for fd, _ in self._epoll.poll(0)])  # asked anew: numbers of descriptors may have come back
        known = self.processes.get(tid)
        if known is not None:
            return known
        thread = self._threads.get(tid)
        if thread is not None:
            return thread[0]
        return self._meet(tid) if tid > 0 else None

    def _bury(self, fds: list[int]) -> None:
        for fd in fds:
            number, is_thread = self._by_fd.pop(fd, (0, False))
            if not number:
                continue  # the descriptor of process events
            self._unwatch(fd)
            if is_thread:
                process, _ = self._threads.pop(number)
                process.threads.discard(number)
            else:
                self._forget(self.processes.pop(number))

    def _forget(self, process: WatchedProcess) -> None:
        for tid in process.threads:
            _, fd = self._threads.pop(tid)
            if self._by_fd.pop(fd, None) is not None:
                self._unwatch(fd)
        self._ended(process)

    def _unwatch(self, fd: int) -> None:
        """Unregister, too: a child that was forked and has not exec'ed holds a copy, for which epoll would report on."""
        self._epoll.unregister(fd)
        os.close(fd)

    # -- first sight

    def _meet(self, tid: int) -> WatchedProcess | None:
        pid = procfs.thread_group(tid)
        if not pid:
            return None
        process = self.processes.get(pid) or self.meet(pid)
        if process is not None and tid != pid:
            self._remember_thread(tid, process)
        return process

    def _remember_thread(self, tid: int, process: WatchedProcess) -> None:
        """Remember a thread by a pidfd. Before Linux 6.9 there is none, and it is looked up in /proc at each call."""
        fd = procfs.pidfd(tid, thread=True)
        if fd < 0:
            return
        if procfs.thread_group(tid) != process.pid:  # the id was reused before we had the pidfd
            os.close(fd)
            return
        self._watch(fd, tid, is_thread=True)
        self._threads[tid] = (process, fd)
        process.threads.add(tid)

    def _watch(self, fd: int, number: int, *, is_thread: bool) -> None:
        self._by_fd[fd] = (number, is_thread)
        self.watch_events(fd)

    def watch_events(self, fd: int) -> None:
        """Call ``follow_forks`` when a descriptor is readable, too."""
        self._epoll.register(fd, select.EPOLLIN)

    def meet(self, pid: int) -> WatchedProcess | None:
        """Enter a process with the binding that it inherits; enter its parent first if that is not known."""
        seen = procfs.read(pid)
        if seen is None:
            return None
        known = self.processes.get(pid)
        if known is not None and known.started == seen.started:
            return known
        if known is not None:  # it has ended, and its number has another process already
            self._bury([known.fd])
        fd = procfs.pidfd(pid, thread=False)
        process = WatchedProcess(pid, seen.started, fd)
        self._inherit(process, seen.parent)
        if fd >= 0:  # else it has ended: the answer holds for this request only
            self._enter(process)
        return process

    def revive(self, pid: int, started: int) -> WatchedProcess | None:
        """Enter a process without a binding; None if it has ended."""
        process = WatchedProcess(pid, started, procfs.pidfd(pid, thread=False))
        return process if process.fd >= 0 and self._enter(process) else None

    def _enter(self, process: WatchedProcess) -> bool:
        again = procfs.read(process.pid)
        if again is None or again.started != process.started:
            os.close(process.fd)
            return False
        self._watch(process.fd, process.pid, is_thread=False)
        self.processes[process.pid] = process
        self._met(process)
        return True
