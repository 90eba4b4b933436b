"""Makes frozen bases of the real directory for requests, and removes those that no branch, snapshot or undo needs any more."""

import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

from agentfsd.control.cooperative import cancelled
from agentfsd.core.ids import IdMaker, made_ns
from agentfsd.core.overlay import Overlay
from agentfsd.lower.frozen_bases import FrozenBases

log = logging.getLogger(__name__)


class BaseMaking:
    """The frozen bases of one daemon.

    Args:
        overlay: All branches.
        bases: Where the bases are kept.
    """

    def __init__(self, overlay: Overlay, bases: FrozenBases) -> None:
        self._overlay, self._bases = overlay, bases
        self._turn, self._ids, self._wanted = trio.Lock(), IdMaker(), set[str]()

    @asynccontextmanager
    async def made(self, progress: Callable[[int, int, str], None]) -> AsyncIterator[str]:
        """Freeze the real directory as it is now, and yield the base's id. If no layer has it after the block, it is removed.

        Raises:
            Refusal: The directory keeps changing, or there is no room.
        """
        base = self._ids.make()
        self._wanted.add(base)
        try:
            async with self._turn:
                record = await trio.to_thread.run_sync(
                    lambda: self._bases.freeze(
                        base, progress=lambda done, total: progress(done, total, "freezing"), cancelled=cancelled
                    )
                )
            log.info("froze %d files of the real directory (%s, %d bytes copied)", record.files, record.way, record.copied_bytes)
            yield base
        finally:
            self._wanted.discard(base)

    async def freeze_main(self, check: Callable[[], None]) -> None:
        """Put a frozen base beneath main, unless it has one. Refusal as for made(), or by *check*, which is called before."""
        overlay = self._overlay
        if overlay.lowers.name(overlay.refs.branch(overlay.default_id).head):
            return
        check()
        async with self.made(lambda done, total, what: None) as base:
            overlay.branches.freeze(overlay.default_id, base)

    def check_main(self) -> None:
        """Raise what opening main's frozen base raises: if it is lost, the mount has nothing to show."""
        self._overlay.lowers.of(self._overlay.refs.branch(self._overlay.default_id).head)

    def notice(self) -> str:
        """Say that main has a frozen base, to somebody who has not asked for one; "" if it has none."""
        base = self._overlay.lowers.name(self._overlay.refs.branch(self._overlay.default_id).head)
        made = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(made_ns(base) / 1e9)) if base else ""
        return f"main shows the real directory as it was at {made}: `agentfsd rebase main` brings it up to date" if base else ""

    async def sweep(self) -> None:
        """Remove the bases that nothing needs. To be called from time to time."""
        if self._turn.locked():
            return
        needed = self._overlay.lowers.needed() | self._wanted
        for base in [base for base in self._bases.ids() if base not in needed]:
            if any(tree.lower is self._overlay.lowers.opened(base) for tree in self._overlay.trees.in_use()):
                continue
            self._overlay.store.commit()  # before: after a loss of power rows might name a base that is gone
            await trio.to_thread.run_sync(self._overlay.store.sync)
            self._overlay.lowers.forget(base)
            try:
                await trio.to_thread.run_sync(self._bases.remove, base)
            except OSError as exc:
                log.warning("the frozen base %s cannot be removed: %s", base, exc.strerror)
