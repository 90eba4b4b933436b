"""A checksum of every page of the database's main file, in a file beside it, and the checkpoints that keep both in step.

SQLite has checksums in its write-ahead log and none in the main file, which changes at a checkpoint alone. So checkpoints
are made here: SQLite copies the pages that the log holds, then their checksums are written; until then a start reads those
pages from the log. A page whose checksum differs, and which the log does not hold, is damaged.
"""

import contextlib
import os
import sqlite3
import struct
import zlib
from collections.abc import Iterable, Iterator

SUFFIX = "-sums"

_MAGIC = b"agentfsd-sums-1\0"
_HEADER = struct.Struct("<16sIQB")  # magic, bytes of a page, pages, whether a daemon is using the database; a checksum follows
_CHECKSUM = struct.Struct("<I")
_ENTRY = struct.Struct("<II")  # a page's checksum, twice: the second with other bits, so that a damaged entry shows
_OTHER_BITS = 0x5A5A5A5A
_FIRST = 4096  # where entries begin
_ROOM_BYTES = 1 << 16  # the file grows by so much, before it is needed
_CHECKPOINT_PAGES = 1000  # in the log, as SQLite's own default has it

_LOG_HEADER = struct.Struct(">IIII8s")  # of the write-ahead log: magic, version, bytes of a page, checkpoints, salt
_LOG_START = 32
_LOG_FRAME = struct.Struct(">II8s")  # number of the page, pages of the database at a commit (else 0), salt
_LOG_FRAME_BYTES = 24
_LOG_CHECKSUM = struct.Struct(">II")
_WORD_ORDERS = {b"\x37\x7f\x06\x82": "<", b"\x37\x7f\x06\x83": ">"}  # by the magic number: of words that are summed up


