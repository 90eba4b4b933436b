"""A ledger in shared memory: records of what the kernel holds, which the next daemon reads if this one is killed.

Records are written in place and never moved, so writing one costs half a microsecond. The word with a record's kind is written
last, as one word, and cleared first: SIGKILL leaves every record whole or absent. The memory is a file without a name (memfd).
Whoever holds its descriptor keeps it; after a reboot there is nothing to read, and nothing of the kernel's either.

This module knows no meaning of a record.
"""

import logging
import mmap
import os
import struct
import time
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

log = logging.getLogger(__name__)

ROOM_BYTES = 1 << 28  # of address space; memory is taken as records are written: for some three million files

_MAGIC = 0x31_72_65_67_64_65_6C  # "ledger1"
_START = 1 << 14  # of the records; the header comes before
_FACTS_AT, _FACTS_BYTES = 64, 4096 - 64
_MARKS_AT, _MARKS = 4096, 512  # pairs of words
_LIVES_AT = 56  # the words before are those of records that found no room
_BODY = struct.Struct("=6q")
_BLOCK = 16  # bytes: the unit of a record's size
_BODY_BYTES = 8 + _BODY.size
_MOST_PAYLOAD_BYTES = (1 << 24) - 1

_COUNTED, _MOST_COUNTED = 12288 >> 3, 400  # as words: a request, how many, and where
_NEXT_MARK = _COUNTED + 2 + _MOST_COUNTED  # as a word: its number
_LATE_S = 2.0
_LARGE = 16  # blocks

FREE = 0


class LedgerRecord(NamedTuple):
    """One record.

    Attributes:
        at: Where it is: what the other methods of Ledger take.
        kind: A number from 1 to 255 that the writer chose.
        words: Six integers.
        payload: Bytes.
    """

    at: int
    kind: int
    words: tuple[int, ...]
    payload: bytes


