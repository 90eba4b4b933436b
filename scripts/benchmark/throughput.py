"""Reading and writing large files, by fio; and the first write to a large file of the lower, which copies it up.

Buffered writes are measured up to the kernel's cache, mapped ones with the msync at their end.
"""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from benchmark import datasets
from benchmark.measure import Measurement, Row, Scene
from benchmark.settings import MIB, Settings, shown_size
from benchmark.site import Site, program

_MODES = {
    "buffered": ("--ioengine=psync",),
    "mmap": ("--ioengine=mmap",),
    "direct": ("--ioengine=psync", "--direct=1"),
}
_PATTERNS = (("write", "out"), ("randwrite", "out"), ("read", "f0"), ("randread", "f0"))
_WORDS = {"write": "sequential write", "randwrite": "random write", "read": "sequential read", "randread": "random read"}
_OPTIONS = ("--thread", "--fallocate=none", "--invalidate=0", "--randrepeat=1", "--disk_util=0", "--eta=never",
            "--clocksource=clock_gettime", "--output-format=json")  # fmt: skip
_RANDOM_SHARE = 16  # of the file is read or written when it is done in random order, 4 KiB at once


def measurements(settings: Settings) -> list[Measurement]:
    """All modes for the smallest file; buffered alone for larger ones."""
    found = []
    for number, size in enumerate(settings.sizes_bytes):
        modes = list(_MODES) if number == 0 else ["buffered"]
        found += [_transfer(size, mode) for mode in modes]
        found.append(_copy_up(size))
    return found


def _transfer(size: int, mode: str) -> Measurement:
    rows = tuple(Row(_title(pattern, size, mode), "MiB/s", more=True) for pattern, _ in _PATTERNS)
    return Measurement(
        f"io-{mode}-{shown_size(size)}", rows, f"large-{size}", partial(_build, size=size),
        partial(_sample, size=size, mode=mode), linked=True, warm_up=True, rounds=5,
        about="fio opens for update what it writes, which `run --interpose` leaves to the mount, and what is read with "
        "O_DIRECT, or of the lower and too long to be copied: see stream-*",
    )  # fmt: skip


def _title(pattern: str, size: int, mode: str) -> str:
    return f"{_WORDS[pattern]}, {mode}, {shown_size(size)}"


def _build(path: Path, site: Site, size: int) -> None:
    program("fio")
    datasets.large(size, path)


def _sample(scene: Scene, size: int, mode: str) -> Mapping[str, float]:
    """All four in one run of fio, one after the other."""
    argv = [program("fio"), *_OPTIONS]
    for pattern, name in _PATTERNS:
        argv += _job(pattern, f"{scene.view.root}/{name}", size, mode)
    try:
        out = scene.view.worker.run(argv, scene.view.root).out
    finally:
        scene.run("rm", "-f", f"{scene.view.root}/out")
    jobs = {job["jobname"]: job for job in json.loads(out[out.index("{") :])["jobs"]}
    return {_title(pattern, size, mode): _rate(jobs[pattern], pattern, mode) for pattern, _ in _PATTERNS}


def _job(pattern: str, path: str, size: int, mode: str) -> list[str]:
    is_random = pattern.startswith("rand")
    amount = size // _RANDOM_SHARE if is_random else size
    sync = ["--end_fsync=1"] if _is_synced(pattern, mode) else []
    return [
        f"--name={pattern}", "--stonewall", f"--filename={path}", f"--rw={pattern}", f"--size={size}", f"--io_size={amount}",
        "--bs=4k" if is_random else "--bs=128k", *_MODES[mode], *sync,
    ]  # fmt: skip


def _is_synced(pattern: str, mode: str) -> bool:
    return mode == "mmap" and "write" in pattern


def _rate(job: dict[str, Any], pattern: str, mode: str) -> float:
    """MiB per second, from the time that each call took: fio's own figure, which includes a sync, knows milliseconds only."""
    done = job["write" if "write" in pattern else "read"]
    if _is_synced(pattern, mode):
        return float(done["bw_bytes"] / MIB)
    return float(done["io_bytes"] / MIB / (done["total_ios"] * done["lat_ns"]["mean"] / 1e9))


# -- copy-up ----------------------------------------------------------------------------------------------------------


def _copy_up(size: int) -> Measurement:
    row = Row(f"first write to a file of {shown_size(size)} (bare: cp)", "ms")
    return Measurement(
        f"copy-up-{shown_size(size)}", (row,), f"large-{size}", partial(_build, size=size),
        partial(_first_write, title=row.title), fresh=True, linked=True, warm_up=True, rounds=5,
    )  # fmt: skip


def _first_write(scene: Scene, title: str) -> Mapping[str, float]:
    """The bare directory has no copy-up: there it is what an independent copy costs."""
    root = scene.view.root
    if scene.is_bare:
        return {title: scene.run("cp", "--reflink=auto", f"{root}/f0", f"{root}/copy") * 1000}
    return {title: scene.ops("first-write", root, 1) / 1000}
