"""Create and remove ``.agentfs`` in the lower, where commits are staged. Removing it also restores the times of the root."""

import errno
import os
import secrets
import stat

from agentfsd.domain_errors import Refusal
from agentfsd.lower.commit_journal import Control, Times
from agentfsd.lower.host_lower import HostLower
from agentfsd.lower.survey import check_writable
from agentfsd.types import CONTROL_DIR

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def look(lower: HostLower) -> Control:
    """Return the state of ``.agentfs`` before a commit.

    Raises:
        Refusal: ``.agentfs`` exists and is not a directory.
    """
    info = lower.stat(b"")
    root = Times(b"", info.st_ino, info.st_atime_ns, info.st_mtime_ns)
    try:
        there = lower.stat(CONTROL_DIR)
    except FileNotFoundError:
        check_writable(lower.renew(b"").fd, b".", b"")
        return Control(True, None, root, root)
    if not stat.S_ISDIR(there.st_mode):
        raise Refusal(errno.ENOTDIR, "control-in-the-way", "the lower holds a file named .agentfs: a commit needs that name")
    check_writable(lower.renew(b"").fd, CONTROL_DIR, CONTROL_DIR)
    return Control(False, Times(CONTROL_DIR, there.st_ino, there.st_atime_ns, there.st_mtime_ns), root, root)


def new_name() -> bytes:
    return b"commit-" + secrets.token_hex(4).encode()


def make(lower: HostLower, name: bytes) -> int:
    """Create the staging directory, and ``.agentfs`` if it is missing. Return a descriptor of the staging directory."""
    root = lower.renew(b"")
    try:
        os.mkdir(CONTROL_DIR, 0o700, dir_fd=root.fd)
    except FileExistsError:
        pass
    control = os.open(CONTROL_DIR, _DIRECTORY, dir_fd=root.fd)
    try:
        os.mkdir(name, 0o700, dir_fd=control)
        return os.open(name, _DIRECTORY, dir_fd=control)
    finally:
        os.close(control)


def open_staging(lower: HostLower, name: bytes) -> int:
    """Open the staging directory. Raises OSError with ENOENT if it no longer exists."""
    root = lower.renew(b"")
    control = os.open(CONTROL_DIR, _DIRECTORY, dir_fd=root.fd)
    try:
        return os.open(name, _DIRECTORY, dir_fd=control)
    finally:
        os.close(control)


def remove(lower: HostLower, name: bytes, control: Control, root_times: Times) -> None:
    """Remove the staging directory with everything in it, and restore the times of the root. This may be repeated."""
    root = lower.renew(b"")
    try:
        fd = os.open(CONTROL_DIR, _DIRECTORY, dir_fd=root.fd)
    except FileNotFoundError:
        pass
    else:
        try:
            _remove_in(fd, name)
            if control.times is not None:
                _set_times(fd, control.times)
        finally:
            os.close(fd)
        if control.made:
            _remove_empty(CONTROL_DIR, root.fd)
    _set_times(b"/proc/self/fd/%d" % root.fd, root_times)


def _remove_in(control_fd: int, name: bytes) -> None:
    try:
        fd = os.open(name, _DIRECTORY, dir_fd=control_fd)
    except FileNotFoundError:
        return
    try:
        empty(fd)
    finally:
        os.close(fd)
    os.rmdir(name, dir_fd=control_fd)


def empty(fd: int) -> None:
    """Remove everything in a directory that agentfsd created, at any depth. Deep directories are moved up first."""
    moved = 0
    while directories := _remove_files(fd):
        for name in directories:
            _make_writable(fd, name)
            inner = os.open(name, _DIRECTORY, dir_fd=fd)
            try:
                for deeper in _remove_files(inner):
                    _make_writable(inner, deeper)
                    moved = _move_up(inner, deeper, fd, moved)
            finally:
                os.close(inner)
            os.rmdir(name, dir_fd=fd)


def _remove_files(fd: int) -> list[bytes]:
    """Remove the files, and return the names of the remaining directories. Opens the directory again, since on btrfs an older
    descriptor lists only older names.
    """
    listed = os.open(b".", _DIRECTORY, dir_fd=fd)
    try:
        with os.scandir(listed) as entries:
            names = [(os.fsencode(entry.name), entry.is_dir(follow_symlinks=False)) for entry in entries]
    finally:
        os.close(listed)
    for name, is_directory in names:
        if not is_directory:
            os.unlink(name, dir_fd=fd)
    return [name for name, is_directory in names if is_directory]


def _make_writable(fd: int, name: bytes) -> None:
    """Make a directory writable: only root may empty or move directories whatever their mode."""
    if os.geteuid() != 0:
        os.chmod(name, stat.S_IRWXU, dir_fd=fd)


def _move_up(source_fd: int, name: bytes, fd: int, moved: int) -> int:
    while True:
        moved += 1
        try:
            os.rename(name, b"deeper-%d" % moved, src_dir_fd=source_fd, dst_dir_fd=fd)
        except OSError as exc:
            if exc.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
        else:
            return moved


def _remove_empty(name: bytes, fd: int) -> None:
    try:
        os.rmdir(name, dir_fd=fd)
    except OSError as exc:
        if exc.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
            raise


def _set_times(where: int | bytes, times: Times) -> None:
    info = os.stat(where)
    if info.st_ino == times.ino and info.st_mtime_ns != times.mtime_ns:
        os.utime(where, ns=(times.atime_ns, times.mtime_ns))
