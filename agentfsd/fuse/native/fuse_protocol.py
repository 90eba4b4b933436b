"""The FUSE protocol as far as we speak it: numbers, structures, and the flags of its versions 7.31 to 7.45.

Source: include/uapi/linux/fuse.h of Linux 6.18; all fields are in the byte order of this machine.
"""

import os
import struct

from agentfsd.core.inode import Attributes
from agentfsd.fuse.reply import LookupReply

MAJOR, MINOR, OLDEST_MINOR = 7, 45, 31

LOOKUP, FORGET, GETATTR, SETATTR, READLINK, SYMLINK = 1, 2, 3, 4, 5, 6
MKNOD, MKDIR, UNLINK, RMDIR, RENAME, LINK, OPEN, READ, WRITE, STATFS, RELEASE = 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18
FSYNC, SETXATTR, GETXATTR, LISTXATTR, REMOVEXATTR, FLUSH, INIT, OPENDIR, READDIR = 20, 21, 22, 23, 24, 25, 26, 27, 28
GETLK, SETLK, SETLKW = 31, 32, 33
RELEASEDIR, FSYNCDIR, ACCESS, CREATE, INTERRUPT, IOCTL = 29, 30, 34, 35, 36, 39
BATCH_FORGET, FALLOCATE, READDIRPLUS, RENAME2, LSEEK, COPY_FILE_RANGE, TMPFILE, STATX = 42, 43, 44, 45, 46, 47, 51, 52
COPY_FILE_RANGE_64 = 53

# What INIT offers and takes; bits from 32 on travel in a field of their own.
ASYNC_READ, POSIX_LOCKS, ATOMIC_O_TRUNC, BIG_WRITES, DONT_MASK, FLOCK_LOCKS = 1 << 0, 1 << 1, 1 << 3, 1 << 5, 1 << 6, 1 << 10
AUTO_INVAL_DATA, DO_READDIRPLUS, READDIRPLUS_AUTO, ASYNC_DIO = 1 << 12, 1 << 13, 1 << 14, 1 << 15
NO_OPEN_SUPPORT, PARALLEL_DIROPS, POSIX_ACL, MAX_PAGES = 1 << 17, 1 << 18, 1 << 20, 1 << 22
CACHE_SYMLINKS, NO_OPENDIR_SUPPORT, HANDLE_KILLPRIV_V2, SETXATTR_EXT = 1 << 23, 1 << 24, 1 << 28, 1 << 29
INIT_EXT, HAS_EXPIRE_ONLY, PASSTHROUGH, HAS_RESEND = 1 << 30, 1 << 35, 1 << 37, 1 << 39
NOTIFY_RESEND = 7  # a notification: the kernel sends again what was read and not answered

FOPEN_DIRECT_IO, FOPEN_KEEP_CACHE, FOPEN_CACHE_DIR, FOPEN_NOFLUSH, FOPEN_PASSTHROUGH = 1 << 0, 1 << 1, 1 << 3, 1 << 5, 1 << 7

FATTR_MODE, FATTR_UID, FATTR_GID, FATTR_SIZE, FATTR_ATIME, FATTR_MTIME, FATTR_FH = 1, 2, 4, 8, 16, 32, 64
FATTR_ATIME_NOW, FATTR_MTIME_NOW, FATTR_KILL_SUIDGID = 128, 256, 1 << 11

OPEN_KILL_SUIDGID = 1
WRITE_CACHE = 1 << 0  # written back from the page cache: the caller is not the writer
WRITE_KILL_SUIDGID = 1 << 2
SETXATTR_ACL_KILL_SGID = 1
FSYNC_DATA_ONLY = 1
LK_FLOCK = 1

IN_HEADER = struct.Struct("=IIQQIIIHH")  # length, opcode, unique, node, uid, gid, pid, extension, padding
OUT_HEADER = struct.Struct("=IiQ")  # length, -errno, unique
INIT_IN = struct.Struct("=IIIII44x")  # major, minor, readahead, flags, flags2
INIT_IN_SHORT = struct.Struct("=IIII")
INIT_OUT = struct.Struct("=IIIIHHIIHHIIH22x")
GETATTR_IN = struct.Struct("=IIQ")
SETATTR_IN = struct.Struct("=IIQQQqqqIIIIIIII")
MKNOD_IN, MKDIR_IN = struct.Struct("=IIII"), struct.Struct("=II")
RENAME_IN, RENAME2_IN, LINK_IN = struct.Struct("=Q"), struct.Struct("=QII"), struct.Struct("=Q")
OPEN_IN, CREATE_IN = struct.Struct("=II"), struct.Struct("=IIII")
READ_IN = WRITE_IN = struct.Struct("=QQIIQII")  # handle, offset, size, flags, owner, open flags, padding
LK_IN, FLUSH_IN, INTERRUPT_IN = struct.Struct("=QQQQIIII"), struct.Struct("=QIIQ"), struct.Struct("=Q")
RELEASE_IN, FSYNC_IN = struct.Struct("=QIIQ"), struct.Struct("=QII")
SETXATTR_IN, SETXATTR_IN_SHORT, GETXATTR_IN = struct.Struct("=IIII"), struct.Struct("=II"), struct.Struct("=II")
FORGET_IN, BATCH_FORGET_IN, FORGET_ONE = struct.Struct("=Q"), struct.Struct("=II"), struct.Struct("=QQ")
FALLOCATE_IN, LSEEK_IN = struct.Struct("=QQQII"), struct.Struct("=QQII")
COPY_FILE_RANGE_IN = struct.Struct("=QQQQQQQ")  # handle, offset, target node, target handle, target offset, length, flags
IOCTL_IN = struct.Struct("=QIIQII")

