"""Which branch each process is bound to: by an explicit request, or inherited from its parent.

A cached answer is valid only while a pidfd shows that the thread lives, since the kernel reuses process ids within seconds.
Knows branches as opaque ids.
"""

import os
import select
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from agentfsd.binding import procfs
from agentfsd.binding.fork_watch import ForkWatch


@dataclass(frozen=True, slots=True)
class BoundProcess:
    """A live process and its branch; ``explicit`` if the process itself was bound, else it inherited the branch."""

    pid: int
    branch_id: str
    explicit: bool
    command: str
    since_ns: int


class _Known:
    """A live process that was seen or bound. ``heir_of``: pid and start time of the process whose binding it has, else zeros."""

    __slots__ = ("branch_id", "children_branch_id", "explicit", "fd", "heir_of", "pid", "since_ns", "started", "threads")

    def __init__(self, pid: int, started: int, fd: int) -> None:
        self.pid, self.started, self.fd = pid, started, fd
        self.branch_id: str | None = None
        self.explicit = False
        self.heir_of: tuple[int, int] = (0, 0)
        self.children_branch_id: str | None = None  # the branch of the processes that it starts; it is not bound itself
        self.since_ns = time.time_ns()
        self.threads: set[int] = set()


class _Heritage(NamedTuple):
    """What a process inherits: a branch, and the process (pid, start time) that was bound to it explicitly."""

    branch_id: str
    heir_of: tuple[int, int]


