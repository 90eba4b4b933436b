"""Protect the state against damage while the daemon is idle: copy the metadata, and checksum sealed contents.

It must never delay a request: a thread of low priority reads a little at a time.
"""

import contextlib
import errno
import logging
import os
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

import trio
import trio.lowlevel

from agentfsd.core import content_checksums
from agentfsd.core.overlay import Overlay
from agentfsd.metadata import checksum_rows, clean_copy
from agentfsd.metadata.row_store import Store
from agentfsd.state.state_directory import StateDirectory

log = logging.getLogger("agentfsd")

_BEGIN_S = 2.0  # after the start, which processes wait for
_PAUSE_S = 5.0  # when there is nothing to do
_NUMBERS = 2000  # of objects, that are looked at in one step
_OBJECTS = 64  # that are read before their checksums are written down
_BYTES_PER_S = 32 << 20
_NICE = 19
_END_S = 5.0  # the daemon ends even if the disk needs longer than this for one part

_T = TypeVar("_T")


class Maintenance:
    """Runs as long as the daemon does."""

    def __init__(self, store: Store, overlay: Overlay, place: StateDirectory) -> None:
        self._store, self._overlay, self._place = store, overlay, place
        self._known: frozenset[int] = frozenset()  # layers all of whose contents have checksums
        self._ends = threading.Event()

    async def run(self) -> None:
        await trio.sleep(_BEGIN_S)
        await self._copy()
        while True:
            try:
                done = await self._seal()
            except (OSError, sqlite3.Error) as exc:  # a full disk, for example
                log.debug("checksums can wait: %s", exc)
                done = False
            if not done:
                await trio.sleep(_PAUSE_S)

    async def _copy(self) -> None:
        """Copy the metadata, unless it is damaged: then the copy of an earlier start is worth more."""
        pages = self._store.db.pages
        if pages is None or self._overlay.recovered.notes or self._overlay.recovered.lost:
            return
        pages.held += 1
        share = self._overlay.backstore.native_snapshots != "none"
        try:
            await self._in_quiet(lambda: clean_copy.copy(self._place.metadata, share=share, between=lambda: self._rest(0)))
        except OSError as exc:
            log.warning("there is no new copy of the metadata: %s", exc.strerror)
        finally:
            pages.held -= 1

    async def _seal(self) -> bool:
        """Checksum some contents, only when layers were sealed since the last time: reading every row takes long.

        Returns:
            Whether there was something to do.
        """
        layers = checksum_rows.sealed_layers(self._store)
        if layers == self._known:
            return False
        for first in range(0, self._store.reserved("object"), _NUMBERS):
            await trio.lowlevel.checkpoint()
            wanted = checksum_rows.missing(self._store, first, first + _NUMBERS)
            for at in range(0, len(wanted), _OBJECTS):
                content_checksums.keep(self._store, await self._made(wanted[at : at + _OBJECTS]))
        self._known = layers
        return True

    async def _made(self, wanted: list[tuple[int, int]]) -> list[checksum_rows.ObjectChecksum]:
        backstore = self._overlay.backstore
        return await self._in_quiet(lambda: content_checksums.make(backstore, wanted, self._rest))

    def _rest(self, size_bytes: int) -> None:
        if self._ends.wait(size_bytes / _BYTES_PER_S):
            raise OSError(errno.EINTR, "the daemon ends")

    async def _in_quiet(self, work: Callable[[], _T]) -> _T:
        """Run *work* in a thread of its own, since a shared thread could not raise its priority again, and return its result.

        *work* checks _ends after each part, and changes nothing permanent once it is set.
        """
        outcome, done, token = Future[_T](), trio.Event(), trio.lowlevel.current_trio_token()

        def run() -> None:
            with contextlib.suppress(PermissionError):  # a service manager's filter of system calls
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
            try:
                outcome.set_result(work())
            except BaseException as exc:  # noqa: BLE001 - whoever waits is told
                outcome.set_exception(exc)
            with contextlib.suppress(trio.RunFinishedError):  # the daemon has not waited
                token.run_sync_soon(done.set)

        threading.Thread(target=run, daemon=True).start()
        try:
            await done.wait()
        except trio.Cancelled:
            self._ends.set()
            with trio.move_on_after(_END_S, shield=True):
                await done.wait()
            raise
        return outcome.result()
