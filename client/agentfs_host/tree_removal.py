"""Remove a directory and everything in it, whatever the modes inside, but nothing that is mounted there."""

import errno
import os
import stat

from agentfs_host.descent import Descent, join
from agentfs_host.mount_table import mounts_beneath

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: str) -> None:
    """Remove a directory and everything in it. A directory that does not exist is no error.

    Raises:
        OSError: EBUSY if something is mounted in it; nothing was removed then.
    """
    parent, name = os.path.split(os.path.abspath(path))
    fd = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        remove_at(fd, os.fsencode(name))
    finally:
        os.close(fd)


def remove_at(directory: int, name: bytes) -> None:
    """Remove a file or a directory tree by the descriptor of its parent directory and its name."""
    try:
        os.unlink(name, dir_fd=directory)
        return
    except FileNotFoundError:
        return
    except (IsADirectoryError, PermissionError):
        if not stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            raise
    _permit_entering(directory, name)
    fd = os.open(name, _DIRECTORY, dir_fd=directory)
    try:
        _empty(fd)
    finally:
        os.close(fd)
    os.rmdir(name, dir_fd=directory)


def _empty(root: int) -> None:
    if mounts := mounts_beneath(root):
        raise OSError(errno.EBUSY, "something is mounted there", os.fsdecode(min(mounts)))
    with Descent(root) as tree:
        stack, directories = [b""], []
        while stack:
            path = stack.pop()
            directories.append(path)
            fd = tree.fd(path)
            with os.scandir(fd) as names:
                for item in names:
                    name = os.fsencode(item.name)
                    if item.is_dir(follow_symlinks=False):
                        _permit_entering(fd, name)
                        stack.append(join(path, name))
                    else:
                        os.unlink(name, dir_fd=fd)
        for path in reversed(directories[1:]):
            parent, _, name = path.rpartition(b"/")
            os.rmdir(name, dir_fd=tree.fd(parent))


def _permit_entering(directory: int, name: bytes) -> None:
    if os.geteuid() != 0:
        found = os.open(name, os.O_PATH | _DIRECTORY, dir_fd=directory)  # somebody may have put a symlink there meanwhile
        try:
            os.chmod(f"/proc/self/fd/{found}", 0o700)
        finally:
            os.close(found)
