"""What one operation on a small file costs, warm and cold, and walking a large tree."""

from collections.abc import Mapping
from functools import partial

from benchmark import datasets
from benchmark.agentfs import Agentfs
from benchmark.measure import Measurement, Row, Scene
from benchmark.places import drop_names, why_caches_stay
from benchmark.settings import Settings
from benchmark.targets import Target

_US = "us"
_COLD_FILES = 1_000
_DEEP = "deep"


def measurements(settings: Settings) -> list[Measurement]:
    single = [
        _repeated("stat", "stat, warm", "stat"),
        Measurement(
            "stat-cold", (Row("stat, cold", _US),), "flat", datasets.flat, _stat_cold, linked=True, why_not=_needs_dropping
        ),
        _repeated("enoent", "stat of a missing name", "enoent"),
        _repeated("open", "open-read-close", "open"),
        Measurement(
            "create", (Row("create + write 1 KiB + close", _US), Row("unlink", _US)), "empty", datasets.empty, _create
        ),
        _repeated("scan", "scandir + stat, per entry", "scan"),
        Measurement("walk", (Row("walk, first, per file", _US), Row("walk, repeated, per file", _US)), "tree", datasets.tree,
                    _walk, linked=True, why_not=_needs_dropping),
    ]  # fmt: skip
    return single + [_deep(depth) for depth in settings.depths]


def _needs_dropping(target: Target) -> str:
    return why_caches_stay()


def _repeated(name: str, title: str, operation: str) -> Measurement:
    """An operation on the thousand files, after one pass that is not counted."""
    row = Row(title, _US)

    def sample(scene: Scene) -> Mapping[str, float]:
        return {title: scene.ops(operation, scene.view.root, datasets.FLAT_FILES, scene.site.settings.window_ms)}

    return Measurement(name, (row,), "flat", datasets.flat, sample, linked=True)


def _stat_cold(scene: Scene) -> Mapping[str, float]:
    drop_names()
    return {"stat, cold": scene.ops("stat-cold", scene.view.root, _COLD_FILES)}


def _create(scene: Scene) -> Mapping[str, float]:
    directory = f"{scene.view.root}/r{scene.round}"
    scene.run("mkdir", directory)
    count = scene.site.settings.created
    return {
        "create + write 1 KiB + close": scene.ops("create", directory, count),
        "unlink": scene.ops("unlink", directory, count),
    }


def _walk(scene: Scene) -> Mapping[str, float]:
    drop_names()
    titles = ("walk, first, per file", "walk, repeated, per file")
    return {title: scene.ops("walk", scene.view.root, 0) for title in titles}


# -- many snapshots deep ----------------------------------------------------------------------------------------------


def _deep(depth: int) -> Measurement:
    """Look-ups of files that came into the branch in as many snapshots, after the kernel forgot them all."""
    row = Row(f"look-up, cold, {depth} snapshot{'s' * (depth > 1)} deep", _US)
    return Measurement(
        f"deep-{depth}", (row,), "empty", datasets.empty, partial(_look_up, title=row.title), prepare=partial(_dig, depth=depth),
        why_not=_is_deep,
    )  # fmt: skip


def _is_deep(target: Target) -> str:
    if not isinstance(target, Agentfs) and target.name != "bare":
        return "has no snapshots"
    return why_caches_stay()


def _dig(scene: Scene, depth: int) -> None:
    """A thousand files, some of them written between each two snapshots."""
    directory = f"{scene.view.root}/{_DEEP}"
    scene.run("mkdir", directory)
    for number in range(depth):
        names = [f"{directory}/f{file}" for file in range(number, _COLD_FILES, depth)]
        scene.run("touch", *names)
        if not scene.is_bare:
            scene.agentfs.control.create_snapshot(branch=scene.view.branch, name=f"{scene.view.branch}-{number}")


def _look_up(scene: Scene, title: str) -> Mapping[str, float]:
    drop_names()
    return {title: scene.ops("stat-cold", f"{scene.view.root}/{_DEEP}", _COLD_FILES)}
