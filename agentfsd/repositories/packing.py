"""Makes one pack of many loose objects, as `git fetch` does. It knows bytes alone. Source: gitformat-pack(5)."""

import hashlib
import re
import struct
import zlib
from collections.abc import Mapping
from itertools import accumulate
from typing import NamedTuple

OBJECT_BYTES = 1 << 20  # a larger object stays a file of its own
PACK_BYTES = 64 << 20  # what does not fit stays files

_LOOSE = re.compile(rb"[0-9a-f]{2}/(?:[0-9a-f]{38}|[0-9a-f]{62})")
_KINDS = {b"commit": 1, b"tree": 2, b"blob": 3, b"tag": 4}


class Pack(NamedTuple):
    """A pack. ``name``: its path below the objects directory, without a suffix.

    ``directory``: what git calls its index; ``objects``: the paths below the objects directory of what it holds.
    """

    name: bytes
    data: bytes
    directory: bytes
    objects: frozenset[bytes]


class LooseObject(NamedTuple):
    """What a loose object's file says. ``oid``: its id in hexadecimal, computed from the content."""

    kind: bytes
    data: bytes
    oid: bytes


def is_loose(path: bytes) -> bool:
    """Whether a path below an objects directory is that of a loose object."""
    return _LOOSE.fullmatch(path) is not None


def path_of(oid: bytes) -> bytes:
    """The path of a loose object below the objects directory."""
    return oid[:2] + b"/" + oid[2:]


def inflate(raw: bytes, form: str) -> LooseObject | None:
    """Read a loose object's file. None for what git would not have written, and for more than OBJECT_BYTES.

    Args:
        raw: The file's content.
        form: git's object format: ``sha1`` or ``sha256``.
    """
    stream = zlib.decompressobj()
    try:
        said = stream.decompress(raw, OBJECT_BYTES + 64)
    except zlib.error:
        return None
    header, end, data = said.partition(b"\0")
    kind, _, size = header.partition(b" ")
    if not (stream.eof and end and kind in _KINDS and size.isdigit() and int(size) == len(data)):
        return None
    return LooseObject(kind, data, hashlib.new(form, said, usedforsecurity=False).hexdigest().encode())


def pack(contents: Mapping[bytes, bytes], form: str) -> Pack | None:
    """Make a pack of loose objects. None if there is nothing to pack.

    Left out: what is no loose object, is larger than OBJECT_BYTES, or is not what its name says.

    Args:
        contents: The files' contents by their paths below the objects directory.
        form: git's object format.
    """
    parts, entries, size = [b""], list[tuple[bytes, int, int, bytes]](), 12
    for path, raw in contents.items():
        found = inflate(raw, form) if is_loose(path) and size < PACK_BYTES else None
        if found is None or path_of(found.oid) != path:
            continue
        entry = _entry_header(_KINDS[found.kind], len(found.data)) + zlib.compress(found.data, 1)
        entries.append((bytes.fromhex(found.oid.decode()), zlib.crc32(entry), size, path))
        parts.append(entry)
        size += len(entry)
    if not entries:
        return None
    parts[0] = struct.pack(">4sLL", b"PACK", 2, len(entries))
    data = b"".join(parts)
    checksum = hashlib.new(form, data, usedforsecurity=False)
    name = b"pack/pack-" + checksum.hexdigest().encode()
    index = _index(sorted(entries), checksum.digest(), form)
    return Pack(name, data + checksum.digest(), index, frozenset(path for *_, path in entries))


def _entry_header(kind: int, size: int) -> bytes:
    made, byte, size = bytearray(), kind << 4 | size & 15, size >> 4
    while size:
        made.append(byte | 0x80)
        byte, size = size & 0x7F, size >> 7
    made.append(byte)
    return bytes(made)


def _index(entries: list[tuple[bytes, int, int, bytes]], checksum: bytes, form: str) -> bytes:
    """The index of a pack, version 2. *entries*: (object id, CRC, offset, path), sorted."""
    counts = [0] * 256
    for oid, *_ in entries:
        counts[oid[0]] += 1
    count = len(entries)
    data = b"".join((
        b"\377tOc", struct.pack(">L256L", 2, *accumulate(counts)), *(oid for oid, *_ in entries),
        struct.pack(f">{count}L", *(crc for _, crc, *_ in entries)), struct.pack(f">{count}L", *(at for *_, at, _ in entries)),
        checksum,
    ))  # fmt: skip
    return data + hashlib.new(form, data, usedforsecurity=False).digest()
