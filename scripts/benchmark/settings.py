"""How much is measured: sizes, counts and repetitions, for a full run and for a quick one."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from benchmark.places import Place, available_memory_bytes

MIB = 1 << 20
_ROOM_FACTOR = 3  # beside the lower file: what is written, a copy-up, and some for everything else


def shown_size(size_bytes: int) -> str:
    return f"{size_bytes >> 30}GiB" if size_bytes >= 1 << 30 else f"{size_bytes // MIB}MiB"


@dataclass(frozen=True, slots=True)
class Settings:
    """``rounds``: how often each target is measured. After ``budget_s``, and two rounds, no further one begins.

    ``window_ms``: for how long a fast operation is repeated for one sample.
    """

    rounds: int = 7
    budget_s: float = 600.0
    window_ms: int = 200
    created: int = 2_000
    sizes_bytes: tuple[int, ...] = (1024 * MIB, 4096 * MIB)
    tree_files: int = 50_000
    changed: tuple[int, ...] = (100, 5_000, 100_000)
    depths: tuple[int, ...] = (1, 10, 100, 500)
    repository_files: int = 5_000
    committed: tuple[int, ...] = (1_000, 10_000)
    wide_files: int = 100_000
    merged: tuple[int, ...] = (10, 1_000)
    sources: int = 200
    test_files: int = 40
    python_packages: tuple[str, ...] = ("rich", "click", "hypothesis")
    node_packages: Mapping[str, str] = field(default_factory=lambda: {"express": "^4.18.0"})
    branches: int = 10
    rounds_together: int = 3

    @property
    def most_changed(self) -> int:
        return self.changed[-1]


FULL = Settings()
QUICK = Settings(
    rounds=3, budget_s=4.0, window_ms=50, created=500, sizes_bytes=(32 * MIB,), tree_files=2_000, changed=(100, 1_000),
    depths=(1, 100), repository_files=300, committed=(100, 1_000), wide_files=10_000, merged=(10, 50), sources=10, test_files=6,
    python_packages=("click",), node_packages={"debug": "^4.4.0"}, branches=3, rounds_together=1,
)  # fmt: skip


def fitted(settings: Settings, place: Place) -> tuple[Settings, list[str]]:
    """The settings that this place has room for, and what was left out of them."""
    room = place.free_bytes()
    if place.filesystem == "tmpfs":
        room = min(room, available_memory_bytes())
    kept: list[int] = []
    for size in sorted(settings.sizes_bytes):
        if sum(kept) + size + _ROOM_FACTOR * size <= room:
            kept.append(size)
    left_out = [size for size in settings.sizes_bytes if size not in kept]
    if not left_out:
        return settings, []
    if not kept:
        kept = [max(MIB, room // (2 * _ROOM_FACTOR) // MIB * MIB)]
    notes = [f"{place.name}: {room // MIB} MiB are free, so there is no file of {size // MIB} MiB" for size in left_out]
    return replace(settings, sizes_bytes=tuple(kept)), notes
