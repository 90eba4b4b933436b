"""Keeps the overlaps of branches up to date while the daemon runs, and tells listeners what is new. It sees no request."""

import logging
import sqlite3

import trio

from agentfsd.control.cooperative import drive
from agentfsd.core.branch_events import BranchEvent
from agentfsd.core.overlay import Overlay
from agentfsd.history.overlaps import News, Overlaps

log = logging.getLogger(__name__)

_EVERY_S = 0.25
_LOOK_EVERY = 8  # rounds
_PATIENCE_S = 2.0  # that a request has for comparisons under way


class OverlapWatch:
    """Follows one overlay.

    Attributes:
        overlaps: What it knows.
    """

    def __init__(self, overlay: Overlay) -> None:
        self._overlay, self.overlaps = overlay, Overlaps(overlay)
        self._turn = trio.Lock()
        self._is_first = True

    async def run(self) -> None:
        """Follow until cancelled. What there was at the start is no news."""
        rounds = 0
        while True:
            await trio.sleep(_EVERY_S)
            rounds += 1
            try:
                if self.overlaps.is_behind:
                    await self._update()
                elif not rounds % _LOOK_EVERY:
                    async with self._turn:
                        self._tell(await drive(self.overlaps.look_again()))
            except (OSError, sqlite3.Error) as exc:  # a content that is lost, for example
                log.debug("overlaps are looked at again later: %s", exc)

    async def catch_up(self) -> bool:
        """Compare what was changed until now. Return False if that takes too long: it goes on in the background."""
        with trio.move_on_after(_PATIENCE_S):
            async with self._turn:
                pass
            if self.overlaps.is_behind:
                await self._update()
        return not self.overlaps.is_behind and not self._turn.locked()

    async def _update(self) -> None:
        async with self._turn:
            with trio.CancelScope(shield=True):  # half an update would be lost
                news = await drive(self.overlaps.update())
            if not self._is_first:
                self._tell(news)
            self._is_first = False

    def _tell(self, news: list[News]) -> None:
        for one in news:
            refs = self._overlay.refs
            others = ", ".join(refs.branch(branch_id).name for branch_id in one.others if refs.exists(branch_id))
            if others and refs.exists(one.branch):
                self._overlay.events.publish(BranchEvent(one.kind, one.branch, path=one.path, name=others))
