"""The client process of a conversation, for as long as it lives. This module sees no request.

A conversation can outlive the process that began it, because a descriptor can be inherited or passed on. The process number then
belongs to no process, or to another one. Only a pidfd tells.
"""

import errno
import itertools
import os
import select
import threading
from collections.abc import Callable, Iterable
from typing import Protocol

from agentfsd.core.permissions import Credentials
from agentfsd.domain_errors import Refusal
from agentfsd.handoff.credentials import credentials_of, umask_of
from agentfsd.types import Caller

_FILES_MAX = 256


class OpenFile(Protocol):
    """A file of one branch or snapshot that a conversation has open for reading or writing."""

    @property
    def tree_id(self) -> str: ...

    def close(self) -> None: ...


class Peer:
    """A caller whose process is watched until close(), and what its conversation holds.

    Args:
        caller: Its process, user and group, as the kernel says.
        pidfd: A pidfd of the process, which is taken over; -1: it has ended; None: one is opened.
        groups: All groups that the caller is in, where the kernel has said so.
    """

    def __init__(self, caller: Caller, pidfd: int | None = None, groups: Iterable[int] | None = None) -> None:
        self.caller = caller
        self.files: dict[int, OpenFile] = {}
        self._groups = groups
        self._credentials: Credentials | None = None
        self._numbers = itertools.count(1)
        self._pidfd = _open_pidfd(caller.pid) if pidfd is None else pidfd
        self.descriptors: list[int] = []  # that came with the request
        self.outgoing: list[int] = []  # that go along with the reply
        self.made: set[str] = set()  # ids of the snapshots that this conversation has made
        self.at_end: list[Callable[[], None]] = []  # what is called when the conversation has ended
        self.obeys: str | None = None  # the id of a branch whose rules by path it keeps, though bound to none
        self.temporary: set[str] = set()  # ids of snapshots and branches that go with it

    def check_alive(self) -> None:
        """Raise Refusal if the process has ended. Then nothing that was looked up by its number before is valid."""
        if self.caller.pid and not self._is_alive():
            raise Refusal(
                errno.EPERM, "caller-gone", "the process that began this conversation has ended", "begin a new conversation"
            )

    def _is_alive(self) -> bool:
        if self._pidfd < 0:
            return False
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return not poll.poll(0)

    def credentials(self) -> Credentials:
        """Return the caller's rights to files, as they were at the first call. Raises Refusal if the process has ended."""
        if self._credentials is None:
            credentials = credentials_of(self.caller, self._groups)
            self.check_alive()  # or that was another process
            self._credentials = credentials
        return self._credentials

    def creator(self) -> Credentials:
        """Return the caller's rights for creating a file, with the process's present umask."""
        umask = umask_of(self.caller)
        return self.credentials() if umask is None else self.credentials()._replace(umask=umask)

    def enter(self, file: OpenFile) -> int:
        """Keep a file open until close(), and return its handle. Raises Refusal if too many are open."""
        if len(self.files) >= _FILES_MAX:
            file.close()
            raise Refusal(errno.EMFILE, "too-many-files", f"this conversation has {_FILES_MAX} files open", "close some of them")
        handle = next(self._numbers)
        self.files[handle] = file
        return handle

    def drop_descriptors(self) -> None:
        """Close the descriptors that no request has taken, and those that were sent."""
        while self.outgoing:
            os.close(self.outgoing.pop())
        if self.descriptors:
            taken, self.descriptors = self.descriptors, []
            threading.Thread(target=_close_all, args=(taken,), daemon=True).start()

    def close(self) -> None:
        """End the conversation: close its files and descriptors."""
        self.drop_descriptors()
        while self.at_end:
            self.at_end.pop()()
        while self.files:
            self.files.popitem()[1].close()
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1


def _close_all(descriptors: list[int]) -> None:
    """Run in a thread. Closing a file of this mount writes back its dirty mapped pages, and the event loop must answer that.
    Another file system may never return."""
    for fd in descriptors:
        os.close(fd)


def _open_pidfd(pid: int) -> int:
    """Return -1 for a process that has ended, and for callers outside our pid namespace (number 0)."""
    try:
        return os.pidfd_open(pid) if pid else -1
    except ProcessLookupError:
        return -1
