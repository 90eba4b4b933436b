"""Removing a directory of the host with all that is in it: however deep it is, with two descriptors, and without following a
symlink that takes a directory's place meanwhile."""

import errno
import os
from dataclasses import dataclass

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(slots=True)
class _Level:
    """A directory on the way down: what it is, and which directories in it are still to go."""

    name: str
    identity: tuple[int, int]
    directories: list[str]


def remove_directory(name: str, parent: int) -> None:
    """Removes the directory *name* from the one that *parent* is a descriptor of. OSError leaves what is not yet removed."""
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
    """Removes the files of a directory."""
    found = os.fstat(fd)
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
    return _Level(name, (found.st_dev, found.st_ino), directories)


def _back(fd: int, identity: tuple[int, int]) -> int:
    """The directory above, which must be the one that we came from."""
    above = os.open("..", _DIRECTORY, dir_fd=fd)
    found = os.fstat(above)
    if (found.st_dev, found.st_ino) != identity:
        os.close(above)
        raise OSError(errno.EBUSY, "a directory was moved while it was being deleted")
    return above


def _exchange(old: int, new: int) -> int:
    os.close(old)
    return new
