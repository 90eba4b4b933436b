"""Drives the review without a terminal, on a real mount."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
import textual.app
import textual.pilot
from textual.pilot import Pilot

from agentfsd.cli.command_base import converse
from agentfsd.cli.connect import mount_finder
from agentfsd.cli.terminal_review.board_screen import BoardScreen
from agentfsd.cli.terminal_review.branch_screen import BranchScreen
from agentfsd.cli.terminal_review.dialogues import Dialogue
from agentfsd.cli.terminal_review.review_app import ReviewApp
from tests.mounted import Mounted

_PATIENCE_S = 20


async def _settled(_min_sleep_s: float = 0.0, max_sleep_s: float = 1.0) -> None:
    """Wait until nothing is left to be done but what timers will bring, for *max_sleep_s* at most.

    The pilot's own way is to wait for 20 ms in which the process does next to nothing, three times a key.
    """
    loop = asyncio.get_running_loop()
    deadline = time.monotonic() + max_sleep_s
    await asyncio.sleep(0)
    while loop._ready or _is_asking():  # type: ignore[attr-defined]
        if time.monotonic() > deadline:
            break
        await asyncio.sleep(0.002 if not loop._ready else 0)  # type: ignore[attr-defined]


def _is_asking() -> bool:
    """Whether an application waits for an answer of the daemon (ReviewApp.ask)."""
    return any(thread.name.endswith(" (work)") for thread in threading.enumerate())


def _walked(run: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(textual.app, "wait_for_idle", _settled)
        patch.setattr(textual.pilot, "wait_for_idle", _settled)
        asyncio.run(run())


class Reader:
    """A person at the review: presses keys and looks at the screen."""

    def __init__(self, app: ReviewApp, pilot: Pilot[None]) -> None:
        self.app, self.pilot = app, pilot

    @property
    def text(self) -> str:
        """What the screen shows."""
        return "\n".join(strip.text.rstrip() for strip in self.app.screen._compositor.render_strips())

    @property
    def branch(self) -> BranchScreen:
        assert isinstance(self.app.screen, BranchScreen)
        return self.app.screen

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def until(self, *wanted: str) -> str:
        """Waits until the screen shows all of that."""
        deadline = time.monotonic() + _PATIENCE_S
        while not all(each in self.text for each in wanted):
            assert time.monotonic() < deadline, f"{wanted} is not on the screen:\n{self.text}"
            await self.pilot.pause(0.02)
        return self.text

    async def gone(self, unwanted: str) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while unwanted in self.text:
            assert time.monotonic() < deadline, f"{unwanted} stays on the screen:\n{self.text}"
            await self.pilot.pause(0.02)

    async def read(self) -> None:
        """Waits until all of the branch is read."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            screen = self.app.screen
            if (
                isinstance(screen, BranchScreen)
                and screen.reviewed is not None
                and all(file.is_read for file in screen.reviewed.files)
            ):
                break
            assert time.monotonic() < deadline, f"it is not read:\n{self.text}"
            await self.pilot.pause(0.02)
        await self.pilot.pause()

    async def confirm(self, key: str, *said: str) -> str:
        """Answers a window, and returns what the next one says; leaves that one with its OK."""
        await self.until(*said)
        await self.press(key)
        text = await self.until("OK")
        await self.press("escape")
        while isinstance(self.app.screen, Dialogue):
            await self.pilot.pause(0.01)
        return text


Walk = Callable[[Reader], Awaitable[None]]


def application(project: Mounted, ref: str | None) -> ReviewApp:
    connect = lambda: converse(lambda: mount_finder.find(str(project.path)))[1]  # noqa: E731
    return ReviewApp(connect, str(project.path), BoardScreen if ref is None else lambda: BranchScreen(ref))


def review(project: Mounted, ref: str | None, walk: Walk, size: tuple[int, int] = (110, 40)) -> None:
    """Opens a branch, or the table, and walks through it."""

    async def run() -> None:
        app = application(project, ref)
        async with app.run_test(size=size) as pilot:
            reader = Reader(app, pilot)
            if ref is not None:
                await reader.read()
            await walk(reader)

    _walked(run)


def reviews(project: Mounted, ref: str, walk: Callable[[Reader, Reader], Awaitable[None]]) -> None:
    """Opens a branch twice."""

    async def run() -> None:
        one, other = application(project, ref), application(project, ref)
        async with one.run_test(size=(110, 40)) as pilot, other.run_test(size=(110, 40)) as second:
            readers = Reader(one, pilot), Reader(other, second)
            for reader in readers:
                await reader.read()
            await walk(*readers)

    _walked(run)


def make(project: Mounted, name: str, script: str) -> None:
    """Run a script in a new branch."""
    project.run(name, "sh", "-ec", script, new=True)
