"""Files for manifests (the entries of one snapshot) and for the index (what was known of the root at the last look).

The index is only a cache: losing it costs time. A signature in it means that the snapshot ``ref`` has the file's content under
the same path.
"""

import contextlib
import os
from collections.abc import Sequence

import msgspec

from agentfs_files.snapshots.snapshot_tree import SnapshotEntry

_VERSION = 1


class Manifest(msgspec.Struct, array_like=True, frozen=True):
    version: int
    entries: list[SnapshotEntry]


class Index(msgspec.Struct, array_like=True):
    """The cached entries of a directory. *root* is its device and inode number."""

    root: tuple[int, int]
    ref: str = ""
    entries: list[SnapshotEntry] = []

    def known(self) -> dict[bytes, SnapshotEntry]:
        return {entry.path: entry for entry in self.entries}


_MANIFEST = msgspec.msgpack.Decoder(Manifest)
_INDEX = msgspec.msgpack.Decoder(Index)


def encode(entries: Sequence[SnapshotEntry]) -> bytes:
    return msgspec.msgpack.encode(Manifest(_VERSION, list(entries)))


def decode(data: bytes) -> list[SnapshotEntry]:
    """Decode a manifest. Raises ValueError if it is damaged or of a later version."""
    manifest = _MANIFEST.decode(data)
    if manifest.version != _VERSION:
        raise ValueError(f"its manifest has version {manifest.version}; this program knows {_VERSION}")
    return manifest.entries


def load_index(home: str, root_fd: int) -> Index:
    """Return the index of this root; an empty one if there is none."""
    info = os.fstat(root_fd)
    root = (info.st_dev, info.st_ino)
    try:
        with open(os.path.join(home, "index"), "rb") as file:
            index = _INDEX.decode(file.read())
    except (OSError, msgspec.MsgspecError):
        return Index(root)
    return index if index.root == root else Index(root)


def save_index(home: str, index: Index) -> None:
    write_file(os.path.join(home, "index"), msgspec.msgpack.encode(index))


def forget_index(home: str, ref: str) -> None:
    """Delete the index of a snapshot. Call this before deleting the snapshot."""
    path = os.path.join(home, "index")
    try:
        with open(path, "rb") as file:
            if _INDEX.decode(file.read()).ref != ref:
                return
    except FileNotFoundError:
        return
    except (OSError, msgspec.MsgspecError):
        pass
    os.unlink(path)


def write_file(path: str, data: bytes) -> None:
    """Write a file completely or not at all."""
    temporary = f"{path}.{os.getpid()}.new"
    try:
        with open(temporary, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
