"""The operations acknowledged since the last commit of the database, in one small file that is overwritten after each commit.

A commit of SQLite writes a dozen pages; a record here is one write. Both survive SIGKILL. Records are numbered; those above the
last number in the database are replayed at the next start.

The file starts with a header, written at each commit: which commit that was, so that a database which has lost some is noticed.
Then comes a chain of frames, each with a checksum, up to one that says "end". A chain that does not reach its end is damaged: a
kill cannot leave one, because a write within one page is whole or absent. What does not fit into the rest of a page is written
to the next page first, and then linked.
"""

import os
import struct
import zlib
from typing import Any, NamedTuple

import msgspec

from agentfsd.domain_errors import NO_ROOM

Statement = tuple[str, tuple[Any, ...]]
Record = list[Statement]

_MAGIC = b"agentfsd-journal-2\n\0"
_HEADER = struct.Struct("<20s16sQQQ")  # magic, run, and numbers as in Header; a checksum follows
_CHECKSUM = struct.Struct("<I")
_FRAME = struct.Struct("<4sQI")  # tag, number of the record (or of the last one), length; a checksum of this and the body follows
_HEAD_BYTES = _FRAME.size + _CHECKSUM.size
_RECORD, _NEXT, _END = b"rec\n", b"next", b"end\n"
_START = 128  # of the chain
_PAGE = 4096
_ROOMS_BYTES = (1 << 20, 1 << 17)  # taken in advance: an append never finds the disk full; the second where it is almost so

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[tuple[str | int, list[Any]]])


class Header(NamedTuple):
    """``run``: which boot of which machine wrote it, and on which device. ``number``: that of the last record before the chain.
    ``commits``: how many the database has had. ``synced``: how many of them are known to be on the disk.
    """

    run: bytes
    number: int
    commits: int
    synced: int


class Chain(NamedTuple):
    """``numbered``: records with their numbers; ``texts``: their statements; ``at``: where the chain ends or breaks off."""

    numbered: list[tuple[int, Record]]
    texts: list[str]
    at: int
    is_whole: bool


class OperationJournal:
    """A journal that takes any number of appends, until reset() after the database has them all."""

    def __init__(self, path: str, number: int, run: bytes = bytes(16)) -> None:
        """*number*: that of the last record in the database. OSError when the disk has no room."""
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.number = number
        self._run = run
        self._at = _START
        self._known: dict[str, int] = {}  # a statement's text is written once, then it goes by number
        try:
            self._room = self._take_room()
            if read_header(os.pread(self._fd, _START, 0)) is None:
                self.reset(0, 0)
        except BaseException:
            os.close(self._fd)
            raise

    def _take_room(self) -> int:
        """Allocate the file, and return its size. A journal left by a killed daemon keeps its space."""
        for size in _ROOMS_BYTES[:-1]:
            try:
                os.posix_fallocate(self._fd, 0, size)
            except OSError as exc:
                if exc.errno not in NO_ROOM:
                    raise
            else:
                return size
        os.posix_fallocate(self._fd, 0, _ROOMS_BYTES[-1])
        return _ROOMS_BYTES[-1]

    def append(self, statements: Record) -> bool:
        """Write the statements of one operation. Return False when there is no room before the next reset()."""
        known, said = self._known, []
        new: list[str] = []
        for text, values in statements:
            number = known.get(text)
            if number is None:
                known[text] = len(known)
                new.append(text)
            said.append((text if number is None else number, values))
        body = _encoder.encode(said)
        try:
            is_kept = self._write(_frame(_RECORD, self.number + 1, body))
        except BaseException:
            self._forget(new)
            raise
        if not is_kept:
            self._forget(new)
        return is_kept

    def _forget(self, texts: list[str]) -> None:
        for text in texts:
            del self._known[text]

    def _write(self, frame: bytes) -> bool:
        number, at = self.number + 1, self._at
        length = len(frame) + _HEAD_BYTES
        is_moved = at % _PAGE + length > _PAGE
        if is_moved:
            at = _page_after(at)
        after = _next_frame(at + len(frame))
        if after + _HEAD_BYTES > self._room:
            return False
        gap = bytes(after - at - len(frame))
        os.pwrite(self._fd, frame + gap + _frame(_END, number), at)
        if is_moved:
            os.pwrite(self._fd, _frame(_NEXT, self.number), self._at)
        self._at, self.number = after, number
        return True

    def reset(self, commits: int, synced: int) -> None:
        """Start a new chain: the database has every record, by that commit. OSError: the chain is unchanged."""
        fields = _HEADER.pack(_MAGIC, self._run, self.number, commits, synced)
        header = fields + _CHECKSUM.pack(zlib.crc32(fields))
        os.pwrite(self._fd, header.ljust(_START, b"\0") + _frame(_END, self.number), 0)
        self._at = _START
        self._known.clear()

    def records(self) -> list[Record]:
        """Return the records that the database does not have, oldest first. Later appends follow them."""
        content = os.pread(self._fd, _ROOMS_BYTES[0], 0)
        header = read_header(content)
        chain = read_chain(content, header.number) if header is not None else Chain([], [], _START, False)
        base, records = self.number, []
        for number, statements in chain.numbered:
            if number == self.number + 1:
                records.append(statements)
                self.number = number
        self._at = chain.at
        self._known = {text: position for position, text in enumerate(chain.texts)}
        last = chain.numbered[-1][0] if chain.numbered else header.number if header is not None else -1
        if self.number == base and last != base:  # of an earlier time: nothing can be added to it
            self._at = self._room
        return records

    def sync(self) -> None:
        os.fsync(self._fd)

    def close(self) -> None:
        os.close(self._fd)


