"""From samples to what the table shows: median, spread, and the ratio to the baseline, round by round."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmark.measure import Series


@dataclass(frozen=True, slots=True)
class Spread:
    """The median, and the middle half of the samples."""

    median: float
    low: float
    high: float
    count: int


def spread(samples: Sequence[float | None]) -> Spread | None:
    """None when there is no sample."""
    known = [sample for sample in samples if sample is not None]
    if not known:
        return None
    if len(known) == 1:
        return Spread(known[0], known[0], known[0], 1)
    low, median, high = statistics.quantiles(known, n=4, method="inclusive")
    return Spread(median, low, high, len(known))


def ratio(series: Series, baseline: Series | None) -> Spread | None:
    """How often the baseline's value of the same round goes into each value: what hit both in that round cancels out."""
    if baseline is None:
        return None
    pairs = zip(series.samples, baseline.samples, strict=False)
    return spread([value / base for value, base in pairs if value is not None and base])


def slowdown(series: Series, baseline: Series | None) -> Spread | None:
    """Like ratio, so that more is always worse."""
    found = ratio(series, baseline)
    if found is None or not series.row.more:
        return found
    if not found.low:
        return None
    return Spread(1 / found.median, 1 / found.high, 1 / found.low, found.count)


class Results:
    """All series of a run, findable by place, row and target."""

    def __init__(self, baseline: str) -> None:
        self.baseline = baseline
        self.series: list[Series] = []

    def places(self) -> list[str]:
        return list(dict.fromkeys(series.place for series in self.series))

    def targets(self) -> list[str]:
        return list(dict.fromkeys(series.target for series in self.series))

    def rows(self, place: str) -> list[tuple[str, str]]:
        """(measurement, row title), in the order in which they were measured."""
        found = [(series.measurement, series.row.title) for series in self.series if series.place == place]
        return list(dict.fromkeys(found))

    def find(self, place: str, row: tuple[str, str], target: str) -> Series | None:
        for series in self.series:
            if (series.place, series.measurement, series.row.title, series.target) == (place, *row, target):
                return series
        return None

    def base_of(self, series: Series) -> Series | None:
        return self.find(series.place, (series.measurement, series.row.title), self.baseline)
