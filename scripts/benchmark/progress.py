"""How far a run is: a bar on a terminal, a line for each measurement elsewhere. On standard error."""

import time
from collections.abc import Callable
from types import TracebackType

import click
from rich import progress
from rich.console import Console


class Progress:
    """A context manager for the measurements in one place."""

    def __init__(self, place: str, total: int) -> None:
        self._place, self._began_s, self._name = place, 0.0, ""
        console = Console(stderr=True)
        self._quiet = not console.is_terminal
        columns = (progress.TextColumn("{task.description}"), progress.BarColumn(), progress.MofNCompleteColumn(),
                   progress.TimeElapsedColumn())  # fmt: skip
        self._bar = progress.Progress(*columns, console=console, disable=self._quiet, transient=True)
        self._task = self._bar.add_task(place, total=total)

    def __enter__(self) -> "Progress":
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._bar.stop()

    def begin(self, name: str) -> Callable[[str], None]:
        """Returns what is to be told how that measurement goes on."""
        self._name, self._began_s = name, time.monotonic()
        return lambda stage: self._bar.update(self._task, description=f"{self._place}: {name}, {stage}")

    def end(self) -> None:
        self._bar.advance(self._task)
        if self._quiet:
            click.echo(f"{self._place}: {self._name}, {time.monotonic() - self._began_s:.1f} s", err=True)
