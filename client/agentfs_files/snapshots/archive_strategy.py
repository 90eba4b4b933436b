"""Snapshots as compressed tar files, each complete in itself. Any tar program can unpack one.

Names and attributes come from the manifest and never from the tar file. So no tar file can make a restore leave the root.
"""

import hashlib
import os
import stat
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final
from uuid import UUID

import msgspec

from agentfs_files.filesystem.filesystem_errors import SnapshotRestoreError
from agentfs_files.filesystem.records import SnapshotStrategy
from agentfs_files.snapshots import file_contents
from agentfs_files.snapshots.build import Into
from agentfs_files.snapshots.index import Index
from agentfs_files.snapshots.indexed_strategy import IndexedStrategy
from agentfs_files.snapshots.places import new_place, read_manifest, remove_place, write_manifest
from agentfs_files.snapshots.snapshot_tree import Scan, SnapshotEntry, capture
from agentfs_host.descent import Descent

_NAME = "workspace.tar.gz"
_LEVEL: Final = 3  # a third of the time of gzip's own 9, for a few per cent of the size
_TYPES = {stat.S_IFDIR: tarfile.DIRTYPE, stat.S_IFLNK: tarfile.SYMTYPE, stat.S_IFIFO: tarfile.FIFOTYPE}


class ArchiveStrategy(IndexedStrategy):
    kind = SnapshotStrategy.ARCHIVE
    is_exact = True

    def __init__(self, home: str) -> None:
        self.home = home

    def keep(self, beneath: Descent, snapshot_id: UUID, tag: str | None, index: Index) -> tuple[str, list[SnapshotEntry]]:
        with new_place(self.home, snapshot_id) as place:
            entries = _write(os.path.join(place, _NAME), beneath, index)
            write_manifest(place, entries)
            return place, entries

    def load(self, ref: str) -> list[SnapshotEntry]:
        return read_manifest(self.home, ref)

    def delete(self, ref: str, remaining: Iterable[str]) -> None:
        remove_place(self.home, ref)

    def fill(self, ref: str, files: Sequence[SnapshotEntry], into: Into) -> None:
        wanted = {os.fsdecode(entry.path): entry for entry in files}
        if not wanted:
            return
        try:
            with tarfile.open(os.path.join(ref, _NAME), "r:gz") as tar:
                for info in tar:
                    entry = wanted.pop(info.name, None)
                    if entry is not None:
                        _unpack(tar, info, entry, into)
                    if not wanted:
                        break
        except (tarfile.TarError, zlib.error, EOFError) as exc:
            raise SnapshotRestoreError(f"{ref}/{_NAME} is damaged: {exc}") from exc
        if wanted:
            raise SnapshotRestoreError(f"{ref}/{_NAME} is damaged: {min(wanted)} is missing")

    def holds(self, ref: str, entry: SnapshotEntry, fd: int) -> bool:
        return _digest(file_contents.chunks(fd)) == entry.content

    def is_same(self, ref: str, entry: SnapshotEntry, other_ref: str, other: SnapshotEntry) -> bool:
        return entry.content == other.content


def _write(path: str, beneath: Descent, index: Index) -> list[SnapshotEntry]:
    entries = []
    firsts: dict[int, SnapshotEntry] = {}
    with tarfile.open(path, "w:gz", compresslevel=_LEVEL, format=tarfile.PAX_FORMAT) as tar:
        scan = Scan(beneath, index.known())
        for found in scan:
            entry = _add(tar, beneath, found, scan.horizon_ns, firsts)
            if entry is not None:
                entries.append(entry)
    return entries


def _add(
    tar: tarfile.TarFile, beneath: Descent, entry: SnapshotEntry, horizon_ns: int, firsts: dict[int, SnapshotEntry]
) -> SnapshotEntry | None:
    """Add an entry to the tar file. Return it as it was then; None if it no longer exists."""
    first = firsts.get(entry.group)
    if first is not None:
        info = _header(entry)
        info.type, info.linkname, info.size = tarfile.LNKTYPE, os.fsdecode(first.path), 0
        tar.addfile(info)
        return msgspec.structs.replace(first, path=entry.path)
    kept: SnapshotEntry | None = entry
    if entry.is_file:
        kept = _add_file(tar, beneath, entry, horizon_ns)
    elif entry.path and stat.S_IFMT(entry.mode) in _TYPES:
        tar.addfile(_header(entry))
    if kept is not None and kept.group:
        firsts[kept.group] = kept
    return kept


def _add_file(tar: tarfile.TarFile, beneath: Descent, entry: SnapshotEntry, horizon_ns: int) -> SnapshotEntry | None:
    def add(fd: int) -> tuple[bytes, int]:
        info = _header(entry)
        info.size = os.fstat(fd).st_size
        source = _Exactly(fd, info.size)
        tar.addfile(info, source)  # type: ignore[arg-type]  # it asks for read() alone
        return source.digest.digest(), info.size

    return capture(beneath, entry.path, horizon_ns, add, attempts=1)


def _header(entry: SnapshotEntry) -> tarfile.TarInfo:
    info = tarfile.TarInfo(os.fsdecode(entry.path))
    info.type = _TYPES.get(stat.S_IFMT(entry.mode), tarfile.REGTYPE)
    info.mode, info.uid, info.gid = stat.S_IMODE(entry.mode), entry.uid, entry.gid
    info.mtime = entry.mtime_ns // 1_000_000_000
    info.linkname = os.fsdecode(entry.target)
    info.pax_headers = {"SCHILY.xattr." + os.fsdecode(name): os.fsdecode(value) for name, value in entry.xattrs.items()}
    return info


class _Exactly:
    """A file with exactly the size in the header. If the file changes meanwhile, it is cut, or filled up with zeros."""

    def __init__(self, fd: int, size: int) -> None:
        self._fd, self._left = fd, size
        self.digest = hashlib.sha256()

    def read(self, size: int) -> bytes:
        size = min(size, self._left)
        data = os.read(self._fd, size).ljust(size, b"\0")
        self._left -= size
        self.digest.update(data)
        return data


def _unpack(tar: tarfile.TarFile, info: tarfile.TarInfo, entry: SnapshotEntry, into: Into) -> None:
    source = tar.extractfile(info)
    digest = hashlib.sha256()

    def parts() -> Iterator[bytes]:
        while source is not None and (data := source.read(file_contents.CHUNK)):
            digest.update(data)
            yield data

    with into(entry) as fd:
        file_contents.write(fd, parts(), is_sparse=entry.is_sparse)
        if digest.digest() != entry.content:
            raise SnapshotRestoreError(f"{os.fsdecode(entry.path)} is damaged in the archive")


def _digest(parts: Iterable[bytes]) -> bytes:
    digest = hashlib.sha256()
    for data in parts:
        digest.update(data)
    return digest.digest()
