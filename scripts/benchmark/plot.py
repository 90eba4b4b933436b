"""A picture of the table: how many times slower (or larger) than the baseline each target is, on a logarithmic scale."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmark.compare import Results, slowdown
from benchmark.measure import Series

_INCHES_PER_ROW = 0.3
_WIDTH_INCHES = 9.0
_SPACE_OF_TARGETS = 0.7
_MARKERS = "osD^vPX*<>"


def write(path: Path, results: Results) -> None:
    """Side by side, one picture for each place; rows without a baseline are left out."""
    mpl.rcParams["svg.fonttype"] = "none"
    places = results.places()
    most = max((len(_rows(results, place)) for place in places), default=1)
    figure = Figure(figsize=(_WIDTH_INCHES * max(1, len(places)), 1.8 + _INCHES_PER_ROW * most), layout="constrained")
    all_axes = figure.subplots(1, max(1, len(places)), squeeze=False)[0]
    for place, axes in zip(places, all_axes, strict=False):
        _draw(axes, results, place)
    figure.savefig(path)


def _draw(axes: Any, results: Results, place: str) -> None:
    rows = _rows(results, place)
    targets = [target for target in results.targets() if target != results.baseline]
    for number, target in enumerate(targets):
        offset = (number + 0.5) / len(targets) * _SPACE_OF_TARGETS - _SPACE_OF_TARGETS / 2
        points = _points(results, place, target)
        axes.errorbar(
            [point[1] for point in points], [point[0] + offset for point in points],
            xerr=([point[1] - point[2] for point in points], [point[3] - point[1] for point in points]),
            fmt=_MARKERS[number % len(_MARKERS)], markersize=4, elinewidth=1, label=target,
        )  # fmt: skip
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xscale("log")
    axes.set_yticks(range(len(rows)), [title for _, title in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(axis="x", which="both", alpha=0.25)
    axes.set_xlabel(f"times {results.baseline}, less is better: median and middle half of the rounds")
    axes.set_title(place)
    if targets:
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.03), ncols=5, frameon=False)


def _rows(results: Results, place: str) -> list[tuple[str, str]]:
    """The rows that have a baseline."""
    return [row for row in results.rows(place) if _has_value(results.find(place, row, results.baseline))]


def _has_value(series: Series | None) -> bool:
    return series is not None and any(series.samples)


def _points(results: Results, place: str, target: str) -> list[tuple[int, float, float, float]]:
    """(row number, median, low, high) of the rows that can be compared."""
    found = []
    for number, row in enumerate(_rows(results, place)):
        series = results.find(place, row, target)
        compared = series and slowdown(series, results.base_of(series))
        if compared and compared.low > 0:
            found.append((number, compared.median, compared.low, compared.high))
    return found
