"""The members of a ZIP, checked: names, types, flags, sizes, and where each one lies. Believes nothing that it says.

Knows the specification's `manifest.json` and `files/`, and not what the manifest says of the members.
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

MAX_TARGET_BYTES = 4095  # PATH_MAX, less the closing zero
MAX_DEPTH = 512  # whoever walks the tree keeps a descriptor for each step

_MAX_NAME_BYTES = 255
_CHUNK = 1 << 20
_UNIX = 3  # "version made by": external attributes are st_mode
_UTF8_BIT = 0x800
_ENCRYPTED_BITS = 0x1 | 0x40
_FILES = FILES.encode()
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_LOCAL_HEADER = struct.Struct("<4s22xHH")  # signature, length of the name, length of the extra fields
_DAMAGE = (
    zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, UnicodeDecodeError, struct.error, OverflowError, ValueError,
)  # fmt: skip


class Members:
    """``by_path``: the members below files/, by path in there. ``manifest`` is None where there is none.

    ArchiveError when it is damaged or hostile; OSError when it cannot be opened.
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
        """The content of a member: never more than the declared size, and with its check sum at the end."""
        with self._damage(f"{info.filename!r} is damaged"), self._zip.open(info) as member:
            while data := member.read(_CHUNK):
                yield data

    def read(self, info: zipfile.ZipInfo) -> bytes:
        return b"".join(self.chunks(info))

    def check_contents(self, step: Step) -> int:
        """Reads everything once; how many bytes lie below files/, less long stretches of zeros."""
        data_bytes = 0
        for done, info in enumerate(self._infos):
            size = 0
            for data in self.chunks(info):
                size += len(data)
                if info is not self.manifest:
                    data_bytes += sum(len(part) for _, part in without_holes(data, 0))
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
        found: dict[bytes, zipfile.ZipInfo] = {}
        paths = set()
        for info in self._infos:
            path = _raw_name(info).removesuffix(b"/")
            self.check_path(path)
            self._check_kind(info)
            if path in paths:
                raise self.bad(f"it holds {shown(path)} twice")
            paths.add(path)
            if path.startswith(_FILES):
                found[path.removeprefix(_FILES)] = info
        if MANIFEST.encode() not in paths and not found:
            raise self.bad("it holds neither manifest.json nor files/")
        return found

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
        """Members must not share their compressed bytes: that is how a small archive becomes a large tree."""
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
    """st_mode where the archive was made on Unix; 0 where it does not say."""
    return info.external_attr >> 16 if info.create_system == _UNIX else 0


def too_large(path: str, size: int, most: int) -> ArchiveTooLargeError:
    return ArchiveTooLargeError(f"{path} would take {size} bytes, more than the limit of {most}")


def shown(path: bytes) -> str:
    return repr(os.fsdecode(path[:200]))


def _raw_name(info: zipfile.ZipInfo) -> bytes:
    """Unix tools write a name's bytes as they are, which zipfile takes for code page 437 unless it is told otherwise."""
    unsaid = info.create_system == _UNIX and not info.flag_bits & _UTF8_BIT
    return info.orig_filename.encode("cp437" if unsaid else "utf-8", "surrogateescape")


def _open(path: str) -> BinaryIO:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO would make us wait
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise ArchiveError(f"{path} is no regular file")
    return os.fdopen(fd, "rb")
