"""Decodes the variable parts of requests: names, and new attributes. EINVAL for what no kernel sends."""

import errno
import stat
import time

from agentfsd.core.inode_attributes import NewAttributes
from agentfsd.fuse.native import fuse_protocol as fuse
from agentfsd.fuse.reply import CallContext

PERMISSIONS = 0o7777
KINDS = (stat.S_IFREG, stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFCHR, stat.S_IFBLK)  # what mknod(2) makes

_LAST_NS = (1 << 63) - 1  # later and earlier times are taken for this one, as ext4 does with what it cannot keep


def word(body: memoryview) -> bytes:
    """Return the text before the zero byte."""
    text, zero, _ = bytes(body).partition(b"\0")
    if not zero or not text:
        raise OSError(errno.EINVAL, "no name")
    return text


def name(body: memoryview) -> bytes:
    """Return the name of a directory entry."""
    text = word(body)
    if b"/" in text or text in (b".", b".."):
        raise OSError(errno.EINVAL, "no name")
    return text


def two_names(body: memoryview) -> tuple[bytes, bytes]:
    """Return two names of directory entries, one after the other."""
    first = name(body)
    return first, name(body[len(first) + 1 :])


def rename(body: memoryview) -> tuple[bytes, int, bytes, int]:
    """Return the old name, the new parent's node, the new name and the flags of a RENAME."""
    (new_parent_id,) = fuse.RENAME_IN.unpack_from(body)
    old, new = two_names(body[fuse.RENAME_IN.size :])
    return old, new_parent_id, new, 0


def rename2(body: memoryview) -> tuple[bytes, int, bytes, int]:
    """Return the same of a RENAME2."""
    new_parent_id, flags, _ = fuse.RENAME2_IN.unpack_from(body)
    old, new = two_names(body[fuse.RENAME2_IN.size :])
    return old, new_parent_id, new, flags


def new_attributes(body: memoryview) -> tuple[int, NewAttributes]:
    """Return the flags of a SETATTR, and the attributes that it changes."""
    (
        valid, _, _, size, _, atime, mtime, _, atime_ns, mtime_ns, _, mode, _, uid, gid, _,
    ) = fuse.SETATTR_IN.unpack_from(body)  # fmt: skip
    return valid, NewAttributes(
        mode=mode if valid & fuse.FATTR_MODE else None,
        uid=uid if valid & fuse.FATTR_UID else None,
        gid=gid if valid & fuse.FATTR_GID else None,
        size=size if valid & fuse.FATTR_SIZE else None,
        atime_ns=_time(valid, fuse.FATTR_ATIME, fuse.FATTR_ATIME_NOW, atime, atime_ns),
        mtime_ns=_time(valid, fuse.FATTR_MTIME, fuse.FATTR_MTIME_NOW, mtime, mtime_ns),
    )


def _time(valid: int, given: int, now: int, seconds: int, nanoseconds: int) -> int | None:
    if not valid & given:
        return None
    return time.time_ns() if valid & now else max(-_LAST_NS, min(seconds * 1_000_000_000 + nanoseconds, _LAST_NS))


def masked(ctx: CallContext, umask: int) -> CallContext:
    """Return the caller with its umask, which the kernel leaves to us (FUSE_DONT_MASK)."""
    return ctx._replace(umask=umask & PERMISSIONS)
