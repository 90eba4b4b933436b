"""inotify(7) and what goes with it, which Python's library does not offer. It knows nothing of agentfsd."""

import array
import ctypes
import fcntl
import os
import struct
import termios
from collections.abc import Iterator

MODIFY = 0x2
ATTRIB = 0x4
CLOSE_WRITE = 0x8
MOVED_FROM = 0x40
MOVED_TO = 0x80
CREATE = 0x100
DELETE = 0x200
Q_OVERFLOW = 0x4000
IGNORED = 0x8000  # the watch has ended: removed, or what it watched is gone
ONLYDIR = 0x1000000
EXCL_UNLINK = 0x4000000

# Whatever changes these went through this kernel, which tells. Not so: network file systems, FUSE, 9p, overlayfs and other
# stacked ones. FAT, NTFS and their like know one file by many spellings of its name, and tell of one of them.
_TELLING = frozenset((
    0xEF53,  # ext2, ext3, ext4
    0x58465342,  # XFS
    0x9123683E,  # btrfs
    0xCA451A4E,  # bcachefs
    0xF2F52010,  # F2FS
    0x2FC12FC1,  # ZFS
    0x01021994,  # tmpfs
    0x858458F6,  # ramfs, also the root of an initramfs
    0x3153464A,  # JFS
    0x3434,  # NILFS2
    0x73717368,  # squashfs
    0xE0F5E1E2,  # EROFS
))  # fmt: skip
_EVENT = struct.Struct("iIII")  # watch, mask, cookie, length of the name with its padding
_STATFS_BYTES = 256  # more than any machine's struct statfs

_libc = ctypes.CDLL(None, use_errno=True)
_libc.inotify_init1.argtypes = (ctypes.c_int,)
_libc.inotify_add_watch.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32)
_libc.inotify_rm_watch.argtypes = (ctypes.c_int, ctypes.c_int)
_libc.fstatfs.argtypes = (ctypes.c_int, ctypes.c_void_p)


def tells_all(fd: int) -> bool:
    """Whether inotify hears of every change to the file system that *fd* is on (fstatfs(2): f_type)."""
    answer = (ctypes.c_long * (_STATFS_BYTES // ctypes.sizeof(ctypes.c_long)))()
    _checked(_libc.fstatfs(fd, answer))
    return answer[0] & 0xFFFFFFFF in _TELLING  # where f_type is no long (s390x) none is known: on the safe side


def start() -> int:
    """A new, empty queue, not blocking. EMFILE: fs.inotify.max_user_instances."""
    return _checked(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))


def add(fd: int, path: bytes, mask: int) -> int:
    """The number of the watch, the same for the same inode. ENOSPC: fs.inotify.max_user_watches."""
    return _checked(_libc.inotify_add_watch(fd, path, mask))


def remove(fd: int, watch: int) -> None:
    """No error when the kernel has ended it already."""
    _libc.inotify_rm_watch(fd, watch)


def events(fd: int) -> Iterator[tuple[int, int, bytes]]:
    """(watch, mask, name) of all that is in the queue at the first step, b"" for the watched inode itself. Never blocks."""
    size = array.array("i", (0,))
    fcntl.ioctl(fd, termios.FIONREAD, size)
    data = os.read(fd, size[0]) if size[0] else b""
    at = 0
    while at < len(data):
        watch, mask, _, length = _EVENT.unpack_from(data, at)
        at += _EVENT.size + length
        yield watch, mask, data[at - length : at].rstrip(b"\0")


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
