"""The one place where exceptions become errno values for the kernel."""

import errno
import logging
import sqlite3
import struct

log = logging.getLogger(__name__)


def errno_of(exc: Exception, request: str) -> int:
    """OSError gives its errno; anything unforeseen is logged and gives EIO."""
    if isinstance(exc, OSError):
        return exc.errno or errno.EIO
    if isinstance(exc, sqlite3.Error):
        log.error("%s: the metadata database failed: %s; `agentfsd fsck` says more", request, exc)
        return errno.EIO
    if isinstance(exc, MemoryError):
        return errno.ENOMEM
    if isinstance(exc, struct.error | OverflowError):  # a request that was cut short, or a number that nothing can hold
        return errno.EINVAL
    log.error("%s failed", request, exc_info=exc)
    return errno.EIO
