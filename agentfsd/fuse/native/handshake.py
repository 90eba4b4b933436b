"""What the kernel offers in INIT, its first request, and what we take of it. The layouts are in fuse_protocol.py."""

from typing import Literal, NamedTuple

from agentfsd.fuse.native import fuse_protocol as fuse

IoMode = Literal["zero-message", "passthrough", "cached"]

MAX_WRITE_BYTES = 1 << 20
_MAX_BACKGROUND, _CONGESTION = 64, 48
_STACK_DEPTH = 1  # passthrough only to files of a file system that is not stacked itself

_WANTED = (
    fuse.ASYNC_READ | fuse.BIG_WRITES | fuse.DONT_MASK | fuse.AUTO_INVAL_DATA | fuse.DO_READDIRPLUS | fuse.READDIRPLUS_AUTO
    | fuse.ASYNC_DIO | fuse.PARALLEL_DIROPS | fuse.POSIX_ACL | fuse.MAX_PAGES | fuse.CACHE_SYMLINKS | fuse.HANDLE_KILLPRIV_V2
    | fuse.SETXATTR_EXT | fuse.INIT_EXT | fuse.HAS_EXPIRE_ONLY | fuse.HAS_RESEND
)  # fmt: skip
_ZERO_MESSAGE = fuse.NO_OPEN_SUPPORT | fuse.NO_OPENDIR_SUPPORT


class Unsupported(Exception):
    """This kernel's FUSE cannot be used; the text says why."""


class Agreement(NamedTuple):
    """What INIT has settled.

    Attributes:
        io: How files get to processes: what this kernel can do of what was asked for.
        minor: The protocol's minor version.
        offered: The flags that the kernel offered.
        reply: The body of the reply to INIT.
    """

    io: IoMode
    minor: int
    offered: int
    reply: bytes


def agree(body: memoryview, io: IoMode) -> Agreement:
    """Return what is settled with a kernel. *body* is that of INIT; *io* is how files are to get to processes.

    Raises:
        Unsupported: There is no common protocol version.
    """
    major, minor, readahead, offered = fuse.INIT_IN_SHORT.unpack_from(body)
    if major != fuse.MAJOR or minor < fuse.OLDEST_MINOR:
        raise Unsupported(f"the kernel speaks FUSE {major}.{minor}; {fuse.MAJOR}.{fuse.OLDEST_MINOR} is the oldest we know")
    if offered & fuse.INIT_EXT and len(body) >= fuse.INIT_IN.size:
        offered |= fuse.INIT_IN.unpack_from(body)[4] << 32
    minor, io = min(minor, fuse.MINOR), _possible(io, offered)
    taken = offered & wanted(io)
    reply = fuse.INIT_OUT.pack(
        fuse.MAJOR, minor, readahead, taken & 0xFFFFFFFF, _MAX_BACKGROUND, _CONGESTION,
        MAX_WRITE_BYTES, 1, MAX_WRITE_BYTES // 4096, 0, taken >> 32, _STACK_DEPTH if taken & fuse.PASSTHROUGH else 0, 0,
    )  # fmt: skip
    return Agreement(io, minor, offered, reply)


def _possible(io: IoMode, offered: int) -> IoMode:
    if io == "zero-message" and offered & _ZERO_MESSAGE != _ZERO_MESSAGE:
        return "cached"
    if io == "passthrough" and not offered & fuse.PASSTHROUGH:
        return "cached"
    return io


def wanted(io: IoMode) -> int:
    """Return the flags that we take, if the kernel offers them."""
    if io == "zero-message":
        return _WANTED | _ZERO_MESSAGE
    passthrough = fuse.PASSTHROUGH if io == "passthrough" else 0
    return _WANTED | fuse.ATOMIC_O_TRUNC | fuse.POSIX_LOCKS | fuse.FLOCK_LOCKS | passthrough
