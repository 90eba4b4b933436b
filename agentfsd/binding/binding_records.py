"""Keeps bindings in a file that the daemon maps into memory, so that the next daemon finds them after a SIGKILL.

A record costs a store into memory and no system call: the kernel keeps the pages of the file when the process dies. A reboot ends
every process, so a file of another boot, or of another pid namespace, counts as empty. Knows branches as opaque ids.
"""

import contextlib
import logging
import mmap
import os
import struct
import time
import zlib

import msgspec

from agentfsd.binding import procfs

log = logging.getLogger(__name__)

_MAGIC = b"agentfsd bindings 1\n"
_HEADER = struct.Struct("=20s92sQQ")  # magic, where (boot, pid namespace, its first process), created, current
_CREATED_AT, _CURRENT_AT = 112, 120
_FLAGS_AT = 128
_WORD = struct.Struct("=Q")
_INCOMPLETE, _UNMARKED = 1, 2
_FIRST_SLOT = 2  # the header takes two
_SLOT_BYTES = 128
_BODY = struct.Struct("=IIQQIIQQ32s32s")  # as the fields of Record
_CHECKSUM = struct.Struct("=I")
_SLOTS_AT_FIRST = 1024


class Record(msgspec.Struct, frozen=True):
    """What is kept of one process.

    Attributes:
        pid: Its process id.
        started: Its start time in clock ticks since boot; 0 where only its fork was seen.
        forked_ns: When it was forked, by CLOCK_BOOTTIME in nanoseconds; 0 where ``started`` is known.
        branch_id: The branch it is bound to; "" for none.
        children_branch_id: The branch of the processes that it starts; "" for none.
        explicit: Whether the process itself was bound, instead of an ancestor.
        ancestor: Whether it is kept only because the kernel may give it the orphans of bound processes.
        heir_of: Process id and start time of the process whose binding it has.
        since_ns: When it was bound or first seen, by the wall clock in nanoseconds.
    """

    pid: int
    started: int
    forked_ns: int
    branch_id: str
    children_branch_id: str = ""
    explicit: bool = False
    ancestor: bool = False
    heir_of: tuple[int, int] = (0, 0)
    since_ns: int = 0

    def is_of(self, process: procfs.Process) -> bool:
        """Return whether *process* is the process of this record, and not a later one with its number."""
        if self.started:
            return process.started == self.started
        apart_ns = self.forked_ns - procfs.ticks_to_ns(process.started)
        return -2 * procfs.TICK_NS <= apart_ns <= _FORK_LATE_NS


_FORK_LATE_NS = 1_000_000_000  # the kernel tells of a fork after it set the start time; a busy machine may stop it in between


