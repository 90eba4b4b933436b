"""Reads files of settings and writes them anew: owners, modes, attributes and hard links stay."""

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable

from agentfsd.cli.command_base import Failure


def text_of(path: str) -> str | None:
    """Return the text of a file; None if there is none.

    Raises:
        Failure: It is no regular file, which could block or be destroyed, or no UTF-8.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise Failure(f"{path} is no regular file", "nothing was written; put a regular file there first")
    try:
        with os.fdopen(fd, "rb") as file:
            return file.read().decode()
    except UnicodeDecodeError as exc:
        raise Failure(f"{path} is no UTF-8", "nothing was written; mend the file first") from exc


def missing_directories(path: str) -> list[str]:
    """Return the directories that a file needs and that are not there, the outermost first."""
    missing, directory = [], os.path.dirname(path)
    while not os.path.isdir(directory):
        missing.append(directory)
        directory = os.path.dirname(directory)
    return missing[::-1]


def make_directories(missing: Iterable[str]) -> None:
    """Make directories, the outermost first. If root makes them, they belong to the owner of the directory that they are in."""
    for directory in missing:
        os.mkdir(directory)
        if os.geteuid() == 0:
            found = os.stat(os.path.dirname(directory))
            os.chown(directory, found.st_uid, found.st_gid, follow_symlinks=False)


def write(path: str, text: str, before: str | None) -> None:
    """Replace a file in one step; one that has other hard links is written where it is.

    Args:
        path: The file; no symlink.
        text: What it is to have.
        before: What it has; None if there is none.

    Raises:
        Failure: It is read-only, or has something else by now.
    """
    found = os.stat(path) if before is not None else None
    if found is not None and (not found.st_mode & 0o222 or not os.access(path, os.W_OK)):
        raise Failure(f"{path} is read-only", "nothing was written; make it writable first, for example with chmod u+w")
    if before is not None and found is not None and found.st_nlink > 1:
        _write_in_place(path, text, before)
        return
    fd, temporary = tempfile.mkstemp(prefix=".agentfsd-", dir=os.path.dirname(path))
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(text.encode())
            file.flush()
            _inherit(fd, temporary, path, found)
            os.fsync(fd)
        if text_of(path) != before:
            raise _changed(path)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _inherit(fd: int, temporary: str, path: str, found: os.stat_result | None) -> None:
    """Give a new file what the one had whose place it takes; if there was none, what a new file has there."""
    owner = found if found is not None else os.stat(os.path.dirname(path))
    if (found is not None or os.geteuid() == 0) and (owner.st_uid, owner.st_gid) != (os.geteuid(), os.getegid()):
        os.fchown(fd, owner.st_uid, owner.st_gid)
    if found is None:
        os.fchmod(fd, 0o666 & ~_umask())
        return
    shutil.copystat(path, temporary)
    os.utime(fd)


def _write_in_place(path: str, text: str, before: str) -> None:
    with open(path, "r+b") as file:
        if file.read() != before.encode():
            raise _changed(path)
        file.seek(0)
        file.write(text.encode())
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


def _changed(path: str) -> Failure:
    return Failure(f"{path} was changed by somebody else at the same moment", "try again")


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
