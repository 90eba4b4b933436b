"""The index of a frozen base: what stat(2), readdir(3) and getxattr(2) showed of every name at one moment.

A file: the listings of the directories one after another, then a table that says where each begins, then a fixed ending. Only the
table is kept in memory.
"""

import errno
import os
import stat
import struct
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Mapping

import msgspec

from agentfsd.domain_errors import DamagedContent

_ENDING = struct.Struct("<QQI8s")  # where the table begins, its length in bytes, its CRC-32, the mark
_MARK = b"agfsbas1"
_LONG_BYTES = 64 << 10  # a longer listing is stored in parts, so that one look-up does not read all of it
_PART_NAMES = 256
_SECOND_NS = 1_000_000_000
_SHOWN_TYPES = (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK)


class FrozenEntry(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One name. ``dev`` is 0 for the device of the lower's root, ``blocks`` are of 512 bytes, times in ns since the epoch.

    Attributes:
        listed_ino: the inode number that readdir(3) showed; another than ``ino`` where something is mounted.
        failed: the errno with which stat(2) failed, 0 if it did not. Then only ``listed_ino`` and the type in ``mode`` are known.
        unreadable: the errno with which the file could not be opened, 0 if its content is known.
        xattrs: the extended attributes that could be read.
    """

    listed_ino: int
    mode: int
    ino: int = 0
    dev: int = 0
    nlink: int = 0
    uid: int = 0
    gid: int = 0
    rdev: int = 0
    size: int = 0
    mtime_ns: int = 0
    ctime_ns: int = 0
    failed: int = 0
    blocks: int = 0
    blksize: int = 0
    atime_ns: int = 0
    unreadable: int = 0
    xattrs: dict[bytes, bytes] | None = None

    @property
    def listed_type(self) -> int:
        """The type that LowerEntry has: 0 for what is neither a regular file, a directory nor a symlink."""
        kind = stat.S_IFMT(self.mode)
        return kind if kind in _SHOWN_TYPES else 0

    def status(self, root_device: int) -> os.stat_result:
        """Return the stat result that the original had; *root_device* is the present st_dev of the lower's root."""
        atime, atime_ns = divmod(self.atime_ns, _SECOND_NS)
        mtime, mtime_ns = divmod(self.mtime_ns, _SECOND_NS)
        ctime, ctime_ns = divmod(self.ctime_ns, _SECOND_NS)
        dev = self.dev or root_device
        return os.stat_result(
            (self.mode, self.ino, dev, self.nlink, self.uid, self.gid, self.size, atime, mtime, ctime),
            {  # the floats as os.stat() makes them
                "st_atime": atime + 1e-9 * atime_ns, "st_mtime": mtime + 1e-9 * mtime_ns, "st_ctime": ctime + 1e-9 * ctime_ns,
                "st_atime_ns": self.atime_ns, "st_mtime_ns": self.mtime_ns, "st_ctime_ns": self.ctime_ns,
                "st_blksize": self.blksize, "st_blocks": self.blocks, "st_rdev": self.rdev,
            },
        )  # fmt: skip


Listing = dict[bytes, FrozenEntry]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Listing).decode


def entry_of(status: os.stat_result, root_device: int, listed_ino: int) -> FrozenEntry:
    """Return the entry of a name from its stat result, without extended attributes."""
    return FrozenEntry(
        listed_ino, status.st_mode, status.st_ino, 0 if status.st_dev == root_device else status.st_dev, status.st_nlink,
        status.st_uid, status.st_gid, status.st_rdev, status.st_size, status.st_mtime_ns, status.st_ctime_ns, 0,
        status.st_blocks, status.st_blksize, status.st_atime_ns,
    )  # fmt: skip


def packed(listing: Listing) -> bytes:
    return _encode(listing)


def unpacked(blob: bytes) -> Listing:
    return _decode(blob)


class _Table(msgspec.Struct, array_like=True):
    root: FrozenEntry
    places: dict[bytes, list[tuple[int, int]]]  # path of a directory -> offset and length of each part of its listing, in bytes
    firsts: dict[bytes, list[bytes]]  # path of a directory with several parts -> the first name of each
    unlistable: dict[bytes, int]  # path of a directory -> errno


def write(path: str, root: FrozenEntry, listings: Mapping[bytes, bytes], unlistable: Mapping[bytes, int]) -> None:
    """Write the index, which the caller syncs.

    Args:
        path: the file, which must not exist.
        root: the entry of the root.
        listings: the packed listings by the directories' paths.
        unlistable: the errno of each directory that could not be listed.
    """
    table = _Table(root, {}, {}, dict(unlistable))
    with open(path, "xb") as file:
        for directory, blob in listings.items():
            places, firsts = [], []
            for first, part in _parts(blob):
                places.append((file.tell(), len(part)))
                firsts.append(first)
                file.write(part)
            table.places[directory] = places
            if len(firsts) > 1:
                table.firsts[directory] = firsts
        start, encoded = file.tell(), _encode(table)
        file.write(encoded + _ENDING.pack(start, len(encoded), zlib.crc32(encoded), _MARK))


def _parts(blob: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the listing, or if it is long, parts of it by name, each with its first name."""
    if len(blob) <= _LONG_BYTES:
        yield b"", blob
        return
    entries = sorted(unpacked(blob).items())
    for start in range(0, len(entries), _PART_NAMES):
        yield entries[start][0], packed(dict(entries[start : start + _PART_NAMES]))


class FrozenIndex:
    """A written index, open for reading. Any thread may call its methods."""

    def __init__(self, path: str) -> None:
        """Open it.

        Raises:
            DamagedContent: it is missing, or no index.
        """
        self._path, self._fd = path, -1
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            table = self._table()
        except (OSError, struct.error, msgspec.DecodeError) as exc:
            raise DamagedContent(f"the index {path} of a frozen base is damaged: {exc}") from exc
        self.root, self.unlistable = table.root, table.unlistable
        self._places, self._firsts = table.places, table.firsts

    def _table(self) -> _Table:
        end = os.fstat(self._fd).st_size
        start, length, checksum, mark = _ENDING.unpack(os.pread(self._fd, _ENDING.size, max(0, end - _ENDING.size)))
        raw = os.pread(self._fd, length, start) if mark == _MARK and start + length + _ENDING.size == end else b""
        if not raw or zlib.crc32(raw) != checksum:
            raise OSError(errno.EIO, "it was not written to its end")
        return msgspec.msgpack.decode(raw, type=_Table)

    def __contains__(self, directory: bytes) -> bool:
        return directory in self._places and directory not in self.unlistable

    def directories(self) -> list[bytes]:
        """Return the paths of all directories whose names are known."""
        return list(self._places)

    def listing(self, directory: bytes) -> Listing:
        """Return the entries of a directory.

        Raises:
            KeyError: there was no such directory.
            DamagedContent: the index is damaged.
        """
        found: Listing = {}
        for number in range(len(self._places[directory])):
            found.update(self.part(directory, number))
        return found

    def part_of(self, directory: bytes, name: bytes) -> int:
        """Return the number of the part of a listing in which *name* is, if it is there."""
        firsts = self._firsts.get(directory)
        return max(0, bisect_right(firsts, name) - 1) if firsts is not None else 0

    def part(self, directory: bytes, number: int) -> Listing:
        """Return the entries in one part of a listing. Raises as listing() does."""
        offset, length = self._places[directory][number]
        try:
            return unpacked(os.pread(self._fd, length, offset))
        except (OSError, msgspec.DecodeError) as exc:
            raise DamagedContent(f"the index {self._path} of a frozen base is damaged: {exc}") from exc

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()
