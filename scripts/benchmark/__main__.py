"""The command line of scripts/bench."""

import contextlib
import dataclasses
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from rich.console import Console

from benchmark import catalogue, facts, places, plot, report
from benchmark.compare import Results
from benchmark.measure import Measurement, Stages, measure
from benchmark.places import Place
from benchmark.progress import Progress
from benchmark.settings import FULL, MIB, QUICK, Settings, fitted
from benchmark.site import Site, compile_programs, environment
from benchmark.targets import Target

_INTERRUPTED = 130
_UNITS = {"M": MIB, "G": 1024 * MIB}


def _size(ctx: click.Context, parameter: click.Parameter, values: Sequence[str]) -> tuple[int, ...]:
    found = []
    for text in values:
        digits, unit = (text[:-1], text[-1]) if text[-1:] in _UNITS else (text, "M")
        if not digits.isdigit() or int(digits) < 1:
            raise click.BadParameter(f"{text!r} should be like 256M or 4G")
        found.append(int(digits) * _UNITS[unit])
    return tuple(found)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--quick", is_flag=True, help="Small sizes and few rounds: some minutes.")
@click.option("--only", metavar="PATTERN", multiple=True, help="Only measurements whose name or row matches; see --list.")
@click.option(
    "-t",
    "--target",
    "names",
    metavar="NAME",
    multiple=True,
    help="Only this besides bare: run, run:IO, interposed, pid, subtree, VIEW@SESSION, overlayfs, fuse-overlayfs, a peer.",
)
@click.option("--io", metavar="MODE", multiple=True, help="Also run:MODE and interposed:MODE: see `agentfsd run --io`.")
@click.option("--session", metavar="NAME", multiple=True, help="agentfsd as `agentfsd mount --session NAME` has it.")
@click.option("--peer", "peers", metavar="NAME=COMMAND", multiple=True,
              help="Another overlay; in COMMAND, {lower}, {upper}, {work} and {mountpoint} are replaced.")  # fmt: skip
@click.option("--place", "chosen", type=click.Choice(["tmpfs", "disk"]), multiple=True, help="Only there.  [default: both]")
@click.option("--disk", metavar="DIR", default="/var/tmp", show_default=True, type=click.Path(exists=True, file_okay=False),
              help="A directory on the disk that is to be measured.")  # fmt: skip
@click.option("--size", "sizes", metavar="SIZE", multiple=True, callback=_size, help="Of large files, such as 256M or 4G.")
@click.option("--rounds", type=click.IntRange(min=1), help="How often each target is measured.")
@click.option("--baseline", default=catalogue.BASELINE, show_default=True, help="The target that ratios are to.")
@click.option("--output", metavar="DIR", default="bench-results", show_default=True, type=click.Path(file_okay=False),
              help="Where table.txt, results.json and plot.svg are put.")  # fmt: skip
@click.option("--list", "list_only", is_flag=True, help="Show what would be measured, and stop.")
def main(
    quick: bool, only: tuple[str, ...], names: tuple[str, ...], io: tuple[str, ...], session: tuple[str, ...],
    peers: tuple[str, ...], chosen: tuple[str, ...], disk: str, sizes: tuple[int, ...], rounds: int | None, baseline: str,
    output: str, list_only: bool,
) -> None:  # fmt: skip
    """Measure the bare directory, agentfsd in its views, and other overlays, in turns, and print how they compare.

    \b
    Example:
      scripts/bench --quick
      scripts/bench --only stat --only 'git*' --place tmpfs
      scripts/bench -t run -t pid -t overlayfs --only open --rounds 21
      scripts/bench -t run -t interposed --only 'stream-*' --only descriptors --size 4G
      scripts/bench --io zero-message --io passthrough --only 'io-*' --size 256M
      scripts/bench --peer 'mine=my-overlay --lower {lower} --upper {upper} {mountpoint}'
    """
    settings = _settings(quick, sizes, rounds)
    targets = catalogue.targets(names, io, session, peers)
    if baseline not in {target.name for target in targets}:
        raise click.BadParameter(f"{baseline!r} is not measured", param_hint="--baseline")
    wanted = catalogue.measurements(settings, only)
    if not wanted:
        raise click.BadParameter("nothing matches; --list shows what there is", param_hint="--only")
    if list_only:
        _list(wanted, targets)
        return
    run = _Run(Results(baseline), settings, targets, only)
    interrupted = run.take(chosen or ("tmpfs", "disk"), disk)
    run.report(Path(output), click.get_current_context().params)
    sys.exit(_INTERRUPTED if interrupted else 0)


