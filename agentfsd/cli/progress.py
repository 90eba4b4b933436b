"""A progress bar on standard error when somebody looks at it; nothing otherwise. Knows nothing of the work."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Step = Callable[[int, int], None]

_EVERY_S = 0.1


def is_shown() -> bool:
    return sys.stderr.isatty()


@contextmanager
def progress(what: str) -> Iterator[Step]:
    """``with progress("exporting") as step: step(done, total)``; a total of 0 is not known. Gone again at the end."""
    if not is_shown():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        shown_at = 0.0

        def step(done: int, total: int) -> None:
            nonlocal shown_at
            now = time.monotonic()
            if now - shown_at >= _EVERY_S:  # a hundred thousand files must not be drawn one by one
                shown_at = now
                bar.update(task, completed=done, total=total or None)

        yield step
