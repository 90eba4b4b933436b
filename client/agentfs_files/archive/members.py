"""Read the members of a ZIP and check their names, types, flags, sizes and positions. Nothing that the ZIP says is trusted.

This module knows the specification's `manifest.json` and `files/`, and not what the manifest says about the members.
"""

import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from agentfs_files.archive.pack import FILES, MANIFEST
from agentfs_files.filesystem.filesystem_errors import ArchiveError, ArchiveTooLargeError
from agentfs_files.trees.stored_tree import without_holes
from agentfs_files.trees.tree_source import Step

MAX_TARGET_BYTES = 4095  # PATH_MAX without the terminating zero
MAX_DEPTH = 512  # walking the tree takes a descriptor for each level

_MAX_NAME_BYTES = 255
_CHUNK = 1 << 20
_UNIX = 3  # "version made by": external attributes are st_mode
_UTF8_BIT = 0x800
_ENCRYPTED_BITS = 0x1 | 0x40
_FILES = FILES.encode()
_FREE_DATA_BYTES = 256 << 20  # that any archive may hold
_DATA_RATIO = 200  # deflate reaches 1,032; zeros do not count, which become holes
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_LOCAL_HEADER = struct.Struct("<4s22xHH")  # signature, length of the name, length of the extra fields
_DAMAGE = (
    zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, UnicodeDecodeError, struct.error, OverflowError, ValueError,
)  # fmt: skip


