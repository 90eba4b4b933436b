"""Real descriptors: what it costs to open files of which they are given out, and how fast large files are through one.

They are had by `run --interpose` (the target `interposed`), where programs open as ever, and by fd.open over the socket, of which
the target `run` has rows. The plain directory does the same with open(2). It knows nothing of how descriptors are given out.
"""

import itertools
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmark import datasets
from benchmark.agentfs import Agentfs
from benchmark.measure import Measurement, Row, Scene
from benchmark.settings import MIB, Settings, shown_size
from benchmark.worker import COMMAND_TIMEOUT_S, BenchError

_BLOCKS = (128 << 10, MIB)
_SMALL, _LARGE = "small", "large"
_OPENS = {  # title: operation of ops.c, where, how many files
    "open + close, 1 KiB, for reading": ("open-close", _SMALL, datasets.OPENED_SMALL),
    "open + close, 4 MiB, for reading": ("open-close", _LARGE, datasets.OPENED_LARGE),
    "open + close, 1 KiB, for writing": ("open-write", _SMALL, datasets.OPENED_SMALL),
    "open with O_TRUNC + write 1 KiB + close": ("rewrite", _SMALL, datasets.OPENED_SMALL),
    "open with O_TRUNC + write 1 MiB + close": ("rewrite-mib", "written", datasets.OPENED_LARGE),
}
_ASKED = {  # title: name, flags
    "fd.open + close, 4 MiB, for reading (bare: open)": ("large/f0", os.O_RDONLY),
    "fd.open + close, 1 KiB, for writing (bare: open)": ("small/f0", os.O_WRONLY),
    "fd.open + close, new file (bare: open)": ("asked/{round}-{number}", os.O_WRONLY | os.O_CREAT | os.O_EXCL),
}
_NS_PER_MS, _NS_PER_US = 1_000_000, 1_000
Opener = Callable[[str, int], int]  # path below the view's root, flags


def measurements(settings: Settings) -> list[Measurement]:
    return [_opening(), *map(_streaming, settings.sizes_bytes)]


@contextmanager
def forwarded(scene: Scene) -> Iterator[None]:
    """BenchError where the target is there to forward descriptors and none was asked for meanwhile."""
    if not isinstance(scene.target, Agentfs) or not scene.target.forwards:
        yield
        return
    before = scene.agentfs.forwardings()
    yield
    if scene.agentfs.forwardings() == before:
        raise BenchError("no descriptor was forwarded")


def _opener(scene: Scene) -> Opener | None:
    """open(2) for the plain directory, fd.open where it is asked; None for who has neither."""
    root = Path(scene.view.root)
    if scene.is_bare:
        return lambda path, flags: os.open(root / path, flags)
    if not isinstance(scene.target, Agentfs) or not scene.target.is_plain:
        return None
    control, branch = scene.agentfs.control, scene.view.branch
    return lambda path, flags: control.open_fd(f"{root.name}/{path}", flags, branch=branch).fd


def _prepare(scene: Scene) -> None:
    if isinstance(scene.target, Agentfs) and scene.target.is_plain:
        scene.agentfs.allow_descriptors()


# -- opening ----------------------------------------------------------------------------------------------------------


def _opening() -> Measurement:
    return Measurement(
        "descriptors", tuple(Row(title, "us") for title in (*_OPENS, *_ASKED)), "opened", datasets.opened, _open,
        prepare=_make_directories, about="fd.open is measured from Python, and so is the open of the plain directory beside it",
    )  # fmt: skip


def _make_directories(scene: Scene) -> None:
    _prepare(scene)
    scene.run("mkdir", *[f"{scene.view.root}/{name}" for name in ("written", "asked")])


def _open(scene: Scene) -> Mapping[str, float]:
    window_ms, root = scene.site.settings.window_ms, scene.view.root
    with forwarded(scene):
        found = {title: scene.ops(name, f"{root}/{where}", count, window_ms) for title, (name, where, count) in _OPENS.items()}
    opener = _opener(scene)
    if opener is not None:
        found |= {title: _repeated(scene, opener, *asked) for title, asked in _ASKED.items()}
    return found


def _repeated(scene: Scene, opener: Opener, name: str, flags: int) -> float:
    """Microseconds for each."""
    os.close(opener(name.format(round=scene.round, number=0), flags))
    begin = time.perf_counter_ns()
    for number in itertools.count(1):
        os.close(opener(name.format(round=scene.round, number=number), flags))
        taken = time.perf_counter_ns() - begin
        if taken > scene.site.settings.window_ms * _NS_PER_MS:
            return taken / number / _NS_PER_US
    raise AssertionError


# -- reading and writing ----------------------------------------------------------------------------------------------


def _streaming(size: int) -> Measurement:
    rows = [_title(way, what, block, size) for way in ("open", "fd.open") for block in _BLOCKS for what in ("write", "read")]
    return Measurement(
        f"stream-{shown_size(size)}", tuple(Row(title, "of a plain file's throughput", more=True) for title in rows), "empty",
        datasets.empty, partial(_stream, size=size), prepare=_prepare, warm_up=True,
        about="one program goes through the file and a plain one in turns of 2 MiB, whose median counts (bare: two plain files); "
        "what it reads is what it has just written",
    )  # fmt: skip


def _title(way: str, what: str, block: int, size: int) -> str:
    return f"{what} of {shown_size(size)} by {way}, {block >> 10} KiB blocks, beside a plain file"


def _stream(scene: Scene, size: int) -> Mapping[str, float]:
    ways: dict[str, Callable[[str, int, Path], str]] = {"open": partial(_by_name, scene, size)}
    opener = _opener(scene)
    if opener is not None:
        ways["fd.open"] = partial(_by_descriptor, scene, size, opener)
    found = {}
    with forwarded(scene), tempfile.TemporaryDirectory(dir=scene.site.place.path) as directory:
        plain = Path(directory, "plain")
        for way, transfer in ways.items():
            for block in _BLOCKS:
                for what in ("write", "read"):
                    found[_title(way, what, block, size)] = float(transfer(what, block, plain))
                scene.run("rm", f"{scene.view.root}/out", str(plain))
    return found


def _by_name(scene: Scene, size: int, what: str, block: int, plain: Path) -> str:
    """What the program says, which opens the file in the view."""
    command = [scene.site.blocks, what, f"{scene.view.root}/out", str(plain), str(block), str(size)]
    return scene.view.worker.run(command, "/").out


def _by_descriptor(scene: Scene, size: int, opener: Opener, what: str, block: int, plain: Path) -> str:
    """What the program says, which gets the descriptor."""
    fd = opener("out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC if what == "write" else os.O_RDONLY)
    try:
        done = subprocess.run(
            [scene.site.blocks, what, f"@{fd}", str(plain), str(block), str(size)], pass_fds=[fd], capture_output=True, text=True,
            check=False, timeout=COMMAND_TIMEOUT_S,
        )  # fmt: skip
    finally:
        os.close(fd)
    if done.returncode != 0:
        raise BenchError(done.stderr.strip())
    return done.stdout