class BindingRecords:
    """The records of one daemon. Single-threaded.

    Attributes:
        found: The records of the daemon before this one, of processes that may have ended since.
        gap_began_ns: Since when (CLOCK_BOOTTIME, nanoseconds) no daemon has followed forks; 0 if there was none before.
    """

    def __init__(self, path: str) -> None:
        """Open the records at *path*, or begin new ones. OSError if the file cannot be made."""
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._slots: dict[int, int] = {}
        self._kept: dict[int, Record] = {}
        self.found: list[Record] = []
        self.gap_began_ns = 0
        where = _where()
        try:
            if not self._is_of(where):
                self._begin(where)
            self._map = mmap.mmap(self._fd, 0)
        except BaseException:
            os.close(self._fd)
            raise
        self._free = list(range(len(self._map) // _SLOT_BYTES - 1, _FIRST_SLOT - 1, -1))
        self._read()

    def _is_of(self, where: bytes) -> bool:
        header = os.pread(self._fd, _HEADER.size, 0)
        if len(header) < _HEADER.size or os.fstat(self._fd).st_size % _SLOT_BYTES:
            return False
        magic, written, _, _ = _HEADER.unpack(header)
        return bool(magic == _MAGIC and written == where.ljust(92, b"\0"))

    def _begin(self, where: bytes) -> None:
        now_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        os.ftruncate(self._fd, 0)
        os.posix_fallocate(self._fd, 0, _SLOTS_AT_FIRST * _SLOT_BYTES)  # a store into a hole on a full disk would be SIGBUS
        os.pwrite(self._fd, _HEADER.pack(_MAGIC, where, now_ns, now_ns), 0)

    def _read(self) -> None:
        created_ns, current_ns = (_WORD.unpack_from(self._map, at)[0] for at in (_CREATED_AT, _CURRENT_AT))
        used = set()
        for slot in self._free:
            (checksum,) = _CHECKSUM.unpack_from(self._map, slot * _SLOT_BYTES)
            if not checksum:
                continue
            used.add(slot)
            record = self._unpack(slot, checksum)
            if record is None:  # the daemon was killed while it wrote it, before it called the records current
                self._erase(slot)
                used.discard(slot)
                continue
            if record.pid in self._slots:  # killed between the new record of a process and the end of its old one
                self._erase(self._slots[record.pid])
                used.discard(self._slots[record.pid])
            self._slots[record.pid], self._kept[record.pid] = slot, record
        self._free = [slot for slot in self._free if slot not in used]
        self.found = list(self._kept.values())
        if self.found:
            self.gap_began_ns = created_ns if self._has(_INCOMPLETE) else current_ns

    def _unpack(self, slot: int, checksum: int) -> Record | None:
        at = slot * _SLOT_BYTES + _CHECKSUM.size
        body = self._map[at : at + _BODY.size]
        if _checksum(body) != checksum:
            return None
        pid, flags, started, forked_ns, heir, _, heir_started, since_ns, branch, children = _BODY.unpack(body)
        return Record(
            pid, started, forked_ns, branch.rstrip(b"\0").decode(), children.rstrip(b"\0").decode(), bool(flags & 1),
            bool(flags & 2), (heir, heir_started), since_ns,
        )  # fmt: skip

    # -- the header's words

    def _has(self, flag: int) -> bool:
        return bool(_WORD.unpack_from(self._map, _FLAGS_AT)[0] & flag)

    def _set(self, flag: int) -> None:
        _WORD.pack_into(self._map, _FLAGS_AT, _WORD.unpack_from(self._map, _FLAGS_AT)[0] | flag)

    @property
    def has_unmarked(self) -> bool:
        """Whether some process was bound since boot that bears no mark which its descendants inherit (a seccomp filter)."""
        return self._has(_UNMARKED)

    def bound_unmarked(self) -> None:
        """Note that a process was bound that bears no such mark."""
        self._set(_UNMARKED)

    def set_current(self, now_ns: int) -> None:
        """Note that all forks before *now_ns* (CLOCK_BOOTTIME) are in the records."""
        _WORD.pack_into(self._map, _CURRENT_AT, now_ns)

    # -- records

    def put(self, record: Record) -> None:
        """Keep a record in place of what is kept of that process. The new one is whole before the old one ends."""
        if self._kept.get(record.pid) == record:
            return
        if not self._free and not self._grow():
            return
        slot = self._free.pop()
        body = _BODY.pack(
            record.pid, record.explicit | record.ancestor << 1, record.started, record.forked_ns, record.heir_of[0], 0,
            record.heir_of[1], record.since_ns, record.branch_id.encode(), record.children_branch_id.encode(),
        )  # fmt: skip
        at = slot * _SLOT_BYTES
        self._map[at + _CHECKSUM.size : at + _CHECKSUM.size + len(body)] = body
        _CHECKSUM.pack_into(self._map, at, _checksum(body))
        self.drop(record.pid)
        self._slots[record.pid], self._kept[record.pid] = slot, record

    def drop(self, pid: int) -> None:
        """Forget a process."""
        slot = self._slots.pop(pid, None)
        if slot is not None:
            del self._kept[pid]
            self._erase(slot)
            self._free.append(slot)

    def kept(self) -> list[Record]:
        """Return the records that are kept now."""
        return list(self._kept.values())

    def _erase(self, slot: int) -> None:
        _CHECKSUM.pack_into(self._map, slot * _SLOT_BYTES, 0)

    def _grow(self) -> bool:
        size = len(self._map)
        try:
            os.posix_fallocate(self._fd, size, size)
        except OSError as exc:
            if not self._has(_INCOMPLETE):
                log.warning("%s cannot grow: %s: after a crash more processes would be refused", self._path, exc.strerror)
            self._set(_INCOMPLETE)
            return False
        self._map.resize(2 * size)
        self._free += range(2 * size // _SLOT_BYTES - 1, size // _SLOT_BYTES - 1, -1)
        return True

    def close(self) -> None:
        """Unmap the file. The records stay for the next daemon."""
        with contextlib.suppress(ValueError):
            self._map.close()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _checksum(body: bytes) -> int:
    return zlib.crc32(body) or 1  # 0 is a free slot


def _where() -> bytes:
    """Name the boot and the pid namespace, in which alone process ids and start times mean something."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip()
    first = procfs.read(1)
    return f"{boot} {os.readlink('/proc/self/ns/pid')} {first.started if first is not None else 0}".encode()
