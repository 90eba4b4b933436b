"""What a measurement is, and how it is taken: round by round, every target in each, so that noise hits all of them alike."""

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agentfs_client.errors import AgentFSError
from benchmark.agentfs import AgentfsStage
from benchmark.site import Site
from benchmark.targets import Stage, Target, View
from benchmark.worker import BenchError, run_together


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. Values of ``unit``; less is better unless ``more`` says otherwise."""

    title: str
    unit: str
    more: bool = False


_LEAST_ROUNDS = 2  # or there is no spread
Tell = Callable[[str], None]  # how far it is, for people who wait


class NotApplicable(Exception):
    """A target has nothing that could be compared, such as snapshots; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What one sample is taken from. ``round``: counts from 0; -1 when it does not count."""

    site: Site
    target: Target
    stage: Stage
    views: Sequence[View]
    round: int

    @property
    def view(self) -> View:
        return self.views[0]

    @property
    def is_bare(self) -> bool:
        return self.target.name == "bare"

    @property
    def agentfs(self) -> AgentfsStage:
        """The daemon, where the target has one."""
        if not isinstance(self.stage, AgentfsStage):
            raise NotApplicable("has no snapshots and branches")
        return self.stage

    def ops(self, operation: str, directory: str, count: int, least_ms: int = 0) -> float:
        """Microseconds per operation of the C program, in the view; it goes on for *least_ms*."""
        done = self.view.worker.run([self.site.ops, operation, directory, str(count), str(least_ms)], self.view.root)
        nanoseconds, operations = map(int, done.out.split())
        return nanoseconds / max(operations, 1) / 1000

    def run(self, *argv: str) -> float:
        """Seconds that a command takes in every view at once."""
        return run_together([view.worker for view in self.views], argv, [view.root for view in self.views])


def _nothing(scene: Scene) -> None:
    """No preparation."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """``sample`` gives a value for each row. ``fresh``: it wants new views every time; ``views``: how many at once.

    ``warm_up``: before the first round the first target takes a sample that does not count (programs come from the disk).
    ``own_stage``: it wants daemons that have done nothing before.
    ``linked``: no file of the data set is written in place, so the bare directory may share its files.
    ``why_not``: says of a target why it is left out; "" to measure it.
    ``about``: what one must know to read its rows; --list shows it.
    """

    name: str
    rows: tuple[Row, ...]
    dataset: str
    build: Callable[[Path, Site], None]
    sample: Callable[[Scene], Mapping[str, float]]
    prepare: Callable[[Scene], None] = _nothing
    fresh: bool = False
    views: int = 1
    linked: bool = False
    warm_up: bool = False
    own_stage: bool = False
    rounds: int = 1_000
    about: str = ""
    why_not: Callable[[Target], str] = field(default=lambda target: "")


@dataclass(slots=True)
class Series:
    """All samples of one row for one target; None in a round that failed. ``reason``: why there is no value."""

    place: str
    measurement: str
    row: Row
    target: str
    samples: list[float | None] = field(default_factory=list)
    reason: str = ""
    failed: bool = False


class Stages:
    """The stage of each target, kept from one measurement to the next: daemons that have been in use for a while."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._open: dict[str, tuple[Stage, contextlib.ExitStack]] = {}

    def of(self, target: Target) -> Stage:
        if target.name not in self._open:
            stack = contextlib.ExitStack()
            self._open[target.name] = stack.enter_context(target.stage(self._site)), stack
        return self._open[target.name][0]

    def drop(self, target: Target) -> None:
        """A target that failed starts anew."""
        if target.name in self._open:
            self._open.pop(target.name)[1].close()

    def close(self) -> None:
        for _, stack in self._open.values():
            with contextlib.suppress(BenchError):
                stack.close()
        self._open.clear()


class _Lane:
    """One target during one measurement. Whatever goes wrong stays in its own cells."""

    def __init__(self, measurement: Measurement, target: Target, site: Site, stages: Stages) -> None:
        self._measurement, self._target, self._site, self._stages = measurement, target, site, stages
        self._open = contextlib.ExitStack()
        self._views: list[View] = []
        self.series = {row.title: Series(site.place.name, measurement.name, row, target.name) for row in measurement.rows}
        self.ended = False

    def begin(self) -> None:
        reason = self._target.why_not() or self._measurement.why_not(self._target)
        if reason:
            self.end(reason, failed=False)
            return
        with self._guarded():
            own = self._measurement.own_stage
            self._stage = self._open.enter_context(self._target.stage(self._site)) if own else self._stages.of(self._target)
            if not self._measurement.fresh:
                self._views = self._enter_views(self._open)
                self._measurement.prepare(self._scene(-1))

    def take(self, number: int) -> None:
        """One sample, of fresh views where the measurement wants them."""
        with self._guarded(), contextlib.ExitStack() as views:
            if self._measurement.fresh:
                self._views = self._enter_views(views)
                self._measurement.prepare(self._scene(-1))
            self._stage.settle()
            self._site.place.sync()
            found = self._measurement.sample(self._scene(number))
            for title, series in self.series.items():
                if number >= 0:
                    series.samples.append(found.get(title))
        if not self.ended and self._measurement.fresh:
            with self._guarded():
                self._stage.settle()

    def close(self) -> None:
        with self._guarded():
            self._open.close()
        if any(series.failed for series in self.series.values()):
            with self._guarded():
                self._stages.drop(self._target)

    def _enter_views(self, stack: contextlib.ExitStack) -> list[View]:
        wanted = self._measurement
        return [stack.enter_context(self._stage.view(wanted.dataset, wanted.linked)) for _ in range(wanted.views)]

    def _scene(self, number: int) -> Scene:
        return Scene(self._site, self._target, self._stage, self._views, number)

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except NotApplicable as exc:
            self.end(str(exc), failed=False)
        except AgentFSError as exc:
            self.end(exc.message, failed=True)
        except (BenchError, OSError, subprocess.SubprocessError, ValueError, KeyError) as exc:
            self.end(str(exc), failed=True)

    def end(self, reason: str, *, failed: bool) -> None:
        """No more samples of this target."""
        self.ended = True
        for series in self.series.values():
            series.reason, series.failed = series.reason or reason, failed


def measure(measurement: Measurement, targets: Sequence[Target], site: Site, stages: Stages, tell: Tell) -> list[Series]:
    """Takes a measurement of all targets. In each round another target is the first."""
    lanes = [_Lane(measurement, target, site, stages) for target in targets]
    try:
        _rounds(measurement, lanes, site, tell)
    finally:
        for lane in lanes:
            lane.close()
    return [series for lane in lanes for series in lane.series.values()]


def _rounds(measurement: Measurement, lanes: list[_Lane], site: Site, tell: Tell) -> None:
    missing = site.build(measurement.dataset, measurement.build)
    if missing:
        for lane in lanes:
            lane.end(missing, failed=False)
        return
    tell("preparing")
    for lane in lanes:
        lane.begin()
    begin = time.monotonic()
    if measurement.warm_up and not lanes[0].ended:
        tell("warming up")
        lanes[0].take(-1)
    rounds = min(site.settings.rounds, measurement.rounds)
    for number in range(rounds):
        if number >= _LEAST_ROUNDS and time.monotonic() - begin > site.settings.budget_s:
            break
        tell(f"round {number + 1} of {rounds}")
        for place in range(len(lanes)):
            lane = lanes[(place + number) % len(lanes)]
            if not lane.ended:
                lane.take(number)
