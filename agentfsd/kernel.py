"""System calls that Python does not offer. It knows nothing of agentfsd."""

import ctypes
import os

_libc = ctypes.CDLL(None, use_errno=True)


def sync_mount(mountpoint: str) -> None:
    """syncfs(2): writes the dirty pages of one file system, and waits."""
    fd = os.open(mountpoint, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if _libc.syncfs(fd) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), mountpoint)
    finally:
        os.close(fd)