class ChecksumFile:
    """The file of checksums. Methods that write raise OSError."""

    def __init__(self, path: str, *, writes: bool) -> None:
        """*path*: of the database. FileNotFoundError when it is only read, and is not there."""
        flags = os.O_RDWR | os.O_CREAT if writes else os.O_RDONLY
        self._fd = os.open(path + SUFFIX, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self.page_bytes = self.count = 0
        self.in_use = self.is_sound = False
        self._read_header()

    def _read_header(self) -> None:
        head = os.pread(self._fd, _HEADER.size + _CHECKSUM.size, 0)
        if len(head) < _HEADER.size + _CHECKSUM.size:
            return
        magic, page_bytes, count, in_use = _HEADER.unpack_from(head)
        (checksum,) = _CHECKSUM.unpack_from(head, _HEADER.size)
        if magic == _MAGIC and checksum == zlib.crc32(head[: _HEADER.size]):
            self.page_bytes, self.count, self.in_use, self.is_sound = page_bytes, count, bool(in_use), True

    @property
    def is_empty(self) -> bool:
        return os.fstat(self._fd).st_size == 0

    def write_header(self, page_bytes: int, count: int, *, in_use: bool) -> None:
        fields = _HEADER.pack(_MAGIC, page_bytes, count, in_use)
        os.pwrite(self._fd, fields + _CHECKSUM.pack(zlib.crc32(fields)), 0)
        self.page_bytes, self.count, self.in_use, self.is_sound = page_bytes, count, in_use, True

    def make_room(self, count: int) -> None:
        """Allocate space for the checksums of *count* pages."""
        wanted = _FIRST + (count + 1) * _ENTRY.size
        if os.fstat(self._fd).st_size < wanted:
            os.posix_fallocate(self._fd, 0, wanted + _ROOM_BYTES)

    def put(self, page: int, content: bytes) -> None:
        """Write the checksum of a page. *page* counts from 1."""
        checksum = zlib.crc32(content)
        os.pwrite(self._fd, _ENTRY.pack(checksum, checksum ^ _OTHER_BITS), _FIRST + (page - 1) * _ENTRY.size)

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def forget(self) -> None:
        """Truncate the file: there are no checksums, because they could not be written."""
        os.ftruncate(self._fd, 0)
        self.is_sound = False

    def wrong(self, database_fd: int, page: int, count: int) -> Iterator[tuple[int, bool]]:
        """Compare *count* pages from *page* on with their checksums.

        Yields:
            (page, False) for a page that is not as it was written; (page, True) where the checksum itself is damaged.
        """
        count = min(count, self.count - page + 1)
        entries = os.pread(self._fd, count * _ENTRY.size, _FIRST + (page - 1) * _ENTRY.size)
        content = os.pread(database_fd, count * self.page_bytes, (page - 1) * self.page_bytes)
        for index in range(count):
            entry = entries[index * _ENTRY.size : (index + 1) * _ENTRY.size]
            expected, other = _ENTRY.unpack(entry) if len(entry) == _ENTRY.size else (0, 0)
            if expected ^ other != _OTHER_BITS:
                yield page + index, True
                continue
            data = content[index * self.page_bytes : (index + 1) * self.page_bytes]
            if len(data) < self.page_bytes or zlib.crc32(data) != expected:
                yield page + index, False

    def close(self) -> None:
        os.close(self._fd)


class WriteAheadLog:
    """The set of pages in the write-ahead log, up to its last commit. follow() keeps up with the log as it grows."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.pages: set[int] = set()
        self.frames = 0
        self._salt = b""
        self._at = _LOG_START
        self._page_bytes = 0

    def follow(self) -> None:
        """Read what was added to the log since the last call."""
        head = os.pread(self.fd, _LOG_HEADER.size, 0)
        if len(head) < _LOG_HEADER.size:
            self._restart(b"", 0)
            return
        _, _, page_bytes, _, salt = _LOG_HEADER.unpack(head)
        if salt != self._salt:
            self._restart(salt, page_bytes)
        at, frames, some = self._at, self.frames, set[int]()
        while len(frame := os.pread(self.fd, _LOG_FRAME.size, at)) == _LOG_FRAME.size:
            page, pages, salt = _LOG_FRAME.unpack(frame)
            if salt != self._salt:
                break
            at += _LOG_FRAME_BYTES + self._page_bytes
            frames += 1
            some.add(page)
            if pages:  # up to here; what follows without a commit is written over
                self.pages |= some
                self._at, self.frames = at, frames

    def has_commit(self) -> bool:
        """Return whether SQLite would find a commit in the log."""
        head = os.pread(self.fd, _LOG_START, 0)
        order = _WORD_ORDERS.get(head[:4])
        if len(head) < _LOG_START or order is None:
            return False
        checksum = _checksum(order, head[:24], (0, 0))
        if checksum != _LOG_CHECKSUM.unpack_from(head, 24):
            return False
        size, at = _LOG_FRAME_BYTES + int.from_bytes(head[8:12], "big"), _LOG_START
        while len(frame := os.pread(self.fd, size, at)) == size and frame[8:16] == head[16:24]:
            checksum = _checksum(order, frame[:8] + frame[_LOG_FRAME_BYTES:], checksum)
            if checksum != _LOG_CHECKSUM.unpack_from(frame, 16):
                return False
            if frame[4:8] != bytes(4):
                return True
            at += size
        return False

    def _restart(self, salt: bytes, page_bytes: int) -> None:
        self._salt, self._page_bytes, self._at, self.frames = salt, page_bytes, _LOG_START, 0
        self.pages.clear()


def _checksum(order: str, data: bytes, before: tuple[int, int]) -> tuple[int, int]:
    """SQLite's own: https://www.sqlite.org/fileformat2.html, section 4.2."""
    one, two = before
    for first, second in struct.iter_unpack(f"{order}II", data):
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + second + one) & 0xFFFFFFFF
    return one, two