def read_header(content: bytes) -> Header | None:
    """Return the header; None when it is missing or damaged."""
    if len(content) < _HEADER.size + _CHECKSUM.size:
        return None
    magic, *fields = _HEADER.unpack_from(content)
    (checksum,) = _CHECKSUM.unpack_from(content, _HEADER.size)
    return Header(*fields) if magic == _MAGIC and checksum == zlib.crc32(content[: _HEADER.size]) else None


def read_chain(content: bytes, number: int) -> Chain:
    """Read a chain of frames. *number*: that of the last record before it."""
    texts: list[str] = []
    records: list[tuple[int, Record]] = []
    at = _START
    while (frame := _parse(content, at)) is not None:
        tag, said_number, body = frame
        if said_number != number + (tag == _RECORD):
            break
        if tag == _END:
            return Chain(records, texts, at, True)
        if tag == _NEXT:
            at = _page_after(at)
            continue
        records.append((said_number, _decode(body, texts)))
        at, number = _next_frame(at + _HEAD_BYTES + len(body)), said_number
    return Chain(records, texts, at, False)


def read_old(path: str, number: int) -> list[Record]:
    """Return the records after *number* of a journal in the format of schema version 3 and older."""
    frame = struct.Struct("<QII")  # number, length, checksum
    with open(path, "rb") as file:
        content = file.read()
    texts: list[str] = []
    records: list[Record] = []
    at = 0
    while at + frame.size <= len(content):
        said_number, length, checksum = frame.unpack_from(content, at)
        body = content[at + frame.size : at + frame.size + length]
        if said_number != number + 1 or zlib.crc32(body) != checksum:
            break
        records.append(_decode(body, texts))
        at, number = at + frame.size + length, number + 1
    return records


def is_old(path: str) -> bool:
    """Return whether a journal is in that older format."""
    with open(path, "rb") as file:
        start = file.read(len(_MAGIC))
    return start != _MAGIC and any(start)


def _decode(body: bytes, texts: list[str]) -> Record:
    statements = []
    for text, values in _decoder.decode(body):
        if isinstance(text, str):
            texts.append(text)
        statements.append((text if isinstance(text, str) else texts[text], tuple(values)))
    return statements


def _frame(tag: bytes, number: int, body: bytes = b"") -> bytes:
    head = _FRAME.pack(tag, number, len(body))
    return head + _CHECKSUM.pack(zlib.crc32(body, zlib.crc32(head))) + body


def _parse(content: bytes, at: int) -> tuple[bytes, int, bytes] | None:
    """Return (tag, number, body) of the frame at *at*; None when it is damaged."""
    if at + _HEAD_BYTES > len(content):
        return None
    tag, number, length = _FRAME.unpack_from(content, at)
    (checksum,) = _CHECKSUM.unpack_from(content, at + _FRAME.size)
    body = content[at + _HEAD_BYTES : at + _HEAD_BYTES + length]
    is_right = len(body) == length and checksum == zlib.crc32(body, zlib.crc32(content[at : at + _FRAME.size]))
    return (tag, number, body) if is_right and tag in (_RECORD, _NEXT, _END) else None


def _page_after(at: int) -> int:
    return (at // _PAGE + 1) * _PAGE


def _next_frame(at: int) -> int:
    """Return where the next frame starts: a frame's head lies within one page."""
    return _page_after(at) if at % _PAGE + _HEAD_BYTES > _PAGE else at
