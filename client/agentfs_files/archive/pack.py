"""Write a tree as a ZIP with `manifest.json` and `files/`, as defined in the specification's tool-operations.md.

That format cannot express everything. The rest is stored where its readers ignore it: in further keys of the manifest, and in
Info-ZIP's fields for types, modes, owners and times. Contents are streamed; memory use grows only with the number of names.
"""

import errno
import os
import stat
import struct
import tempfile
import time
import zipfile
from datetime import UTC, datetime
from typing import IO, BinaryIO

import msgspec

from agentfs_files.trees.stored_tree import store, stream
from agentfs_files.trees.tree_source import Step, TreeEntry, TreeSource, walk

MANIFEST = "manifest.json"
FILES = "files/"
VERSION = "1"
MAX_NAME_BYTES = 65535  # the field for the length has two bytes

_SPOOL_BYTES = 1 << 24
_ZIP64_FROM = 1 << 31
_CHUNK = 1 << 16
_UNIX = 3  # "version made by": external attributes are st_mode
_DIRECTORY_BIT = 0x10  # MS-DOS attribute


def write_archive(source: TreeSource, file: BinaryIO, step: Step = lambda done, total: None, total: int = 0) -> int:
    """Write a whole archive.

    Args:
        source: the tree to write.
        file: the target, which must be seekable.
        step: called now and then with the number of entries done and *total*.
        total: the number to report as total, 0 if unknown.

    Returns:
        The number of files and symlinks in the archive.
    """
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive, tempfile.SpooledTemporaryFile(_SPOOL_BYTES) as lines:
        writer = _ArchiveWriter(archive, source, lines)
        for done, entry in enumerate(walk(source)):
            writer.add(entry)
            step(done, total)
        return writer.finish()


class _ArchiveWriter:
    def __init__(self, archive: zipfile.ZipFile, source: TreeSource, lines: IO[bytes]) -> None:
        self._archive, self._source, self._lines = archive, source, lines
        self._file_count = self._total_bytes = 0

    def add(self, entry: TreeEntry) -> None:
        name = ""
        if entry.path and (entry.is_dir or entry.is_file or entry.is_link):
            name = self._free_name(entry)
            self._add_member(entry, name)
        if self._lines.tell():
            self._lines.write(b",\n")
        shown = "" if name.rstrip("/").encode() == FILES.encode() + entry.path else name
        self._lines.write(msgspec.json.encode(store(entry, entry.path, shown)))

    def _free_name(self, entry: TreeEntry) -> str:
        """Return the name that other readers see. Escape names that are not UTF-8 or that look like Windows paths."""
        name = FILES + entry.path.decode("utf-8", "surrogateescape")
        if "\\" in name or not _is_utf8(entry.path):
            name = "".join(f"%{os.fsencode(char)[0]:02X}" if char == "\\" or _is_stray(char) else char for char in name)
        free, number = name, 1
        while self._is_taken(free):
            number += 1
            free = f"{name}~{number}"
        if len(free.encode()) >= MAX_NAME_BYTES:
            raise OSError(errno.ENAMETOOLONG, f"a ZIP takes paths of {MAX_NAME_BYTES} bytes at most", f"{name[:80]}...")
        return free + "/" * entry.is_dir

    def _is_taken(self, name: str) -> bool:
        names = self._archive.NameToInfo
        return name in names or name + "/" in names

    def _add_member(self, entry: TreeEntry, name: str) -> None:
        info = zipfile.ZipInfo(name, _dos_time(entry.mtime_ns or 0))
        info.create_system = _UNIX
        info.external_attr = (entry.mode & 0xFFFF) << 16 | _DIRECTORY_BIT * entry.is_dir
        info.extra = _extra(entry)
        if entry.is_dir:
            self._archive.writestr(info, b"")
            return
        info.compress_type = zipfile.ZIP_DEFLATED if entry.is_file else zipfile.ZIP_STORED
        size = 0
        with self._archive.open(info, "w", force_zip64=entry.size >= _ZIP64_FROM) as member:
            for data in stream(self._source.chunks(entry), entry.size) if entry.is_file else [entry.target]:
                member.write(data)
                size += len(data)
        self._file_count += 1
        self._total_bytes += size

    def finish(self) -> int:
        """Write the manifest, which comes last because its totals are only known now."""
        head = msgspec.json.encode({
            "version": VERSION,
            "created_at": datetime.now(UTC).isoformat(),
            "file_count": self._file_count,
            "total_bytes": self._total_bytes,
        })  # fmt: skip
        info = zipfile.ZipInfo(MANIFEST, time.localtime()[:6])
        info.create_system, info.external_attr, info.compress_type = _UNIX, (stat.S_IFREG | 0o644) << 16, zipfile.ZIP_DEFLATED
        with self._archive.open(info, "w") as member:
            member.write(head[:-1] + b', "entries": [\n')
            self._lines.seek(0)
            while data := self._lines.read(_CHUNK):
                member.write(data)
            member.write(b"\n]}\n")
        return self._file_count


def _is_utf8(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_stray(char: str) -> bool:
    """Tell whether a character stands for a byte that is not UTF-8."""
    return "\udc80" <= char <= "\udcff"


def _dos_time(mtime_ns: int) -> tuple[int, int, int, int, int, int]:
    """Return a time that the format can hold: local time from 1980 to 2107."""
    local = time.localtime(mtime_ns // 1_000_000_000)
    if local.tm_year < 1980:
        return (1980, 1, 1, 0, 0, 0)
    if local.tm_year > 2107:
        return (2107, 12, 31, 23, 59, 58)
    return local[:6]


def _extra(entry: TreeEntry) -> bytes:
    """Return Info-ZIP's extra fields: UT (seconds since 1970) and ux (uid and gid)."""
    fields = b""
    seconds = (entry.mtime_ns or 0) // 1_000_000_000
    if -(2**31) <= seconds < 2**31:
        fields += struct.pack("<HHBi", 0x5455, 5, 1, seconds)
    if entry.uid is not None and entry.gid is not None:
        fields += struct.pack("<HHBBIBI", 0x7875, 11, 1, 4, entry.uid, 4, entry.gid)
    return fields
