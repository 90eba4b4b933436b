"""Set owner, mode, times and extended attributes of one file."""

import errno
import os
import stat
from collections.abc import Callable
from typing import Protocol

from agentfs_host import xattrs

_NOT_PERMITTED = (errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.EINVAL)


class KeptAttributes(Protocol):
    """The attributes of a file. *mode* includes the type."""

    @property
    def mode(self) -> int: ...

    @property
    def uid(self) -> int: ...

    @property
    def gid(self) -> int: ...

    @property
    def mtime_ns(self) -> int: ...

    @property
    def xattrs(self) -> dict[bytes, bytes]: ...


def settle(fd: int, wanted: KeptAttributes) -> None:
    """Set owner, xattrs, mode and time of the file behind *fd* (O_PATH suffices), as far as permitted.

    The order matters, since changing the owner clears setuid bits and capabilities.
    """
    where = b"/proc/self/fd/%d" % fd
    info = os.fstat(fd)
    if (info.st_uid, info.st_gid) != (wanted.uid, wanted.gid):
        _if_permitted(lambda: os.chown(where, wanted.uid, wanted.gid))
    _settle_xattrs(where, wanted.xattrs)
    info = os.fstat(fd)
    if not stat.S_ISLNK(wanted.mode) and stat.S_IMODE(info.st_mode) != stat.S_IMODE(wanted.mode):
        _if_permitted(lambda: os.chmod(where, stat.S_IMODE(wanted.mode)))
    if info.st_mtime_ns != wanted.mtime_ns:
        _if_permitted(lambda: os.utime(where, ns=(info.st_atime_ns, wanted.mtime_ns)))


def _settle_xattrs(where: bytes, wanted: dict[bytes, bytes]) -> None:
    present = set(xattrs.names(where, follow=True))
    for name in present - wanted.keys():
        _if_permitted(lambda name=name: os.removexattr(where, name))  # type: ignore[misc]
    for name, value in wanted.items():
        _if_permitted(lambda name=name, value=value: _set_xattr(where, name, value))  # type: ignore[misc]


def _set_xattr(where: bytes, name: bytes, value: bytes) -> None:
    try:
        if os.getxattr(where, name) == value:
            return
    except OSError:
        pass
    os.setxattr(where, name, value)


def _if_permitted(do: Callable[[], None]) -> None:
    try:
        do()
    except OSError as exc:
        if exc.errno not in _NOT_PERMITTED:
            raise
