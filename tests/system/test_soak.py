"""A short run of soak.py: what grows with time would show in an hour what it hints at in half a minute."""

import time
from pathlib import Path

from agentfs_client.control import ControlClient
from tests.mounted import Mounted
from tests.system.soak import soak

MINUTES = 0.3


def test_nothing_grows_with_time(mounted: Mounted, tmp_path: Path) -> None:
    figures, steps = soak(mounted.path, MINUTES, 4, tmp_path / "stop")
    assert steps > 300
    early, late = figures[len(figures) // 2], figures[-1]
    assert late["handles"] < 100
    assert late["descriptors"] < early["descriptors"] + 60
    assert late["processes"] < early["processes"] + 60
    assert late["threads"] < 200
    assert late["rss_bytes"] < early["rss_bytes"] * 1.3 + (8 << 20)
    assert late["database_bytes"] < early["database_bytes"] + (1 << 20)
    assert mounted.fsck() == []
    with ControlClient.connect(mounted.record().socket) as daemon:
        for branch in daemon.list_branches():
            if branch.name != "main":
                daemon.discard(branch.id)
        deadline = time.monotonic() + 20
        while (left := daemon.status().resources)["handles"] or left["inodes"] > 50:
            assert time.monotonic() < deadline, left
            time.sleep(0.2)
        assert daemon.status().usage["objects"] == 0 or daemon.fsck() == []
