"""Refuses what processes ask of a connection that nobody will serve any more, so that it can end.

Closing the descriptor of a connection ends it, but others may hold one: a thread of a killed daemon cannot die while it tells the
kernel of a name in a directory that a waiting request holds. That request is answered here, so the thread ends, too.
"""

import contextlib
import errno
import os
import select
import time
from collections.abc import Iterable

from agentfsd.fuse.native import fuse_protocol as fuse

_BUFFER_BYTES = 1 << 21  # the kernel gives nothing to a buffer that is too small for the largest write
_QUIET_S, _LONGEST_S = 0.3, 3.0
_NO_REPLY = (fuse.FORGET, fuse.BATCH_FORGET, fuse.INTERRUPT)


def refuse_all(descriptors: Iterable[int]) -> None:
    """Answer all requests of these connections with ENOTCONN, until there has been none for a moment.

    The descriptors must be in non-blocking mode.
    """
    poll = select.poll()
    for fd in descriptors:
        with contextlib.suppress(OSError):  # the kernel has ended it already
            os.write(fd, fuse.OUT_HEADER.pack(fuse.OUT_HEADER.size, fuse.NOTIFY_RESEND, 0))
            poll.register(fd, select.POLLIN)
    end = time.monotonic() + _LONGEST_S
    while time.monotonic() < end and (ready := poll.poll(_QUIET_S * 1000)):
        for fd, _ in ready:
            try:
                _refuse_one(fd)
            except BlockingIOError:
                continue
            except OSError:
                poll.unregister(fd)


def _refuse_one(fd: int) -> None:
    request = os.read(fd, _BUFFER_BYTES)
    _, opcode, unique, *_ = fuse.IN_HEADER.unpack_from(request)
    if opcode not in _NO_REPLY:
        with contextlib.suppress(FileNotFoundError):  # it was interrupted
            os.write(fd, fuse.OUT_HEADER.pack(fuse.OUT_HEADER.size, -errno.ENOTCONN, unique))
