"""Whose turn it is to make a name: who was told to look again goes before others.

A kernel may ask to make a file under a name that another connection has just made. open(2) with O_CREAT alone is to open it then,
so the answer is ESTALE: the kernel looks the name up anew and tries once more. Should the name be gone by then, it is kept for
that second try, or somebody else might make it meanwhile, and the program would see ESTALE itself.
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
    """The name is kept for somebody else: ask again after ``free``, or after KEPT_S."""

    def __init__(self, free: trio.Event) -> None:
        super().__init__()
        self.free = free

    async def over(self) -> None:
        with trio.move_on_after(KEPT_S):
            await self.free.wait()


class NameReservations:
    """Of all connections. Threads are known by their numbers: a second try comes from the same one."""

    def __init__(self) -> None:
        self._sent_back: dict[int, tuple[_Place, float]] = {}
        self._kept: dict[_Place, tuple[int, float, trio.Event]] = {}

    def look_again(self, tid: int, directory: Inode, name: bytes) -> bool:
        """After a request for a name that is there: whether the thread is to be told ESTALE. False for its second try."""
        now, place = time.monotonic(), (directory, name)
        old = self._sent_back.pop(tid, None)
        if old is not None and old[0] == place and now - old[1] < _FORGOTTEN_S:
            return False
        if len(self._sent_back) >= _MANY:
            self._sent_back = {tid: sent for tid, sent in self._sent_back.items() if now - sent[1] < _FORGOTTEN_S}
        self._sent_back[tid] = place, now
        return True

    def looked(self, tid: int, directory: Inode, name: bytes, *, found: bool) -> None:
        """After every look-up: the name that is missing for who was told to look again is kept for it."""
        if not self._sent_back:
            return
        place, sent = (directory, name), self._sent_back.get(tid)
        if sent is None or sent[0] != place:
            return
        if found:
            del self._sent_back[tid]
        elif place not in self._kept:
            now = time.monotonic()
            self._kept = {other: kept for other, kept in self._kept.items() if now < kept[1]}
            self._kept[place] = tid, time.monotonic() + KEPT_S, trio.Event()

    def check(self, tid: int, directory: Inode, name: bytes) -> None:
        """Before a name is made. NotYourTurn."""
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
        """After a name was made: whoever was told to look again has done it."""
        if self._sent_back:
            self._sent_back.pop(tid, None)


def stale() -> OSError:
    return OSError(errno.ESTALE, "somebody else has made that name")
