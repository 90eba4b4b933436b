"""Create a file or directory completely or not at all: fill it under a temporary name beside the target, then rename it."""

import errno
import fcntl
import os
import re
import secrets
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from agentfs_files.archive.zip_writer import whole_file
from agentfs_host import syscalls
from agentfs_host.tree_removal import remove_tree
from agentfsd.domain_errors import Refusal


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ignore SIGINT, SIGTERM and SIGHUP, so that a second Ctrl-C does not interrupt the cleanup."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set signal handlers
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def new_directory(target: str, *, replace: bool) -> Iterator[str]:
    """Yield a new directory to fill, and rename it to *target* when the context ends.

    Args:
        target: path of the directory to create. If it exists, it must be an empty directory unless *replace* is true.
        replace: whether to replace everything in an existing directory.

    Raises:
        Refusal: *target* is not a directory, or it is not empty.
    """
    target = os.path.abspath(target)
    is_full = _check_directory(target, replace)
    _remove_unfinished(target)
    temporary = _beside(target)
    try:
        os.mkdir(temporary, 0o700)  # a Ctrl-C may come right after it
        with _in_use(temporary, or_without_locks=True):
            yield temporary
            if is_full:
                syscalls.exchange(temporary, target)
            else:
                os.rename(temporary, target)
    finally:
        with undisturbed():
            remove_tree(temporary)


def _remove_unfinished(target: str) -> None:
    """Remove what earlier calls for the same target have left beside it, because their process was killed."""
    directory, name = os.path.split(target)
    pattern = re.compile(rf"\.{re.escape(name[:100])}\.[0-9a-f]{{8}}\.part")
    for found in os.listdir(directory):
        if pattern.fullmatch(found) and os.path.isdir(path := os.path.join(directory, found)):
            try:
                with _in_use(path):
                    remove_tree(path)
            except OSError:
                continue  # another export fills it, or it is not ours


@contextmanager
def _in_use(directory: str, *, or_without_locks: bool = False) -> Iterator[None]:
    """Lock a directory for the time of the block, so that others see that a process fills it.

    Raises:
        OSError: a process fills it, or the file system has no locks and *or_without_locks* is false.
    """
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            if exc.errno == errno.EWOULDBLOCK or not or_without_locks:
                raise
        yield
    finally:
        os.close(fd)


def _check_directory(target: str, replace: bool) -> bool:
    """Return whether an existing target has entries."""
    if not os.path.lexists(target):
        return False
    if os.path.islink(target) or not os.path.isdir(target):
        raise Refusal(errno.ENOTDIR, "not-a-directory", f"{target} is there and no directory", "name a new one")
    is_full = bool(os.listdir(target))
    if is_full and not replace:
        raise Refusal(
            errno.ENOTEMPTY, "not-empty", f"{target} is not empty", "name a new directory; --force replaces all that is in it"
        )
    return is_full


@contextmanager
def new_file(target: str, *, replace: bool) -> Iterator[BinaryIO]:
    """Yield a new file to write, and rename it to *target* when the context ends.

    Raises:
        Refusal: *target* exists and *replace* is false.
    """
    target = os.path.abspath(target)
    if os.path.lexists(target) and not replace:
        raise Refusal(errno.EEXIST, "file-exists", f"{target} is there already", "choose another name; --force replaces it")
    with whole_file(target) as (file, _):
        yield file


def _beside(target: str) -> str:
    directory, name = os.path.split(target)
    return os.path.join(directory, f".{name[:100]}.{secrets.token_hex(4)}.part")
