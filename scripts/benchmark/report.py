"""The table for people and the JSON for programs."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmark.compare import Results, Spread, ratio, spread
from benchmark.measure import Series

_TARGET_COLUMN = 24
_ROW_COLUMN = 46
_SHOWN_REASON = 100


def table(results: Results, place: str, *, compact: bool) -> Table:
    """A row for each measurement, a column for each target. *compact*: ratios alone where there are any."""
    wanted = "ratio" if compact else "ratio (middle half of the rounds), and below it median [middle half]"
    made = Table(title=f"{place}, compared with {results.baseline}: {wanted}", show_lines=not compact)
    made.add_column("", overflow="fold")
    for target in results.targets():
        made.add_column(target, justify="right", overflow="fold")
    for row in results.rows(place):
        found = [results.find(place, row, target) for target in results.targets()]
        shown = next(series.row for series in found if series is not None)
        title = f"{shown.title} ({shown.unit}{', more is better' if shown.more else ''})"
        made.add_row(title, *[_cell(series, results, compact) for series in found])
    return made


def _cell(series: Series | None, results: Results, compact: bool) -> str:
    if series is None:
        return ""
    found = spread(series.samples)
    if found is None:
        return f"failed: {series.reason[:_SHOWN_REASON]}" if series.failed else "-"
    absolute = _number(found.median) if compact else f"{_number(found.median)}{_between(found)}"
    compared = ratio(series, results.base_of(series)) if series.target != results.baseline else None
    if compared is None:
        return absolute
    ratios = f"{_number(compared.median)}x"
    return ratios if compact else f"{ratios}{_around(compared)}\n{absolute}"


def _around(found: Spread) -> str:
    return f" ({_number(found.low)}-{_number(found.high)})" if found.count > 1 else ""


def _between(found: Spread) -> str:
    return f" [{_number(found.low)}-{_number(found.high)}]" if found.count > 1 else ""


def _number(value: float) -> str:
    if 0 < abs(value) < 0.1:
        return f"{value:.2g}"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"


def _reasons(results: Results, place: str) -> list[str]:
    """Why cells are empty: a line for each reason and target."""
    found: dict[tuple[str, str], list[str]] = {}
    for series in results.series:
        if series.place == place and series.reason and not series.failed:
            named = found.setdefault((series.target, series.reason), [])
            named += [series.measurement] * (series.measurement not in named)
    return [f"-: {target} {reason}: {', '.join(names)}" for (target, reason), names in found.items()]


def _width(results: Results) -> int:
    return _ROW_COLUMN + _TARGET_COLUMN * len(results.targets())


def as_text(results: Results, notes: list[str], facts: Mapping[str, object]) -> str:
    """The tables as plain text, as wide as they need to be."""
    console = Console(width=_width(results), color_system=None, force_terminal=False)
    with console.capture() as captured:
        show(console, results, notes, facts)
    return captured.get()


def show(console: Console, results: Results, notes: list[str], facts: Mapping[str, object]) -> None:
    """A terminal that is too narrow gets ratios alone."""
    for place in results.places():
        console.print(table(results, place, compact=console.width < _width(results)), markup=False)
        for line in _reasons(results, place):
            console.print(line, highlight=False, markup=False, soft_wrap=True)
    machine = f"Linux {facts['kernel']}, {facts['cpus']} x {facts['cpu']}"
    console.print(f"{facts['date']}, commit {facts['commit']}, {machine}", highlight=False, markup=False)
    for note in notes:
        console.print(f"note: {note}", highlight=False, markup=False)


def write_json(path: Path, results: Results, notes: list[str], facts: Mapping[str, object], options: object) -> None:
    """Everything, with each single sample in the order of the rounds."""
    series = []
    for one in results.series:
        found, compared = spread(one.samples), ratio(one, results.base_of(one))
        series.append({
            "place": one.place, "measurement": one.measurement, "row": one.row.title, "unit": one.row.unit,
            "more_is_better": one.row.more, "target": one.target, "samples": one.samples, "reason": one.reason,
            "failed": one.failed, "value": found and asdict(found), "ratio": compared and asdict(compared),
        })  # fmt: skip
    document = {"machine": facts, "options": options, "baseline": results.baseline, "notes": notes, "series": series}
    path.write_text(json.dumps(document, indent=1) + "\n")
