"""Keeps the overlaps of branches up to date while somebody listens or has just asked, and tells what is new.

Comparing takes time from the requests of programs: where ten agents build one project, all of them write the same files.
"""

import logging
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import trio

from agentfsd.core.branch_events import BranchEvent
from agentfsd.core.overlay import Overlay
from agentfsd.history.overlaps import News, Overlaps

log = logging.getLogger(__name__)

_EVERY_S, _IDLE_S = 0.25, 5.0  # between two rounds, while somebody wants to know and while nobody does
_SLICE_S, _REST_S = 0.002, 0.004  # of work, and between two slices of it: requests come first
_LOOK_EVERY = 40  # rounds: looking takes a hundredth of a second, also while nobody does anything
_WANTED_S = 60.0  # after a question
_MOST_TOUCHES = 20_000
_PAUSE_S = 5.0  # after a failure
_SHARE = 3  # times as long as a slice took it rests at least: one comparison may take longer than a slice should
PATIENCE_S = 0.5  # that a request has for comparisons under way


class OverlapWatch:
    """Follows one overlay.

    Attributes:
        overlaps: What it knows.
    """

    def __init__(self, overlay: Overlay) -> None:
        self._overlay, self.overlaps = overlay, Overlaps(overlay)
        self._turn = trio.Lock()
        self._awaited = 0  # requests that wait
        self._is_first = True
        self._listeners, self._wanted_until = 0, 0.0
        self._news = trio.Event()

    async def run(self) -> None:
        """Follow until cancelled. What there was at the start is no news."""
        rounds = 0
        while True:
            self._news = trio.Event()
            with trio.move_on_after(_EVERY_S if self.is_wanted else _IDLE_S):
                await self._news.wait()
            rounds += 1
            if not self._follows():
                continue
            try:
                if self.overlaps.is_behind:
                    await self._update()
                elif not rounds % _LOOK_EVERY:
                    async with self._turn:
                        self._tell(await self._drive(self.overlaps.look_again()))
            except Exception as exc:  # noqa: BLE001 - a content that is lost, for example; nothing here may end the daemon
                log.info("overlaps are looked at anew: %s: %s", type(exc).__name__, exc)
                self.overlaps.forget()
                self._is_first = True
                await trio.sleep(_PAUSE_S)

    @property
    def is_wanted(self) -> bool:
        """Whether anybody wants to know."""
        return bool(self._listeners) or time.monotonic() < self._wanted_until

    def _follows(self) -> bool:
        """Return whether to compare now. If nobody wants to know and much is touched, it is forgotten, and read anew later."""
        if self.is_wanted:
            return True
        if len(self._overlay.store.touched or ()) > _MOST_TOUCHES:
            self._overlay.store.take_touched()
            self.overlaps.forget()
            self._is_first = True
        return False

    def want(self) -> None:
        """Follow the branches for a while."""
        self._wanted_until = time.monotonic() + _WANTED_S

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Follow the branches for the time of the block."""
        self._listeners += 1
        self._news.set()
        try:
            yield
        finally:
            self._listeners -= 1

    async def catch_up(self, patience_s: float = PATIENCE_S) -> bool:
        """Compare what was changed until now. Return False if that takes longer: it goes on in the background."""
        self.want()
        ends = trio.current_time() + patience_s
        self._awaited += 1
        try:
            while (self.overlaps.is_behind or self._turn.locked()) and trio.current_time() < ends:
                await trio.sleep(_REST_S)
                if not self._turn.locked():
                    self._news.set()
        finally:
            self._awaited -= 1
        return not self.overlaps.is_behind and not self._turn.locked()

    async def _drive(self, steps: Generator[object, None, list[News]]) -> list[News]:
        """Run steps to their end, a little at a time."""
        try:
            while True:
                began = time.monotonic()
                while time.monotonic() < began + _SLICE_S:
                    next(steps)
                await trio.sleep(0 if self._awaited else max(_REST_S, _SHARE * (time.monotonic() - began)))
        except StopIteration as end:
            news: list[News] = end.value
            return news
        finally:
            steps.close()

    async def _update(self) -> None:
        async with self._turn:
            news = await self._drive(self.overlaps.update())
        if not self._is_first:
            self._tell(news)
        self._is_first = False

    def _tell(self, news: list[News]) -> None:
        for one in news:
            refs = self._overlay.refs
            others = ", ".join(refs.branch(branch_id).name for branch_id in one.others if refs.exists(branch_id))
            if others and refs.exists(one.branch):
                self._overlay.events.publish(BranchEvent(one.kind, one.branch, path=one.path, name=others))
