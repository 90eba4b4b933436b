"""Locks that the holder of a branch's mount takes there for processes of another connection.

The holder has one open file description for each lock owner. Open file description locks and flock exclude the locks of processes
that use the branch through this mount, and each other. Source: fcntl(2), flock(2).
"""

import errno
import fcntl
import os
from typing import Any, NamedTuple

from agentfs_host import record_locks

_LAST = (1 << 63) - 1
_NOT_FOR_WRITING = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ETXTBSY)


class _Holder(NamedTuple):
    """A lock owner and a file, by the daemon's numbers. An owner's flock and record locks are separate."""

    file: int
    owner: int
    flock: bool


class HolderLocks:
    """The locks of one holder.

    Args:
        root: Where the branch is mounted.
        process: A descriptor of /proc/self.
    """

    def __init__(self, root: str, process: int) -> None:
        self._root, self._process = root, process
        self._files: dict[_Holder, int] = {}
        self._daemons: dict[_Holder, int] = {}  # which daemon asked last

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        """Hold, test or release a lock, as ``do`` says; or "forget" those that a former daemon asked for, and this one did not.

        Args:
            message: What BranchLocks sends. ``path`` and ``ino`` name the file; ``path`` is "" for a file without a name.

        Returns:
            {"conflict": [kind, first, last]} if another lock conflicts, else {}.

        Raises:
            OSError: ESTALE, the path has another file; ENOLCK, the file has no name; what open(2) or fcntl(2) gives.
        """
        if message["do"] == "forget":
            return self._forget_others(message["daemon"])
        holder = _Holder(message["file"], message["owner"], message["flock"])
        start, end, kind = message["start"], message["end"], message["kind"]
        if message["do"] == "release":
            return self._release(holder, start, end)
        fd = self._file(holder, message["path"], message["ino"])
        try:
            if message["do"] == "test":
                return _conflict(_ask(fd, start, end, kind))
            self._daemons[holder] = message["daemon"]
            return _hold_flock(fd, kind) if holder.flock else _hold_range(fd, start, end, kind)
        finally:
            self._let_go_if_empty(holder)

    def _file(self, holder: _Holder, path: str, ino: int) -> int:
        fd = self._files.get(holder)
        if fd is not None:
            return fd
        known = next((fd for other, fd in self._files.items() if other.file == holder.file), None)
        if known is not None:  # open already, so its name does not matter
            fd = _open(f"fd/{known}", holder.flock, dir_fd=self._process)
        elif path:
            fd = _open(os.path.join(self._root, path), holder.flock, os.O_NOFOLLOW)
            if os.fstat(fd).st_ino != ino:
                os.close(fd)
                raise OSError(errno.ESTALE, "another file has that name now")
        else:
            raise OSError(errno.ENOLCK, "the file has no name any more")
        self._files[holder] = fd
        return fd

    def _release(self, holder: _Holder, start: int, end: int) -> dict[str, Any]:
        fd = self._files.get(holder)
        if fd is not None:
            if holder.flock:
                fcntl.flock(fd, fcntl.LOCK_UN)
            else:
                record_locks.set_lock(fd, fcntl.F_UNLCK, start, _length(start, end))
            self._let_go_if_empty(holder)
        return {}

    def _let_go_if_empty(self, holder: _Holder) -> None:
        with open(os.open(f"fdinfo/{self._files[holder]}", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._process)) as info:
            holds = any(line.startswith("lock:") for line in info)
        if not holds:
            self._let_go(holder)

    def _let_go(self, holder: _Holder) -> None:
        os.close(self._files.pop(holder))
        self._daemons.pop(holder, None)

    def _forget_others(self, daemon: int) -> dict[str, Any]:
        for holder in [holder for holder in self._files if self._daemons.get(holder) != daemon]:
            self._let_go(holder)
        return {}


def _open(path: str, flock: bool, flags: int = 0, dir_fd: int | None = None) -> int:
    """Open a file, for writing where permitted, since a write lock needs it; a running program cannot be (ETXTBSY)."""
    flags |= os.O_CLOEXEC | os.O_NONBLOCK
    if not flock:
        try:
            return os.open(path, os.O_RDWR | flags, dir_fd=dir_fd)
        except OSError as exc:
            if exc.errno not in _NOT_FOR_WRITING:
                raise
    return os.open(path, os.O_RDONLY | flags, dir_fd=dir_fd)


def _hold_flock(fd: int, kind: int) -> dict[str, Any]:
    try:
        fcntl.flock(fd, (fcntl.LOCK_EX if kind == fcntl.F_WRLCK else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return _conflict((kind, 0, _LAST))
    return {}


def _hold_range(fd: int, start: int, end: int, kind: int) -> dict[str, Any]:
    if kind == fcntl.F_WRLCK and fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        kind = fcntl.F_RDLCK  # no process can open it for writing now; a read lock excludes those that opened it before
    try:
        record_locks.set_lock(fd, kind, start, _length(start, end))
    except BlockingIOError:
        return _conflict(_ask(fd, start, end, kind) or (kind, start, end))
    return {}


def _ask(fd: int, start: int, end: int, kind: int) -> tuple[int, int, int] | None:
    """Return the kind and range of a conflicting lock, if there is one."""
    asked = record_locks.packed(kind, start, _length(start, end))
    held, _, first, length, _ = record_locks.FLOCK.unpack(fcntl.fcntl(fd, record_locks.F_OFD_GETLK, asked))
    if held == fcntl.F_UNLCK:
        return None
    return held, first, first + length - 1 if length else _LAST


def _conflict(lock: tuple[int, int, int] | None) -> dict[str, Any]:
    return {"conflict": list(lock)} if lock is not None else {}


def _length(start: int, end: int) -> int:
    return 0 if end == _LAST else end - start + 1
