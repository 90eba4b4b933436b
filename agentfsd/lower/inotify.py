"""inotify(7), and the list of file systems whose changes it reports completely. This module knows nothing of agentfsd."""

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
IGNORED = 0x8000  # the watch has ended: it was removed, or its inode was deleted
ONLYDIR = 0x1000000
EXCL_UNLINK = 0x4000000

# Every change to these passes through this kernel, which reports it. Missing here: network file systems, FUSE, 9p, and
# overlayfs and other stacked ones. On FAT, NTFS and the like a file has many spellings of its name, and events report only one.
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
    """Tell whether inotify reports every change to the file system that *fd* is on."""
    return syscalls.filesystem_type(fd) in _TELLING  # on s390x f_type is not a long: no type matches, which is safe


def events(fd: int) -> Iterator[tuple[int, int, bytes]]:
    """Yield (watch, mask, name) for each event that is queued at the first step. The name of the watched inode itself is b"".
    Never blocks.
    """
    size = array.array("i", (0,))
    fcntl.ioctl(fd, termios.FIONREAD, size)
    data = os.read(fd, size[0]) if size[0] else b""
    at = 0
    while at < len(data):
        watch, mask, _, length = _EVENT.unpack_from(data, at)
        at += _EVENT.size + length
        yield watch, mask, data[at - length : at].rstrip(b"\0")