class PageChecksums:
    """The page checksums of an open database."""

    def __init__(self, path: str, connection: sqlite3.Connection) -> None:
        """Raises OSError when checksums cannot be written; then none are kept."""
        self._connection = connection
        self._database_fd = os.open(
            path, os.O_RDONLY | os.O_CLOEXEC
        )  # never closed before the end: closing it would drop SQLite's lock
        self._log: WriteAheadLog | None = None
        self._log_path = path + "-wal"
        self._sums = ChecksumFile(path, writes=True)
        self.held = 0  # above 0: the main file is being copied, and must not change
        self._page_bytes = int(connection.execute("PRAGMA page_size").fetchone()[0])

    def begin(self, *, anew: bool) -> None:
        """Start after the database was opened: copy the log into the main file, and compute missing checksums.

        *anew*: compute all of them.
        """
        if anew or not self._sums.is_sound:
            self._sums.forget()
        if self.checkpoint():
            with contextlib.suppress(sqlite3.OperationalError):  # left-over frames could be taken for later ones
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if not self._sums.is_sound:
            self.renew()
        self._write_header(in_use=True)

    def renew(self) -> None:
        """Compute the checksums of all pages as they are now."""
        count = os.fstat(self._database_fd).st_size // self._page_bytes
        self._put(range(1, count + 1))

    def after_commit(self) -> None:
        """Make a checkpoint when the log holds a thousand pages."""
        if self._follow().frames >= _CHECKPOINT_PAGES and not self.held:
            self.checkpoint()

    def _follow(self) -> WriteAheadLog:
        if self._log is None:
            self._log = WriteAheadLog(os.open(self._log_path, os.O_RDONLY | os.O_CLOEXEC))
        self._log.follow()
        return self._log

    def checkpoint(self) -> bool:
        """Copy the log into the main file. False when not all was copied: a query is running, or the disk is full."""
        if not os.path.exists(self._log_path):
            return True
        log = self._follow()
        with contextlib.suppress(OSError):
            self._sums.make_room(max(log.pages, default=0))
        with contextlib.suppress(sqlite3.OperationalError):
            _, frames, copied = self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if frames == copied:
                self._put(log.pages) if self._sums.is_sound else self.renew()
                log.frames = 0  # until SQLite starts the log from its beginning
                return True
        return False

    def _put(self, pages: Iterable[int]) -> None:
        size = self._page_bytes
        try:
            count = os.fstat(self._database_fd).st_size // size
            self._sums.make_room(count)
            for page in pages:
                self._sums.put(page, os.pread(self._database_fd, size, (page - 1) * size))
            self._sums.write_header(size, count, in_use=self._sums.in_use)
            self._sums.sync()
        except OSError:
            self._sums.forget()

    def _write_header(self, *, in_use: bool) -> None:
        if self._sums.is_sound:
            self._sums.write_header(self._sums.page_bytes, self._sums.count, in_use=in_use)
            self._sums.sync()

    @property
    def is_sound(self) -> bool:
        """Whether there are checksums."""
        return self._sums.is_sound

    def wrong(self) -> Iterator[list[int]]:
        """Yield, step by step, the pages of the main file that are not as they were written."""
        step, page = 256, 1
        while self._sums.is_sound and page <= self._sums.count:
            held = self._follow().pages if os.path.exists(self._log_path) else set()
            yield [number for number, _ in self._sums.wrong(self._database_fd, page, step) if number not in held]
            page += step

    def end(self) -> bool:
        """Finish after the last commit of an orderly end.

        Returns:
            False when the log could not be copied into the main file, or the checksum file could not be marked as unused.
        """
        if not self.checkpoint():
            return False
        try:
            self._write_header(in_use=False)
        except OSError:
            return False
        return True

    def close(self, *, in_step: bool) -> None:
        """Close the files, after SQLite has closed.

        *in_step* False: SQLite has changed the main file by itself, so the checksums are dropped.
        """
        if not in_step:
            self._sums.forget()
        self._sums.close()
        os.close(self._database_fd)
        if self._log is not None:
            os.close(self._log.fd)
