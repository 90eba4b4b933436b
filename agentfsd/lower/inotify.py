"""inotify(7) and what goes with it, which Python's library does not offer. It knows nothing of agentfsd."""

import array
import fcntl
import os
import struct
import termios
from collections.abc import Iterator

from agentfs_host import syscalls

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


def tells_all(fd: int) -> bool:
    """Tell whether inotify hears of every change to the file system that *fd* is on."""
    return syscalls.filesystem_type(fd) in _TELLING  # where f_type is no long (s390x) none is known: on the safe side


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
