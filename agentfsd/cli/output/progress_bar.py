"""A progress bar on standard error, if that is a terminal and the work takes longer than a moment.

It knows nothing of the work.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from agentfs_client import wire
from agentfsd.cli.output.printing import printable

Step = Callable[[int, int], None]

_AFTER_S = 0.3  # a bar for shorter work would only flicker
_EVERY_S = 0.1  # do not redraw for each of a hundred thousand files


def is_shown() -> bool:
    return sys.stderr.isatty()


@contextmanager
def progress(what: str) -> Iterator[Step]:
    """Show a bar during the block: ``with progress("exporting") as step: step(done, total)``; total 0: unknown."""
    with ExitStack() as shown:
        bar = _Bar(shown)
        yield lambda done, total: bar.update(done, total, what)


@contextmanager
def of_daemon() -> Iterator[Callable[[wire.Progress], None] | None]:
    """Give ControlClient's ``on_progress``; None if standard error is no terminal, so that the daemon sends no progress."""
    with ExitStack() as shown:
        bar = _Bar(shown)
        yield (lambda message: bar.update(message.done, message.total, printable(message.what))) if is_shown() else None


@contextmanager
def of_steps() -> Iterator[Callable[[int, int, str], None]]:
    """Show a bar during the block, for work of this process: the given function takes (done, total, what)."""
    with ExitStack() as shown:
        yield _Bar(shown).update


class _Bar:
    """A bar that is on the screen until *shown* is closed."""

    def __init__(self, shown: ExitStack) -> None:
        self._shown = shown
        self._next_s = time.monotonic() + _AFTER_S if is_shown() else float("inf")
        self._draw: Callable[[int, int, str], None] | None = None

    def update(self, done: int, total: int, what: str) -> None:
        now = time.monotonic()
        if now < self._next_s:
            return
        self._next_s = now + _EVERY_S
        if self._draw is None:
            self._draw = self._begin()
        self._draw(done, total, what)

    def _begin(self) -> Callable[[int, int, str], None]:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
        bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._shown.callback(bar.stop)  # before start(): after Ctrl-C in between, the cursor would stay hidden
        bar.start()
        task = bar.add_task("", total=None)
        return lambda done, total, what: bar.update(task, completed=done, total=total or None, description=printable(what))
