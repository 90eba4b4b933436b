"""Reserves a missing name for a thread that was told to look it up again before it makes a file.

A kernel may ask to make a file under a name that another connection has just made. open(2) with O_CREAT must then open that file.
So the daemon answers ESTALE, and the VFS looks the name up and tries once more. If the name is gone by then, it is reserved for
that second try. Otherwise another thread might make it meanwhile, and the VFS would return the second ESTALE to the program.
"""

import errno
import time

import trio

from agentfsd.core.tree import Inode

KEPT_S = 0.1  # for a second try that never comes: the caller was killed, or may not make files there
_FORGOTTEN_S = 1.0
_MANY = 64

_Place = tuple[Inode, bytes]


class NameReserved(Exception):
    """The name is reserved for another thread. Repeat the request after over()."""

    def __init__(self, free: trio.Event) -> None:
        super().__init__()
        self.free = free

    async def over(self) -> None:
        """Wait until the reservation has ended: KEPT_S at most."""
        with trio.move_on_after(KEPT_S):
            await self.free.wait()


class NameReservations:
    """The reservations of all connections. A second try comes from the same thread, so they are kept by thread id."""

    def __init__(self) -> None:
        self._sent_back: dict[int, tuple[_Place, float]] = {}
        self._kept: dict[_Place, tuple[int, float, trio.Event]] = {}

    def look_again(self, tid: int, directory: Inode, name: bytes) -> bool:
        """After a request to make a name that exists: return whether to answer ESTALE. False for the thread's second try."""
        now, place = time.monotonic(), (directory, name)
        old = self._sent_back.pop(tid, None)
        if old is not None and old[0] == place and now - old[1] < _FORGOTTEN_S:
            return False
        if len(self._sent_back) >= _MANY:
            self._sent_back = {tid: sent for tid, sent in self._sent_back.items() if now - sent[1] < _FORGOTTEN_S}
        self._sent_back[tid] = place, now
        return True

    def looked(self, tid: int, directory: Inode, name: bytes, *, exists: bool) -> None:
        """After each look-up: reserve a missing name for the thread if look_again() has sent it back for that name."""
        if not self._sent_back:
            return
        place, sent = (directory, name), self._sent_back.get(tid)
        if sent is None or sent[0] != place:
            return
        if exists:
            del self._sent_back[tid]
        elif place not in self._kept:
            now = time.monotonic()
            self._kept = {other: kept for other, kept in self._kept.items() if now < kept[1]}
            self._kept[place] = tid, time.monotonic() + KEPT_S, trio.Event()

    def check(self, tid: int, directory: Inode, name: bytes) -> None:
        """Call before a name is made; NameReserved while it is reserved for another thread."""
        if not self._kept:
            return
        kept = self._kept.get((directory, name))
        if kept is None:
            return
        if kept[0] != tid and time.monotonic() < kept[1]:
            raise NameReserved(kept[2])
        del self._kept[directory, name]
        kept[2].set()

    def made(self, tid: int) -> None:
        """After a thread has made a name: its second try is over."""
        if self._sent_back:
            self._sent_back.pop(tid, None)


def stale() -> OSError:
    """Return ESTALE, upon which the VFS looks the name up and tries once more."""
    return OSError(errno.ESTALE, "somebody else has made that name")
