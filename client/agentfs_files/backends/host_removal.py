"""Remove a directory of the host with everything in it, at any depth, with two descriptors, and without following a symlink that
replaces a directory meanwhile.
"""

import errno
import os
from dataclasses import dataclass

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(slots=True)
class _Level:
    """A directory on the way down: its identity, and its subdirectories that still have to be removed."""

    name: str
    identity: tuple[int, int]
    directories: list[str]


def remove_directory(name: str, parent: int) -> None:
    """Remove the directory *name* from the directory behind *parent*. After an OSError the rest remains."""
    fd = os.open(name, _DIRECTORY, dir_fd=parent)
    try:
        levels = [_enter(name, fd)]
        while True:
            level = levels[-1]
            if level.directories:
                below = level.directories.pop()
                fd = _exchange(fd, os.open(below, _DIRECTORY, dir_fd=fd))
                levels.append(_enter(below, fd))
            elif len(levels) > 1:
                levels.pop()
                fd = _exchange(fd, _back(fd, levels[-1].identity))
                os.rmdir(level.name, dir_fd=fd)
            else:
                break
    finally:
        os.close(fd)
    os.rmdir(name, dir_fd=parent)


def _enter(name: str, fd: int) -> _Level:
    """Open a directory and remove the files in it."""
    status = os.fstat(fd)
    directories = []
    with os.scandir(fd) as scan:
        entries = list(scan)
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            directories.append(entry.name)
        else:
            try:
                os.unlink(entry.name, dir_fd=fd)
            except FileNotFoundError:
                pass
    return _Level(name, (status.st_dev, status.st_ino), directories)


def _back(fd: int, identity: tuple[int, int]) -> int:
    """Return the parent directory, after checking that it is the one we came from."""
    above = os.open("..", _DIRECTORY, dir_fd=fd)
    status = os.fstat(above)
    if (status.st_dev, status.st_ino) != identity:
        os.close(above)
        raise OSError(errno.EBUSY, "a directory was moved while it was being deleted")
    return above


def _exchange(old: int, new: int) -> int:
    os.close(old)
    return new