class Bindings:
    """The bindings of one daemon. Single-threaded. Holds a pidfd for each live process, and each further thread, that it saw."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._by_fd: dict[int, tuple[int, bool]] = {}  # pidfd -> (number, is a thread)
        self._processes: dict[int, _Known] = {}
        self._threads: dict[int, tuple[_Known, int]] = {}  # tid -> (its process, pidfd of the thread)
        self._forks = ForkWatch()
        self._unseen: dict[int, _Heritage] = {}  # descendants of bound processes that have sent no request yet
        self._own_pid = os.getpid()
        self.on_bind: Callable[[str], None] = lambda branch_id: None  # called before a process sees another branch

    def close(self) -> None:
        """Close all descriptors."""
        self._forks.close()
        for fd in list(self._by_fd):
            os.close(fd)
        self._by_fd.clear()
        self._processes.clear()
        self._threads.clear()
        self._epoll.close()

    # -- the hot path

    def branch_of(self, tid: int) -> str | None:
        """Return the branch id of a thread's process; None if it is not bound, or outside our pid namespace."""
        known = self._find(tid)
        return known.branch_id if known is not None else None

    def process_of(self, tid: int) -> int:
        """Return the process of a thread; 0 if there is none."""
        known = self._find(tid)
        return known.pid if known is not None else 0

    def process_again(self, tid: int) -> int:
        """Return the same for a thread that waits for our answer and was looked up for this request: skip the check."""
        known = self._processes.get(tid)
        return known.pid if known is not None else self.process_of(tid)

    def _find(self, tid: int) -> _Known | None:
        news = self._epoll.poll(0)
        if news:
            self._follow_forks()  # first: a parent that has ended may have started processes before
            self._bury([fd for fd, _ in news])
        known = self._processes.get(tid)
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
                continue  # the descriptor of ForkWatch
            self._unwatch(fd)
            if is_thread:
                process, _ = self._threads.pop(number)
                process.threads.discard(number)
            else:
                self._forget_process(self._processes.pop(number))

    def _forget_process(self, known: _Known) -> None:
        for tid in known.threads:
            _, fd = self._threads.pop(tid)
            if self._by_fd.pop(fd, None) is not None:
                self._unwatch(fd)

    def _unwatch(self, fd: int) -> None:
        """Unregister, too: a child that was forked and has not exec'ed holds a copy, for which epoll would report on."""
        self._epoll.unregister(fd)
        os.close(fd)

    # -- first sight

    def _meet(self, tid: int) -> _Known | None:
        pid = procfs.thread_group(tid)
        if not pid:
            return None
        process = self._processes.get(pid) or self._meet_process(pid)
        if process is not None and tid != pid:
            self._remember_thread(tid, process)
        return process

    def _remember_thread(self, tid: int, process: _Known) -> None:
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
        self._epoll.register(fd, select.EPOLLIN)

    def _meet_process(self, pid: int) -> _Known | None:
        """Enter a process with the binding that it inherits; enter its parent first if that is not known."""
        seen = procfs.read(pid)
        if seen is None:
            return None
        fd = procfs.pidfd(pid, thread=False)
        known = _Known(pid, seen.started, fd)
        self._inherit(known, seen.parent)
        if fd < 0:
            return known  # no pidfd, or it has ended: the answer holds for this request only
        again = procfs.read(pid)
        if again is None or again.started != seen.started:
            os.close(fd)
            return known
        self._watch(fd, pid, is_thread=False)
        self._processes[pid] = known
        self._unseen.pop(pid, None)
        return known

    def _inherit(self, known: _Known, parent_pid: int) -> None:
        if known.pid == self._own_pid:
            return  # a run may have started the daemon, which is in no branch
        heritage = self._unseen.get(known.pid)
        if heritage is None and parent_pid > 1:
            heritage = _left_by(self._processes.get(parent_pid) or self._meet_process(parent_pid))
        if heritage is not None:
            known.branch_id, known.heir_of = heritage

    # -- descendants that have sent no request yet

    def _watch_forks(self) -> None:
        """Listen for forks from the first binding on, so that a process which forks twice keeps its branch."""
        if not self._forks.listening and self._forks.listen():
            self._epoll.register(self._forks.fd, select.EPOLLIN)

    def drain(self) -> None:
        """Process the kernel's process events. Call often enough that its buffer does not overflow."""
        self._find(0)

    def _follow_forks(self) -> None:
        ended: set[int] = set()
        for parent, pid in self._forks.news():
            self._unseen.pop(pid, None)
            if not parent:
                ended.add(pid)
                continue
            ended.discard(pid)
            heritage = self._unseen.get(parent)
            if heritage is None and parent not in ended:
                heritage = _left_by(self._processes.get(parent))
            if heritage is not None:
                self._unseen[pid] = heritage

    # -- binding

    def bind(self, pid: int, branch_id: str) -> None:
        """Bind a process and its live descendants without an explicit binding; ProcessLookupError if it does not live."""
        known = self._living(pid)
        self.on_bind(branch_id)
        known.branch_id, known.explicit, known.heir_of = branch_id, True, (known.pid, known.started)
        known.since_ns = time.time_ns()
        self._unseen = {
            number: _Heritage(branch_id, heritage.heir_of) if heritage.heir_of == known.heir_of else heritage
            for number, heritage in self._unseen.items()
        }
        self._watch_forks()
        self._hand_down()

    def bind_children(self, pid: int, branch_id: str) -> None:
        """Bind the processes that this one starts or becomes the parent of, but not itself; ProcessLookupError."""
        known = self._living(pid)
        self.on_bind(branch_id)
        known.children_branch_id = branch_id
        self._watch_forks()

    def _living(self, number: int) -> _Known:
        known = self._find(number)
        seen = procfs.read(known.pid) if known is not None else None
        if known is None or seen is None or seen.state in "ZX" or known.fd < 0:
            raise ProcessLookupError(3, f"there is no process {number}")
        return known

    def unbind(self, pid: int) -> bool:
        """Remove an explicit binding and those inherited from it; return False if there was none."""
        known = self._find(pid)
        if known is None or not known.explicit:
            return False
        self._release(lambda heir: heir.heir_of == (known.pid, known.started))
        self._hand_down()
        return True

    def drop_branch(self, branch_id: str) -> int:
        """Unbind every process of a branch; return how many there were."""
        for known in self._processes.values():
            if known.children_branch_id == branch_id:
                known.children_branch_id = None
        return self._release(lambda known: known.branch_id == branch_id)

    def _release(self, chosen: Callable[[_Known | _Heritage], bool]) -> int:
        count = 0
        self._unseen = {pid: heritage for pid, heritage in self._unseen.items() if not chosen(heritage)}
        for known in list(self._processes.values()):
            if known.branch_id is not None and chosen(known):
                known.branch_id, known.explicit, known.heir_of = None, False, (0, 0)
                count += 1
        return count

    def _hand_down(self) -> None:
        """Work out anew what each process without an explicit binding inherits, parents first."""
        done: set[int] = set()
        for pid in list(self._processes):
            self._settle(pid, done)

    def _settle(self, pid: int, done: set[int]) -> "_Known | None":
        known = self._processes.get(pid)
        if known is None or pid in done:
            return known
        done.add(pid)
        if known.explicit:
            return known
        seen = procfs.read(pid)
        if seen is None or seen.parent <= 1:
            return known  # its parent has gone: what it inherited when it was seen stays
        heritage = _left_by(self._settle(seen.parent, done) or self._meet_process(seen.parent))
        if heritage is not None and known.pid != self._own_pid:
            known.branch_id, known.heir_of = heritage
        return known

    def seen(self) -> tuple[int, int]:
        """Return how many live processes are watched, and how many further threads and unseen descendants are known."""
        return len(self._processes), len(self._threads) + len(self._unseen)

    def sees_other_than(self, branch_id: str) -> bool:
        """Return whether any process may be bound to another branch."""
        if any(heritage.branch_id != branch_id for heritage in self._unseen.values()):
            return True
        return any(known.branch_id not in (None, branch_id) or known.children_branch_id for known in self._processes.values())

    def is_in(self, branch_id: str) -> bool:
        """Return whether a process may be bound to that branch. A process that has ended counts until drain()."""
        return branch_id in self.branches()

    def branches(self) -> set[str]:
        """Return every branch to which a process may be bound."""
        bound = {heritage.branch_id for heritage in self._unseen.values()}
        for known in self._processes.values():
            bound |= {branch_id for branch_id in (known.branch_id, known.children_branch_id) if branch_id is not None}
        return bound

    def bindings(self) -> list[BoundProcess]:
        """Return every live bound process that we know, in order of process id."""
        self._find(0)
        for pid in list(self._unseen):
            self._meet_process(pid)
        processes = []
        for known in self._processes.values():
            seen = procfs.read(known.pid) if known.branch_id is not None else None
            if seen is not None and known.branch_id is not None and seen.state not in "ZX":
                processes.append(BoundProcess(known.pid, known.branch_id, known.explicit, seen.command, known.since_ns))
        return sorted(processes, key=lambda binding: binding.pid)


def _left_by(parent: _Known | None) -> _Heritage | None:
    """Return what the processes that *parent* starts inherit."""
    if parent is None:
        return None
    if parent.children_branch_id is not None:
        return _Heritage(parent.children_branch_id, (parent.pid, parent.started))
    return _Heritage(parent.branch_id, parent.heir_of) if parent.branch_id is not None else None