class Ledger:
    """Records in shared memory.

    Args:
        fd: The descriptor of a ledger that another daemon began; None to begin one. The ledger owns it.
        room_bytes: The address space of a new one.

    Attributes:
        fd: Its descriptor.
        life: How many daemons had it before.
        words: The memory as words. Word N of a record is at ``(at >> 3) + 1 + N``, and may be changed there. For a record that
            found no room (*at* 0) these are words that nobody reads.

    Raises:
        OSError: EINVAL, it is no ledger; ENOMEM, no address space.
    """

    def __init__(self, fd: int | None = None, room_bytes: int = ROOM_BYTES) -> None:
        self.fd = os.memfd_create("agentfsd-ledger", os.MFD_CLOEXEC) if fd is None else fd
        try:
            if fd is None:
                os.ftruncate(self.fd, room_bytes)
            self._room = os.fstat(self.fd).st_size
            self._memory = mmap.mmap(self.fd, self._room)
        except (OSError, ValueError) as exc:
            self.close()
            raise OSError(getattr(exc, "errno", None) or 22, f"no room for a ledger: {exc}") from exc
        self.words = memoryview(self._memory).cast("q")
        self._free: dict[int, list[int]] = {}
        self._late: deque[tuple[float, list[int]]] = deque()
        self._end = _START
        self._mark, self._counted = self.words[_NEXT_MARK] % _MARKS, self.words[_COUNTED + 1]
        self._is_full = False
        if fd is None:
            self.words[0] = _MAGIC
        elif self.words[0] != _MAGIC:
            self.close()
            raise OSError(22, "that is no ledger")
        else:
            self.words[_LIVES_AT // 8] += 1
        self.life = self.words[_LIVES_AT // 8]

    # -- facts: what is written once

    @property
    def facts(self) -> bytes:
        """What set_facts() wrote; b"" before."""
        (length,) = struct.unpack_from("=I", self._memory, _FACTS_AT)
        return bytes(self._memory[_FACTS_AT + 4 : _FACTS_AT + 4 + length])

    def set_facts(self, facts: bytes) -> None:
        """Write a few bytes about the whole ledger. ValueError for more than 4,000."""
        if len(facts) > _FACTS_BYTES - 4:
            raise ValueError("too many facts")
        self._memory[_FACTS_AT + 4 : _FACTS_AT + 4 + len(facts)] = facts
        struct.pack_into("=I", self._memory, _FACTS_AT, len(facts))

    # -- marks: pairs of numbers of which the last few hundred are kept

    def mark(self, key: int, value: int) -> None:
        """Remember a number for a key, in place of the oldest mark."""
        at = (_MARKS_AT >> 3) + 2 * self._mark
        self._mark = self.words[_NEXT_MARK] = (self._mark + 1) % _MARKS
        self.words[at] = 0
        self.words[at + 1] = value
        self.words[at] = key

    def marks(self) -> dict[int, int]:
        """Return the marks by key. A key is not 0."""
        first = _MARKS_AT >> 3
        pairs = ((self.words[at], self.words[at + 1]) for at in range(first, first + 2 * _MARKS, 2))
        return {key: value for key, value in pairs if key}

    # -- what the request under way has counted

    def count(self, at: int) -> None:
        """Remember a record that the present request has counted up, until answered()."""
        number = self._counted
        if number < _MOST_COUNTED:
            self.words[_COUNTED + 2 + number] = at
            self._counted = self.words[_COUNTED + 1] = number + 1

    def uncount(self, at: int) -> None:
        """Take the last count() back, if it was of the record at *at*."""
        number = self._counted
        if number and self.words[_COUNTED + 1 + number] == at:
            self._counted = self.words[_COUNTED + 1] = number - 1

    def begins(self, request: int) -> None:
        """Note that a request begins. The counts of one that was answered before do not matter any more."""
        if self._counted:
            self._counted = self.words[_COUNTED + 1] = 0
        self.words[_COUNTED] = request

    def counted(self) -> tuple[int, list[int]]:
        """Return the number of the request that the daemon before carried out last, and the records that it had counted up."""
        return self.words[_COUNTED], list(self.words[_COUNTED + 2 : _COUNTED + 2 + self.words[_COUNTED + 1]])

    # -- records

    def put(self, kind: int, words: tuple[int, int, int, int, int, int], payload: bytes = b"") -> int:
        """Write a record. Return where it is, or 0 if there is no room: the next daemon then does not know of it."""
        if self._late:
            self._drop_late()
        length = len(payload)
        blocks = (_BODY_BYTES + length + _BLOCK - 1) // _BLOCK
        if blocks > _LARGE:
            blocks = 1 << (blocks - 1).bit_length()  # so that one that grows finds room which others have left
        free = self._free.get(blocks)
        if free:
            at = free.pop()
        else:
            at = self._end
            if at + blocks * _BLOCK > self._room - _BLOCK or length > _MOST_PAYLOAD_BYTES:
                return self._refuse()
            self._end = at + blocks * _BLOCK
        _BODY.pack_into(self._memory, at + 8, *words)
        if length:
            self._memory[at + _BODY_BYTES : at + _BODY_BYTES + length] = payload
        self.words[at >> 3] = blocks << 32 | length << 8 | kind
        return at

    def _refuse(self) -> int:
        if not self._is_full:
            self._is_full = True
            log.warning("the ledger is full: if the daemon is killed, files that the kernel learns of from now on are lost to it")
        return 0

    def drop(self, at: int) -> None:
        """Remove a record; nothing if *at* is 0."""
        if at:
            blocks = self.words[at >> 3] >> 32
            self.words[at >> 3] = blocks << 32
            self._free.setdefault(blocks, []).append(at)

    def drop_later(self, places: list[int]) -> None:
        """Remove records after a while: the kernel is just being told, and the next daemon may have to tell it again."""
        self._late.append((time.monotonic() + _LATE_S, places))

    def _drop_late(self) -> None:
        now = time.monotonic()
        while self._late and self._late[0][0] < now:
            for at in self._late.popleft()[1]:
                self.drop(at)

    def records(self) -> Iterator[LedgerRecord]:
        """Yield every record. Call it once, before the first put(): it also finds what is free."""
        at, memory, words = _START, self._memory, self.words
        unpack, new = _BODY.unpack_from, tuple.__new__  # programs wait meanwhile: with 100,000 files each name costs 10 ms
        while head := words[at >> 3]:
            kind = head & 0xFF
            if kind == FREE:
                self._free.setdefault(head >> 32, []).append(at)
            else:
                start = at + _BODY_BYTES
                payload = memory[start : start + (head >> 8 & _MOST_PAYLOAD_BYTES)]
                yield new(LedgerRecord, (at, kind, unpack(memory, at + 8), payload))
            at += (head >> 32) * _BLOCK
        self._end = at

    def kind(self, at: int) -> int:
        """Return the kind of the record at *at*; FREE if there is none."""
        return self.words[at >> 3] & 0xFF

    def used_bytes(self) -> int:
        """Return how much memory the records take, in bytes."""
        return self._end - _START

    def close(self) -> None:
        """Close the descriptor. Others may hold the memory."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        if getattr(self, "fd", -1) >= 0:
            self.close()