def _settings(quick: bool, sizes: tuple[int, ...], rounds: int | None) -> Settings:
    settings = QUICK if quick else FULL
    if sizes:
        settings = dataclasses.replace(settings, sizes_bytes=sizes)
    return dataclasses.replace(settings, rounds=rounds) if rounds else settings


def _list(wanted: list[Measurement], targets: list[Target]) -> None:
    for measurement in wanted:
        click.echo(f"{measurement.name}{f': {measurement.about}' if measurement.about else ''}")
        for row in measurement.rows:
            click.echo(f"    {row.title}, {row.unit}")
    for target in targets:
        click.echo(f"target {target.name}{f': {target.why_not()}' if target.why_not() else ''}")


class _Run:
    """One run: takes everything that can be taken, keeps what there is when it is interrupted."""

    def __init__(self, results: Results, settings: Settings, targets: list[Target], only: Sequence[str]) -> None:
        self.results, self.settings, self.targets, self.only = results, settings, targets, only
        self.notes: list[str] = []
        self.places: list[Place] = []

    def take(self, chosen: Sequence[str], disk: str) -> bool:
        """Whether it was interrupted. Nothing is left of it afterwards: no mount, no process, no file."""
        with _signals_interrupt(), tempfile.TemporaryDirectory(prefix="agentfsd-bench-") as base:
            try:
                programs = compile_programs(Path(base))
                if not programs:
                    self.notes.append("there is no C compiler (cc): single operations were not measured")
                for name in chosen:
                    with places.tmpfs() if name == "tmpfs" else places.disk(disk) as place:
                        self._take_in(place, Path(base), programs)
            except KeyboardInterrupt:
                self.notes.append("interrupted: the rest was not measured")
                return True
        return False

    def _take_in(self, place: Place, base: Path, programs: str) -> None:
        self.places.append(place)
        settings, notes = fitted(self.settings, place)
        self.notes += notes
        materials = base / "materials"
        materials.mkdir(exist_ok=True)
        site = Site(place, settings, environment(base), programs, materials)
        site.lower.mkdir()
        wanted = catalogue.measurements(settings, self.only)
        with contextlib.closing(Stages(site)) as stages, Progress(place.name, len(wanted)) as progress:
            for measurement in wanted:  # before anything is mounted over it
                site.build(measurement.dataset, measurement.build)
            for measurement in wanted:
                tell = progress.begin(measurement.name)
                self.results.series += measure(measurement, self.targets, site, stages, tell)
                progress.end()

    def report(self, output: Path, options: object) -> None:
        """On the terminal and as files in *output*."""
        found = facts.machine(self.places)
        text = report.as_text(self.results, self.notes, found)
        console = Console()
        if console.is_terminal:
            report.show(console, self.results, self.notes, found)
        else:
            click.echo(text, nl=False)
        output.mkdir(parents=True, exist_ok=True)
        (output / "table.txt").write_text(text)
        report.write_json(output / "results.json", self.results, self.notes, found, options)
        plot.write(output / "plot.svg", self.results)
        click.echo(f"written: {output}/table.txt, results.json, plot.svg")


@contextlib.contextmanager
def _signals_interrupt() -> Iterator[None]:
    """To be told to end is as Ctrl-C: everything is cleared away first."""
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.default_int_handler) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    main(prog_name="scripts/bench")
