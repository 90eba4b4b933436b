"""Keeps bindings in a file, so that the next daemon finds them after a SIGKILL.

A record is one write of 128 bytes within a page, which SIGKILL does not tear. It is never synced: a reboot ends every process,
so a file of another boot, or of another pid namespace, counts as empty. Knows branches as opaque ids.
"""

import logging
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
        ancestor: Whether it is free, and kept because the kernel may give it orphans of bound processes or it was in doubt.
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

    def is_of(self, started: int) -> bool:
        """Return whether a process with that number and start time is the one of this record, and not a later one."""
        if self.started:
            return started == self.started
        apart_ns = self.forked_ns - procfs.ticks_to_ns(started)
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
        self._kept: dict[int, Record] = {}
        self.found: list[Record] = []
        self.gap_began_ns = 0
        self._slots: dict[int, int] = {}
        self._free: list[int] = []
        self._end = _FIRST_SLOT
        self._flags, self._warned = 0, False
        where = _where()
        try:
            if not self._is_of(where):
                self._begin(where)
            self._read()
        except BaseException:
            os.close(self._fd)
            raise

    def _is_of(self, where: bytes) -> bool:
        header = os.pread(self._fd, _HEADER.size, 0)
        if len(header) < _HEADER.size or os.fstat(self._fd).st_size % _SLOT_BYTES:
            return False
        magic, written, _, _ = _HEADER.unpack(header)
        return bool(magic == _MAGIC and written == where.ljust(92, b"\0"))

    def _begin(self, where: bytes) -> None:
        now_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        header = _HEADER.pack(_MAGIC, where, now_ns, now_ns) + _WORD.pack(0)
        os.pwrite(self._fd, header.ljust(_SLOTS_AT_FIRST * _SLOT_BYTES, b"\0"), 0)  # so that a full disk has room for some
        os.ftruncate(self._fd, _SLOTS_AT_FIRST * _SLOT_BYTES)

    def _read(self) -> None:
        content = os.pread(self._fd, os.fstat(self._fd).st_size, 0)
        created_ns, current_ns, self._flags = (_WORD.unpack_from(content, at)[0] for at in (_CREATED_AT, _CURRENT_AT, _FLAGS_AT))
        self._end = len(content) // _SLOT_BYTES
        for slot in range(_FIRST_SLOT, self._end):
            (checksum,) = _CHECKSUM.unpack_from(content, slot * _SLOT_BYTES)
            at = slot * _SLOT_BYTES + _CHECKSUM.size
            record = _unpack(content[at : at + _BODY.size], checksum) if checksum else None
            if record is not None and record.pid in self._slots:  # it was dropped while the disk was full
                self._erase(slot)
                record = None
            if record is None:
                self._free.append(slot)
                continue
            self._slots[record.pid], self._kept[record.pid] = slot, record
        self._free.reverse()
        self.found = list(self._kept.values())
        if self.found:
            self.gap_began_ns = created_ns if self._flags & _INCOMPLETE else current_ns

    # -- the header's words

    def _set(self, flags: int) -> None:
        if flags != self._flags:
            self._flags = flags
            self._write(_FLAGS_AT, _WORD.pack(flags))

    def _write(self, at: int, content: bytes) -> bool:
        try:
            return os.pwrite(self._fd, content, at) == len(content)
        except OSError as exc:
            if not self._warned:
                log.warning("%s cannot be written: %s: after a crash more processes would be refused", self._path, exc.strerror)
            self._warned = True
            return False

    @property
    def has_unmarked(self) -> bool:
        """Whether some process was bound since boot that bears no mark which its descendants inherit (a seccomp filter)."""
        return bool(self._flags & _UNMARKED)

    def bound_unmarked(self) -> None:
        """Note that a process was bound that bears no such mark."""
        self._set(self._flags | _UNMARKED)

    def set_current(self, now_ns: int) -> None:
        """Note that all forks before *now_ns* (CLOCK_BOOTTIME) are in the records."""
        self._write(_CURRENT_AT, _WORD.pack(now_ns))

    # -- records

    def put(self, record: Record) -> bool:
        """Keep a record in place of what is kept of that process; return False if there is no room for it."""
        if self._kept.get(record.pid) == record:
            return True
        slot = self._slots.get(record.pid)
        if slot is None:
            slot = self._free.pop() if self._free else self._end
        if not self._write(slot * _SLOT_BYTES, _pack(record)):
            self._set(self._flags | _INCOMPLETE)
            if record.pid not in self._slots and slot < self._end:
                self._free.append(slot)
            return False
        self._end = max(self._end, slot + 1)
        self._slots[record.pid], self._kept[record.pid] = slot, record
        return True

    def drop(self, pid: int) -> None:
        """Forget a process."""
        slot = self._slots.pop(pid, None)
        if slot is not None:
            del self._kept[pid]
            self._erase(slot)
            self._free.append(slot)

    def set_complete(self) -> None:
        """Note that the records hold all that is bound, after there was no room for some."""
        self._set(self._flags & ~_INCOMPLETE)

    def kept(self) -> list[Record]:
        """Return the records that are kept now."""
        return list(self._kept.values())

    def _erase(self, slot: int) -> None:
        self._write(slot * _SLOT_BYTES, _CHECKSUM.pack(0))

    def close(self) -> None:
        """Close the file. The records stay for the next daemon."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _pack(record: Record) -> bytes:
    body = _BODY.pack(
        record.pid, record.explicit | record.ancestor << 1, record.started, record.forked_ns, record.heir_of[0], 0,
        record.heir_of[1], record.since_ns, record.branch_id.encode(), record.children_branch_id.encode(),
    )  # fmt: skip
    return (_CHECKSUM.pack(_checksum(body)) + body).ljust(_SLOT_BYTES, b"\0")


def _unpack(body: bytes, checksum: int) -> Record | None:
    if _checksum(body) != checksum:
        return None
    pid, flags, started, forked_ns, heir, _, heir_started, since_ns, branch, children = _BODY.unpack(body)
    return Record(
        pid, started, forked_ns, branch.rstrip(b"\0").decode(), children.rstrip(b"\0").decode(), bool(flags & 1),
        bool(flags & 2), (heir, heir_started), since_ns,
    )  # fmt: skip


def _checksum(body: bytes) -> int:
    return zlib.crc32(body) or 1  # 0 is a free slot


def _where() -> bytes:
    """Name the boot and the pid namespace, in which alone process ids and start times mean something."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip()
    first = procfs.read(1)
    return f"{boot} {os.readlink('/proc/self/ns/pid')} {first.started if first is not None else 0}".encode()
