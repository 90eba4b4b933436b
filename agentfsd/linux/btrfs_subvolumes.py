"""Snapshots of btrfs subvolumes, by descriptors. See btrfs-subvolume(8), and linux/btrfs.h for the calls."""

import errno
import fcntl
import os
import struct

from agentfs_host import syscalls

_BTRFS = 0x9123683E  # f_type
_ROOT_INO = 256  # of the root directory of each subvolume
_NO_SUBVOLUME = (errno.ENOENT, errno.ENOTDIR)
_SUBVOL_CREATE = 0x5000940E
_SNAP_DESTROY = 0x5000940F
_SNAP_CREATE_V2 = 0x50009417
_SUBVOL_SETFLAGS = 0x4008941A
_GET_SUBVOL_ROOTREF = 0xD000943D  # Linux 4.18
_RDONLY = 2
_NAMED = struct.Struct("=q4088s")  # struct btrfs_ioctl_vol_args: descriptor, name
_SNAPSHOT = struct.Struct("=qQQ32x4040s")  # struct btrfs_ioctl_vol_args_v2: descriptor of the source, -, flags, name
_NESTED_BYTES, _NESTED_COUNT_AT = 4096, 8 + 255 * 16  # in struct btrfs_ioctl_get_subvol_rootref_args


def is_root(fd: int) -> bool:
    """Tell whether a directory is the root of a subvolume."""
    return os.fstat(fd).st_ino == _ROOT_INO and syscalls.filesystem_type(fd) == _BTRFS


def has_nested(fd: int) -> bool:
    """Tell whether there are other subvolumes in that of a directory; True where nobody knows."""
    asked = bytearray(_NESTED_BYTES)
    try:
        fcntl.ioctl(fd, _GET_SUBVOL_ROOTREF, asked)
    except OSError:
        return True
    return asked[_NESTED_COUNT_AT] > 0


def can_delete(fd: int) -> bool:
    """Tell by a try whether this process may delete subvolumes in a directory. Ordinary users need a mount option for it."""
    name = b"probe"
    try:
        fcntl.ioctl(fd, _SUBVOL_CREATE, bytearray(_NAMED.pack(0, name)))
    except OSError:
        return False
    try:
        delete(fd, name)
    except OSError:
        os.rmdir(name, dir_fd=fd)
        return False
    return True


def snapshot(source_fd: int, target_fd: int, name: bytes) -> None:
    """Make a read-only snapshot of a subvolume, as *name* in another directory. What was written before is in it.

    Neither descriptor may be one of O_PATH.

    Raises:
        OSError: EXDEV on another file system, EPERM if the subvolume is another user's.
    """
    fcntl.ioctl(target_fd, _SNAP_CREATE_V2, bytearray(_SNAPSHOT.pack(source_fd, 0, _RDONLY, name)))


def delete(fd: int, name: bytes) -> None:
    """Delete a subvolume with all its files. OSError EPERM where this process may not."""
    fcntl.ioctl(fd, _SNAP_DESTROY, bytearray(_NAMED.pack(0, name)))


def delete_if_any(fd: int, name: bytes) -> None:
    """Do so if *name* is a subvolume. OSError as delete() has it."""
    try:
        found = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
    except OSError as exc:
        if exc.errno in _NO_SUBVOLUME:
            return
        raise
    try:
        if is_root(found):
            _delete_readonly(fd, name, found)
    finally:
        os.close(found)


def _delete_readonly(fd: int, name: bytes, subvolume: int) -> None:
    try:
        delete(fd, name)
    except OSError as exc:
        if exc.errno != errno.EROFS:
            raise
        fcntl.ioctl(subvolume, _SUBVOL_SETFLAGS, bytes(8))  # only root may delete one that is read-only
        delete(fd, name)
