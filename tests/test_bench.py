"""scripts/bench measures, reports and leaves nothing behind. How fast anything is, is none of this file's business."""

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import xml.etree.ElementTree
from pathlib import Path
from typing import Any

import pytest

from agentfs_client import interpose
from tests.mounted import needs_fuse

BENCH = Path(__file__).parent.parent / "scripts" / "bench"


@pytest.fixture
def places(tmp_path: Path) -> Path:
    """Where the benchmark keeps its files while it runs."""
    needs_fuse()
    if importlib.util.find_spec("matplotlib") is None:
        pytest.skip("matplotlib is not installed: scripts/install --bench")
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    (tmp_path / "tmp").mkdir()
    return tmp_path / "tmp"


def start(places: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [BENCH, "--quick", "--rounds", "2", "--output", places.parent / "out", *arguments]
    environment = os.environ | {"TMPDIR": str(places)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def bench(places: Path, *arguments: str) -> str:
    process = start(places, *arguments)
    out, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return out


def left_behind(places: Path) -> list[str]:
    mounted = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(places) in line]
    return [*map(str, places.iterdir()), *mounted]


def results(places: Path) -> dict[tuple[str, str], dict[str, Any]]:
    found = json.loads((places.parent / "out" / "results.json").read_text())
    assert found["machine"]["kernel"] == os.uname().release
    return {(series["row"], series["target"]): series for series in found["series"]}


def test_table_json_and_plot(places: Path) -> None:
    chosen = ["--only", "stat", "--only", "history-100", "--place", "tmpfs", "-t", "run", "-t", "subtree"]
    out = bench(places, *chosen)
    table = (places.parent / "out" / "table.txt").read_text()
    assert table in out
    assert "stat, warm" in table
    found = results(places)
    for target in ("bare", "run", "subtree"):
        assert len(found["stat, warm", target]["samples"]) == 2
        assert all(sample > 0 for sample in found["stat, warm", target]["samples"])
    assert found["stat, warm", "run"]["ratio"]["median"] > 0
    assert found["snapshot (bare: cp -a), 100 files", "run"]["value"]["count"] == 2
    assert found["snapshot (bare: cp -a), 100 files", "subtree"]["reason"]
    plot = xml.etree.ElementTree.parse(places.parent / "out" / "plot.svg")
    assert plot.getroot().tag.endswith("svg")
    assert left_behind(places) == []


def test_a_target_that_fails_has_its_cell_and_stops_nobody(places: Path) -> None:
    broken = ["--peer", "broken=sh -c 'echo out of order >&2; exit 3'", "-t", "broken", "-t", "run@nonsense"]
    out = bench(places, "--only", "stat", "--place", "disk", "--disk", str(places), *broken)
    assert "failed: cannot mount: out of order" in out
    found = results(places)
    assert found["stat, warm", "broken"]["failed"]
    assert "nonsense" in found["stat, warm", "run@nonsense"]["reason"]
    assert found["stat, warm", "bare"]["value"]["median"] > 0
    assert left_behind(places) == []


def test_descriptors_are_forwarded_and_compared_with_the_mount_and_a_plain_file(places: Path) -> None:
    if interpose.library() is None:
        pytest.skip("the library for run --interpose was not built")
    chosen = ["--only", "descriptors", "--only", "stream-*", "--only", "create", "--size", "1M", "--place", "tmpfs"]
    bench(places, *chosen, "-t", "run", "-t", "interposed")
    found = results(places)
    assert not [series for series in found.values() if series["failed"]]  # it would be, had interposed not forwarded any
    for target in ("bare", "run", "interposed"):
        assert found["open + close, 4 MiB, for reading", target]["value"]["count"] == 2
        assert found["write of 1MiB by open, 128 KiB blocks, beside a plain file", target]["value"]["median"] > 0
        assert found["create + write 1 KiB + close", target]["samples"]
    for target, asks in (("bare", True), ("run", True), ("interposed", False)):
        for row in ("fd.open + close, new file (bare: open)", "read of 1MiB by fd.open, 1024 KiB blocks, beside a plain file"):
            assert [sample is not None for sample in found[row, target]["samples"]] == [asks, asks]
    assert left_behind(places) == []


def test_told_to_end_it_clears_away_and_keeps_what_it_has(places: Path) -> None:
    process = start(places, "--only", "stat", "--only", "open", "--place", "tmpfs", "-t", "run", "--rounds", "1000")
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("tmpfs: stat"):
            break
    process.send_signal(signal.SIGTERM)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "interrupted" in out
    assert ("stat, warm", "run") in results(places)
    assert left_behind(places) == []
