"""When a file was made: statx(2), which Python has from 3.15 on."""

import ctypes
import struct

_AT_EMPTY_PATH, _BTIME = 0x1000, 0x800
_MASK, _BORN = struct.Struct("I"), struct.Struct("qI")
_BORN_AT = 0x50

_statx = getattr(ctypes.CDLL(None), "statx", None)  # glibc 2.28, musl 1.2.5
if _statx is not None:
    _statx.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.c_char_p)


def birth_time(fd: int) -> float | None:
    """In seconds since 1970; None where the file system does not keep it."""
    found = ctypes.create_string_buffer(256)
    if _statx is None or _statx(fd, b"", _AT_EMPTY_PATH, _BTIME, found) or not _MASK.unpack_from(found)[0] & _BTIME:
        return None
    seconds, nanoseconds = _BORN.unpack_from(found, _BORN_AT)
    return float(seconds + nanoseconds / 1e9)
