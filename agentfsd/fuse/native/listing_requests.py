"""Requests about a directory's listing, from their bytes to ``handlers/listing.py`` and back."""

from collections.abc import Iterator

from agentfsd.fuse.handlers import listing
from agentfsd.fuse.native import fuse_protocol as fuse
from agentfsd.fuse.native.native_connection import Decoder, NativeConnection, Parts, Reply, not_here
from agentfsd.fuse.reply import CallContext, ListedName


def _opendir(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    if native.zero:
        raise not_here()
    number, flags = listing.opendir(native.services, node_id, ctx), 0
    if listing.may_cache_listing(native.services, number):
        flags = fuse.FOPEN_CACHE_DIR | fuse.FOPEN_KEEP_CACHE
    return [fuse.OPEN_OUT.pack(number, flags, 0)]


def _readdir(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    parts, used_bytes = [], 0
    number, offset, size, *_ = fuse.READ_IN.unpack_from(body)
    for name, entry, following in _listing(native, node_id, number, offset, ctx):
        assert entry.attributes is not None
        part = fuse.pack_dirent(entry.attributes.ino, following, name, entry.attributes.mode)
        listing.untaken(native.services, entry)
        used_bytes += len(part)
        if used_bytes > size:
            break
        parts.append(part)
    return [b"".join(parts)]


def _readdirplus(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    parts, used_bytes = [], 0
    number, offset, size, *_ = fuse.READ_IN.unpack_from(body)
    for name, entry, following in _listing(native, node_id, number, offset, ctx):
        attributes = entry.attributes
        assert attributes is not None
        dirent = fuse.pack_dirent(attributes.ino, following, name, attributes.mode)
        used_bytes += fuse.ENTRY_OUT.size + len(dirent)
        if used_bytes > size:
            listing.untaken(native.services, entry)
            break
        parts.append(fuse.pack_entry(entry))
        parts.append(dirent)
    return [b"".join(parts)]


def _listing(native: NativeConnection, node_id: int, number: int, offset: int, ctx: CallContext) -> Iterator[ListedName]:
    if native.zero:
        return listing.read_unopened(native.services, node_id, offset, ctx)
    return listing.read_directory(native.services, number, offset)


def _releasedir(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    listing.releasedir(native.services, fuse.RELEASE_IN.unpack_from(body)[0])
    return None


def _fsyncdir(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    return _sync_names(native)


async def _sync_names(native: NativeConnection) -> Parts:
    await listing.sync_names(native.services)
    return None


DECODERS: dict[int, Decoder] = {
    fuse.OPENDIR: _opendir, fuse.READDIR: _readdir, fuse.READDIRPLUS: _readdirplus, fuse.RELEASEDIR: _releasedir,
    fuse.FSYNCDIR: _fsyncdir,
}  # fmt: skip