class Members:
    """The checked members of a ZIP.

    ``by_path`` holds the members below files/, by their path there. ``manifest`` is None if there is none.

    Raises:
        ArchiveError: the ZIP is damaged or malicious.
        OSError: it cannot be opened.
    """

    def __init__(self, path: str, max_bytes: int) -> None:
        self._path, self._max_bytes = path, max_bytes
        self._file = _open(path)
        try:
            with self._damage("it cannot be read"):
                self._zip = zipfile.ZipFile(self._file)
            self._infos = self._zip.infolist()
            self.by_path = self._check_names()
            self._check_sizes()
            self._check_places()
        except BaseException:
            self._file.close()
            raise
        self.manifest = self._zip.NameToInfo.get(MANIFEST)

    def close(self) -> None:
        self._zip.close()
        self._file.close()

    def chunks(self, info: zipfile.ZipInfo) -> Iterator[bytes]:
        """Yield the content of a member: never more than its declared size. Check its checksum at the end."""
        with self._damage(f"{info.filename!r} is damaged"), self._zip.open(info) as member:
            while data := member.read(_CHUNK):
                yield data

    def read(self, info: zipfile.ZipInfo) -> bytes:
        return b"".join(self.chunks(info))

    def check_contents(self, step: Step) -> int:
        """Read everything once. Return the size in bytes of everything below files/, without long runs of zeros."""
        data_bytes = 0
        most = _FREE_DATA_BYTES + _DATA_RATIO * os.fstat(self._file.fileno()).st_size
        for done, info in enumerate(self._infos):
            size = 0
            for data in self.chunks(info):
                size += len(data)
                if info is not self.manifest:
                    data_bytes += sum(len(part) for _, part in without_holes(data, 0))
                if data_bytes > most:
                    raise self.bad(
                        f"it grows to more than {_DATA_RATIO} times its size; unpack it and import the directory instead"
                    )
            if size != info.file_size:
                raise self.bad(f"{info.filename!r} has {size} bytes where {info.file_size} were declared")
            step(done, 2 * len(self._infos))
        return data_bytes

    def check_path(self, path: bytes) -> None:
        names = path.split(b"/")
        for name in names:
            if name in (b"", b".", b".."):
                raise self.bad(f"it holds the path {shown(path)}, which leads out of the tree")
            if b"\0" in name or len(name) > _MAX_NAME_BYTES:
                raise self.bad(f"it holds the name {shown(name)}, which no file can have")
        if len(names) > MAX_DEPTH:
            raise self.bad(f"it holds the path {shown(path)}, which has {len(names)} names; at most {MAX_DEPTH} are read")

    def bad(self, what: str) -> ArchiveError:
        return ArchiveError(f"{self._path} is refused: {what}")

    @contextmanager
    def _damage(self, what: str) -> Iterator[None]:
        try:
            yield
        except ArchiveError:
            raise
        except _DAMAGE as exc:
            raise self.bad(f"{what}: {exc}") from exc

    def _check_names(self) -> dict[bytes, zipfile.ZipInfo]:
        by_name: dict[bytes, zipfile.ZipInfo] = {}
        paths = set()
        for info in self._infos:
            path = _raw_name(info).removesuffix(b"/")
            self.check_path(path)
            self._check_kind(info)
            if path in paths:
                raise self.bad(f"it holds {shown(path)} twice")
            paths.add(path)
            if path.startswith(_FILES):
                by_name[path.removeprefix(_FILES)] = info
        if MANIFEST.encode() not in paths and not by_name:
            raise self.bad("it holds neither manifest.json nor files/")
        return by_name

    def _check_kind(self, info: zipfile.ZipInfo) -> None:
        if "\\" in info.orig_filename:
            raise self.bad(f"it holds the path {info.orig_filename!r}: a backslash may be meant as a directory")
        if info.flag_bits & _ENCRYPTED_BITS:
            raise self.bad(f"{info.filename!r} is encrypted")
        if info.compress_type not in _METHODS:
            raise self.bad(f"{info.filename!r} is compressed by method {info.compress_type}; only deflate is read")
        kind = stat.S_IFMT(mode_of(info))
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK) or (kind == stat.S_IFDIR) > info.is_dir():
            raise self.bad(f"{info.filename!r} is of no type that a member can have")
        if kind == stat.S_IFLNK and not 0 < info.file_size <= MAX_TARGET_BYTES:
            raise self.bad(f"{info.filename!r} is a symlink to nowhere")
        if info.is_dir() and info.file_size:
            raise self.bad(f"the directory {info.filename!r} has content")

    def _check_sizes(self) -> None:
        total = sum(info.file_size for info in self._infos)
        if total > self._max_bytes:
            raise too_large(self._path, total, self._max_bytes)

    def _check_places(self) -> None:
        """Check that no members share compressed bytes. Sharing them lets a small archive expand to a huge tree."""
        end = 0
        for info in sorted(self._infos, key=lambda info: info.header_offset):
            if info.header_offset < end:
                raise self.bad(f"{info.filename!r} lies over another member")
            end = info.header_offset + self._header_bytes(info) + info.compress_size
        if end > self._zip.start_dir:
            raise self.bad("its last member lies over the directory")

    def _header_bytes(self, info: zipfile.ZipInfo) -> int:
        header = b"" if info.header_offset >= 1 << 63 else os.pread(self._file.fileno(), _LOCAL_HEADER.size, info.header_offset)
        if len(header) < _LOCAL_HEADER.size or not header.startswith(b"PK\3\4"):
            raise self.bad(f"{info.filename!r} is not where its directory says")
        _, name, extra = _LOCAL_HEADER.unpack(header)
        return _LOCAL_HEADER.size + int(name) + int(extra)


def mode_of(info: zipfile.ZipInfo) -> int:
    """Return st_mode if the archive was made on Unix; 0 if the archive does not record it."""
    return info.external_attr >> 16 if info.create_system == _UNIX else 0


def too_large(path: str, size: int, most: int) -> ArchiveTooLargeError:
    return ArchiveTooLargeError(f"{path} would take {size} bytes, more than the limit of {most}")


def shown(path: bytes) -> str:
    return repr(os.fsdecode(path[:200]))


def _raw_name(info: zipfile.ZipInfo) -> bytes:
    """Return the bytes of a name. Unix tools store them unchanged, while zipfile decodes them as code page 437 by default."""
    unsaid = info.create_system == _UNIX and not info.flag_bits & _UTF8_BIT
    return info.orig_filename.encode("cp437" if unsaid else "utf-8", "surrogateescape")


def _open(path: str) -> BinaryIO:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # opening a FIFO would block
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise ArchiveError(f"{path} is not a regular file")
    return os.fdopen(fd, "rb")
