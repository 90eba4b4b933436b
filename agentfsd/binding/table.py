"""Which branch each process is bound to: by an explicit request, or inherited from its parent.

A cached answer is valid only while a pidfd shows that the thread lives, since the kernel reuses process ids within seconds.
Bindings are kept in records that the next daemon takes over. Knows branches as opaque ids.
"""

import errno
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from agentfsd.binding import lost_forks, procfs
from agentfsd.binding.binding_records import BindingRecords, Record
from agentfsd.binding.fork_watch import ForkWatch
from agentfsd.binding.heritage import Heritage, left_by
from agentfsd.binding.unseen_descendants import UnseenDescendants
from agentfsd.binding.watched_processes import WatchedProcess, WatchedProcesses

log = logging.getLogger(__name__)

IN_DOUBT = "in-doubt"  # in place of a branch id: the process may have escaped from a branch while nobody followed forks


@dataclass(frozen=True, slots=True)
class BoundProcess:
    """A live process and its branch (or IN_DOUBT); ``explicit`` if the process itself was bound, else it inherited the branch."""

    pid: int
    branch_id: str
    explicit: bool
    command: str
    since_ns: int


class Bindings:
    """The bindings of one daemon. Single-threaded. Holds a pidfd for each live process, and each further thread, that it saw.

    Args:
        records: Where bindings are kept for the next daemon; None to keep none.
    """

    def __init__(self, records: BindingRecords | None = None) -> None:
        self._records = records
        self._watched = WatchedProcesses(self._follow_forks, self._inherit, self._was_met, self._has_ended)
        self._find, self._processes = self._watched.find, self._watched.processes
        self._forks = ForkWatch()
        self._unseen = UnseenDescendants(self._watched, records)
        self._ancestors: dict[int, int] = {}  # pid -> start time: free, and the kernel may give them orphans of bound ones
        self._current_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)  # all forks before are known
        self._own_pid = os.getpid()
        self.on_bind: Callable[[str], None] = lambda branch_id: None  # called before a process sees another branch

    def close(self) -> None:
        """Close all descriptors."""
        self._forks.close()
        self._watched.close()
        if self._records is not None:
            self._records.close()

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

    # -- first sight, and the end

    def _inherit(self, known: WatchedProcess, parent_pid: int) -> None:
        if known.pid == self._own_pid:
            return  # a run may have started the daemon, which is in no branch
        self._unseen.forget_earlier(known.pid, known.started)
        heritage = self._unseen.heritage_of(known.pid, known.started)
        if heritage is None and parent_pid > 1:
            heritage = left_by(self._processes.get(parent_pid) or self._watched.meet(parent_pid))
        if heritage is not None:
            known.branch_id, known.heir_of = heritage

    def _was_met(self, known: WatchedProcess) -> None:
        self._unseen.was_met(known.pid)
        if known.branch_id is not None:
            self._keep(known)

    def _has_ended(self, known: WatchedProcess) -> None:
        if self._records is not None and known.pid not in self._unseen:  # else its number has a new process already
            self._records.drop(known.pid)

    # -- forks

    def _watch_forks(self) -> None:
        """Listen for forks from the first binding on, so that a process which forks twice keeps its branch."""
        if not self._forks.listening and self._forks.listen():
            self._watched.watch_events(self._forks.fd)

    @property
    def forks_fd(self) -> int:
        """A descriptor that is readable when there are process events; -1 as long as nobody is bound."""
        return self._forks.fd

    def drain(self) -> None:
        """Process the kernel's process events. Call often enough that its buffer does not overflow."""
        now_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        self._find(0)
        if self._forks.lost:
            self._follow_forks()
        self._set_current(now_ns)

    def _set_current(self, now_ns: int) -> None:
        self._current_ns = max(now_ns, self._current_ns)
        if self._records is not None:
            self._records.set_current(self._current_ns)

    def _follow_forks(self) -> None:
        now_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        was_bound = bool(self._unseen)
        self._read_forks()
        if self._forks.lost:
            self._forks.lost = False
            log.info("the kernel dropped process events: new processes are looked for in /proc")
            if was_bound or self.branches():  # else nobody can have escaped
                self._search(self._current_ns)
        self._set_current(now_ns)

    def _read_forks(self) -> None:
        self._unseen.follow(self._forks.news())

    # -- after a time in which nobody followed forks

    def take_over(self) -> int:
        """Take over the bindings of the daemon before this one; return how many live processes are bound or in doubt."""
        if self._records is None or not self._records.found:
            return 0
        self._watch_forks()  # first: from here on no fork is missed
        now_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        for record in self._records.found:
            process = procfs.read(record.pid)
            if process is None or not record.is_of(process.started):
                self._records.drop(record.pid)
                continue
            if record.ancestor:
                self._ancestors[record.pid] = process.started
            if record.branch_id or record.children_branch_id:
                self._revive(record, process)
        for branch_id in self.branches() - {IN_DOUBT}:
            self.on_bind(branch_id)
        if any(record.branch_id or record.children_branch_id for record in self._records.found):
            self._search(self._records.gap_began_ns)
        self._write_records()
        self._set_current(now_ns)
        return len(self._unseen) + sum(known.branch_id is not None for known in self._processes.values())

    def _revive(self, record: Record, process: procfs.Process) -> None:
        known = self._watched.revive(record.pid, process.started)
        if known is None:  # it has ended, or there is no descriptor for it
            self._unseen.put_back(record)
            return
        known.branch_id, known.children_branch_id = record.branch_id or None, record.children_branch_id or None
        known.explicit, known.heir_of = record.explicit, record.heir_of
        known.since_ns = record.since_ns or known.since_ns

    def _search(self, since_ns: int) -> None:
        """Work out the branch of each process that may have been started since then (CLOCK_BOOTTIME, nanoseconds).

        Look twice: a process may end before it is looked at, and its event may come too late for what it has started.
        """
        doubtful = self._search_once(since_ns)
        self._read_forks()
        doubtful |= self._search_once(since_ns)
        if doubtful:
            log.warning(
                "%d processes may have escaped from a branch while nobody followed them, and are refused;"
                " `agentfsd bindings` lists them, `agentfsd bind` or `agentfsd unbind` settles it", len(doubtful),
            )  # fmt: skip

    def _search_once(self, since_ns: int) -> set[int]:
        self._unseen.forget_ended()
        search = lost_forks.Search(since_ns, self._own_pid, self._left_by_process, self._ancestors, self._is_marked_only())
        doubtful = set()
        for process in lost_forks.started_since(since_ns):
            known = self._processes.get(process.pid)
            if known is not None and known.started != process.started:
                known = None
            if (
                self._ancestors.get(process.pid) == process.started
                or process.pid in self._unseen
                or (known is not None and known.branch_id is not None)
            ):
                continue
            verdict = search.judge(process)
            if verdict is None:
                continue
            heritage = verdict if isinstance(verdict, Heritage) else Heritage(IN_DOUBT, (verdict.pid, verdict.started))
            if heritage.branch_id == IN_DOUBT:
                doubtful.add(process.pid)
            self._give(process, known, heritage)
        return doubtful

    def _give(self, process: procfs.Process, known: WatchedProcess | None, heritage: Heritage) -> None:
        if known is None:
            self._unseen.add(Record(process.pid, process.started, 0, heritage.branch_id, heir_of=heritage.heir_of))
            if not self._forks.listening:
                self._watched.meet(process.pid)  # its pidfd says when it ends
        else:
            known.branch_id, known.heir_of = heritage
            self._keep(known)

    def _left_by_process(self, process: procfs.Process) -> Heritage | None:
        heritage = self._unseen.heritage_of(process.pid, process.started)
        known = self._processes.get(process.pid)
        if heritage is not None or known is None or known.started != process.started:
            return heritage
        return left_by(known)

    def _is_marked_only(self) -> bool:
        return self._records is not None and not self._records.has_unmarked

    # -- records

    def _record_of(self, known: WatchedProcess) -> Record:
        return Record(
            known.pid, known.started, 0, known.branch_id or "", known.children_branch_id or "", known.explicit,
            self._ancestors.get(known.pid) == known.started, known.heir_of, known.since_ns,
        )  # fmt: skip

    def _keep(self, known: WatchedProcess) -> None:
        if self._records is not None:
            self._records.put(self._record_of(known))

    def _write_records(self) -> None:
        """Make the records agree with what is bound now."""
        if self._records is None:
            return
        wanted = {pid: Record(pid, started, 0, "", ancestor=True) for pid, started in self._ancestors.items()}
        wanted |= {record.pid: record for record in self._unseen}
        wanted |= {
            pid: self._record_of(known) for pid, known in self._processes.items() if known.branch_id or known.children_branch_id
        }
        for record in self._records.kept():
            if record.pid not in wanted:
                self._records.drop(record.pid)
        if all([self._records.put(record) for record in wanted.values()]):
            self._records.set_complete()

    def _meet_descendants(self, known: WatchedProcess) -> None:
        """Meet what a process has started before it is bound, so that it stays known when the process ends."""
        descendants = procfs.descendants(known.pid)
        for pid in descendants:
            self._find(pid)
        if self._records is not None and not all(procfs.has_filter(pid) for pid in (known.pid, *descendants)):
            self._records.bound_unmarked()

    def _note_ancestors(self, known: WatchedProcess) -> None:
        """Remember the ancestors of a process that is bound: to one of them the kernel gives the orphans of its descendants."""
        self._ancestors = {pid: started for pid, started in self._ancestors.items() if lost_forks.lives(pid, started)}
        for process in lost_forks.ancestors(known.pid):
            self._ancestors[process.pid] = process.started

    # -- binding

    def bind(self, pid: int, branch_id: str) -> None:
        """Bind a process and its live descendants without an explicit binding.

        Raises:
            ProcessLookupError: It does not live.
            OSError: ENOSPC, there is no room to keep the binding; nothing was changed.
        """
        known = self._living(pid)
        heir_of = (known.pid, known.started)
        kept = Record(known.pid, known.started, 0, branch_id, known.children_branch_id or "", explicit=True, heir_of=heir_of)
        if self._records is not None and not self._records.put(kept):
            raise OSError(errno.ENOSPC, "no room is left in the state directory to keep the binding")
        self._watch_forks()
        self.on_bind(branch_id)
        self._meet_descendants(known)
        known.branch_id, known.explicit, known.heir_of = branch_id, True, heir_of
        known.since_ns = time.time_ns()
        self._unseen.give(known.heir_of, branch_id)
        self._hand_down()
        self._note_ancestors(known)
        self._write_records()

    def bind_children(self, pid: int, branch_id: str) -> None:
        """Bind the processes that this one starts or becomes the parent of, but not itself; ProcessLookupError."""
        known = self._living(pid)
        self.on_bind(branch_id)
        known.children_branch_id = branch_id
        self._watch_forks()
        self._write_records()

    def _living(self, number: int) -> WatchedProcess:
        known = self._find(number)
        seen = procfs.read(known.pid) if known is not None else None
        if known is None or seen is None or known.fd < 0 or not procfs.runs(seen):
            raise ProcessLookupError(3, f"there is no process {number}")
        return known

    def unbind(self, pid: int) -> bool:
        """Remove an explicit binding and those inherited from it, or a doubt; return False if there was none."""
        known = self._find(pid)
        if known is None or not (known.explicit or known.branch_id == IN_DOUBT):
            return False
        heir_of = known.heir_of
        if known.branch_id == IN_DOUBT:
            self._ancestors[known.pid] = known.started  # kept as free
        heirs = [heir for heir in self._processes.values() if heir.heir_of == heir_of]
        unseen = [record for record in self._unseen if record.heir_of == heir_of]
        self._release(lambda heir: heir.heir_of == heir_of)
        self._hand_down()
        if known.branch_id is not None:  # that of an ancestor: orphans of the process have it, too
            for heir in heirs:
                if heir.branch_id is None:
                    heir.branch_id, heir.heir_of = known.branch_id, known.heir_of
            for record in unseen:
                self._unseen.put_back(msgspec.structs.replace(record, branch_id=known.branch_id, heir_of=known.heir_of))
        self._write_records()
        return True

    def drop_branch(self, branch_id: str) -> int:
        """Unbind every process of a branch; return how many there were."""
        for known in self._processes.values():
            if known.children_branch_id == branch_id:
                known.children_branch_id = None
        count = self._release(lambda known: known.branch_id == branch_id)
        self._write_records()
        return count

    def _release(self, chosen: Callable[[WatchedProcess | Record], bool]) -> int:
        count = 0
        self._unseen.release(chosen)
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

    def _settle(self, pid: int, done: set[int]) -> "WatchedProcess | None":
        known = self._processes.get(pid)
        if known is None or pid in done:
            return known
        done.add(pid)
        if known.explicit:
            return known
        seen = procfs.read(pid)
        if seen is None or seen.parent <= 1:
            return known  # its parent has gone: what it inherited when it was seen stays
        heritage = left_by(self._settle(seen.parent, done) or self._watched.meet(seen.parent))
        if heritage is not None and known.pid != self._own_pid:
            known.branch_id, known.heir_of = heritage
        return known

    def seen(self) -> tuple[int, int]:
        """Return how many live processes are watched, and how many further threads and unseen descendants are known."""
        return len(self._processes), self._watched.thread_count() + len(self._unseen)

    def sees_other_than(self, branch_id: str) -> bool:
        """Return whether any process may be bound to another branch."""
        if any(record.branch_id != branch_id for record in self._unseen):
            return True
        return any(known.branch_id not in (None, branch_id) or known.children_branch_id for known in self._processes.values())

    def is_in(self, branch_id: str) -> bool:
        """Return whether a process may be bound to that branch. A process that has ended counts until drain()."""
        return branch_id in self.branches()

    def branches(self) -> set[str]:
        """Return every branch to which a process may be bound."""
        bound = {record.branch_id for record in self._unseen}
        for known in self._processes.values():
            bound |= {branch_id for branch_id in (known.branch_id, known.children_branch_id) if branch_id is not None}
        return bound

    def bindings(self) -> list[BoundProcess]:
        """Return every live bound process that we know, in order of process id."""
        self._find(0)
        for record in self._unseen:
            self._watched.meet(record.pid)
        processes = []
        for known in self._processes.values():
            seen = procfs.read(known.pid) if known.branch_id is not None else None
            if seen is not None and known.branch_id is not None and procfs.runs(seen):
                processes.append(BoundProcess(known.pid, known.branch_id, known.explicit, seen.command, known.since_ns))
        return sorted(processes, key=lambda binding: binding.pid)
