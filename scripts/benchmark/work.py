"""Real programs in a fresh view, alone and in several branches at once, and what the changes of those take on the disk."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmark import datasets
from benchmark.measure import Measurement, Row, Scene
from benchmark.settings import MIB, Settings
from benchmark.site import Site, program

_ROUNDS_ALONE = 5


@dataclass(frozen=True, slots=True)
class Step:
    """One command; ``argv`` is made when it runs, since it names what the data set brought along."""

    title: str
    argv: Callable[[Site], list[str]]


@dataclass(frozen=True, slots=True)
class Work:
    """Steps, one after the other in one fresh view."""

    name: str
    build: Callable[[Path, Site], None]
    steps: tuple[Step, ...]


def _git(*arguments: str) -> Callable[[Site], list[str]]:
    return lambda site: [program("git"), *arguments]


def _pip(site: Site) -> list[str]:
    found = ["-m", "pip", "install", "-q", "--no-index", "--find-links", str(site.materials / "wheels"), "--target", "site"]
    return [sys.executable, *found, *site.settings.python_packages]


_GIT = (
    Step("git status, first", _git("status", "--porcelain")),
    Step("git status, repeated", _git("status", "--porcelain")),
    Step("git checkout", _git("checkout", "-q", "second")),
)
ALL = (
    Work("git", datasets.repository, _GIT),
    Work("tar", datasets.archive, (Step("tar x", lambda site: ["tar", "xf", str(site.materials / "archive.tar")]),)),
    Work("rg", datasets.repository, (Step("ripgrep", lambda site: [program("rg"), "-c", "value_[0-9]*77 ", "."]),)),
    Work("npm", datasets.node_project,
         (Step("npm install", lambda site: [program("npm"), "install", *datasets.npm_options(site)]),)),
    Work("pip", datasets.wheels, (Step("pip install", _pip),)),
    Work("pytest", datasets.python_tests, (Step("pytest", lambda site: [sys.executable, "-m", "pytest"]),)),
    Work("make", datasets.sources, (Step("make -j2", lambda site: [program("make"), "-s", "-j2"]),)),
)  # fmt: skip


def measurements(settings: Settings) -> list[Measurement]:
    alone = [_measurement(work, 1, _ROUNDS_ALONE) for work in ALL]
    return alone + [_measurement(work, settings.branches, settings.rounds_together) for work in ALL]


def _measurement(work: Work, views: int, rounds: int) -> Measurement:
    alone = views == 1
    rows = [Row(_title(step.title, views), "ms") for step in work.steps]
    if not alone:
        rows.append(Row(_disk_title(work, views), "MiB"))
    return Measurement(
        work.name if alone else f"{work.name}-x{views}", tuple(rows), work.build.__name__, work.build,
        partial(_sample, work=work), prepare=_refresh, fresh=True, views=views, rounds=rounds, warm_up=True, own_stage=not alone,
    )  # fmt: skip


def _title(title: str, views: int) -> str:
    return title if views == 1 else f"{title}, {views} branches at once"


def _disk_title(work: Work, views: int) -> str:
    return f"disk after {work.steps[-1].title}, {views} branches"


def _refresh(scene: Scene) -> None:
    """A copy has other inode numbers than git's index: the bare directory shall be as one that has been in use."""
    if scene.is_bare:
        scene.run("sh", "-c", "test ! -d .git || git status --porcelain")


def _sample(scene: Scene, work: Work) -> Mapping[str, float]:
    views = len(scene.views)
    found = {_title(step.title, views): scene.run(*step.argv(scene.site)) * 1000 for step in work.steps}
    if views > 1:
        found[_disk_title(work, views)] = scene.stage.held_bytes() / MIB
    return found