ENTRY_OUT = struct.Struct("=QQQQIIQQQqqqIIIIIIIIII")
ATTR_OUT = struct.Struct("=QIIQQQqqqIIIIIIIIII")
OPEN_OUT = struct.Struct("=QIi")
STATFS_OUT = struct.Struct("=QQQQQIIII24x")
SIZE_OUT = struct.Struct("=II")
LSEEK_OUT = struct.Struct("=Q")
LK_OUT = struct.Struct("=QQII")  # start, end, type, process
COPIED_OUT = struct.Struct("=Q")
IOCTL_OUT = struct.Struct("=iIII")
STATX_OUT = struct.Struct("=QII16xIIQIIIHHQQQQqIiqIiqIiqIiIIII112x")
DIRENT = struct.Struct("=QQII")  # inode, offset of the next, length of the name, type

_NS = 1_000_000_000
_BLOCK_BYTES = 4096
_STATX_BASIC_BTIME = 0x0FFF


def pack_entry(entry: LookupReply) -> bytes:
    """Return a fuse_entry_out, also for a name that does not exist."""
    node, attributes, entry_s, attr_s = entry
    if attributes is None:
        return ENTRY_OUT.pack(0, 0, int(entry_s), 0, 0, 0, *(0,) * 16)
    ino, mode, nlink, uid, gid, rdev, size, blocks, atime, mtime, ctime, _ = attributes
    return ENTRY_OUT.pack(
        node, 0, int(entry_s), int(attr_s), 0, 0,
        ino, size, blocks, atime // _NS, mtime // _NS, ctime // _NS, atime % _NS, mtime % _NS, ctime % _NS,
        mode, nlink, uid, gid, rdev & 0xFFFFFFFF, _BLOCK_BYTES, 0,
    )  # fmt: skip


def pack_attributes(attributes: Attributes, attr_s: float) -> bytes:
    """Return a fuse_attr_out."""
    ino, mode, nlink, uid, gid, rdev, size, blocks, atime, mtime, ctime, _ = attributes
    return ATTR_OUT.pack(
        int(attr_s), 0, 0,
        ino, size, blocks, atime // _NS, mtime // _NS, ctime // _NS, atime % _NS, mtime % _NS, ctime % _NS,
        mode, nlink, uid, gid, rdev & 0xFFFFFFFF, _BLOCK_BYTES, 0,
    )  # fmt: skip


def pack_statx(attributes: Attributes, attr_s: float) -> bytes:
    """Return a fuse_statx_out, with the birth time where it is known."""
    mask = _STATX_BASIC_BTIME if attributes.btime_ns else _STATX_BASIC_BTIME & ~0x800
    stamps = (attributes.atime_ns, attributes.btime_ns, attributes.ctime_ns, attributes.mtime_ns)
    times = [(stamp // _NS, stamp % _NS, 0) for stamp in stamps]
    return STATX_OUT.pack(
        int(attr_s), 0, 0, mask, _BLOCK_BYTES, 0, attributes.nlink, attributes.uid, attributes.gid, attributes.mode, 0,
        attributes.ino, attributes.size, attributes.blocks, 0, *times[0], *times[1], *times[2], *times[3],
        os.major(attributes.rdev), os.minor(attributes.rdev), 0, 0,
    )  # fmt: skip


def pack_statfs(stored: os.statvfs_result) -> bytes:
    return STATFS_OUT.pack(
        stored.f_blocks, stored.f_bfree, stored.f_bavail, stored.f_files, stored.f_ffree, stored.f_bsize, 255, stored.f_frsize, 0
    )


def pack_dirent(ino: int, following: int, name: bytes, mode: int) -> bytes:
    """Return a fuse_dirent, padded to 8 bytes."""
    return DIRENT.pack(ino, following, len(name), mode >> 12) + name + bytes(-len(name) % 8)
