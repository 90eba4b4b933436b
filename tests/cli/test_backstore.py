"""backstore status: what is where, and how much."""

import json
from pathlib import Path

from tests.mounted import AGENTFSD, Mounted, agentfsd

MIB = 1 << 20


def test_status_says_what_is_kept_where(mounted: Mounted) -> None:
    (mounted.path / "new").write_bytes(b"x" * MIB)
    found = mounted.json("backstore status")
    assert (found["kind"], found["place"], found["why"]) == ("hostfs", str(mounted.state / "objects"), "")
    assert found["native_snapshots"] in ("reflink", "none")
    assert (found["objects"], found["size_bytes"], found["reserve_bytes"]) == (1, MIB, 4 * MIB)
    assert 0 < found["free_bytes"] < found["total_bytes"]
    assert found["filesystem"]
    shown = mounted.cli("backstore status").stdout
    assert "1 file, 1.0 MiB" in shown
    assert found["filesystem"] in shown
    assert "spilled" not in shown


def test_status_of_memory_tells_what_was_spilled(tmp_path: Path) -> None:
    mounted = Mounted(tmp_path, None, "--backstore", "memory", "--memory-object-limit", "1")
    try:
        mounted.mount()
        (mounted.path / "small").write_bytes(b"x" * 4096)
        (mounted.path / "large").write_bytes(b"x" * 2 * MIB)
        found = mounted.json("backstore status")
        assert (found["kind"], found["place"]) == ("memory", str(mounted.state / "spill"))
        assert (found["objects"], found["spilled_objects"], found["spilled_bytes"]) == (2, 1, 2 * MIB)
        assert "1 file, 2.0 MiB" in mounted.cli("backstore status").stdout
    finally:
        mounted.end()


def test_a_bound_process_is_told_nothing_of_other_branches(mounted: Mounted) -> None:
    done = mounted.run("b", *AGENTFSD, "backstore", "status", new=True, check=False)
    assert done.returncode == 1
    assert "bound to a branch" in done.stderr
    assert json.loads(agentfsd("backstore", "status", "--json", "-m", str(mounted.path)).stdout)["objects"] == 0
