"""Which session serves a mount, and what is said about it."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agentfsd import mounts
from tests.mounted import Mounted, agentfsd, needs_fuse

# A daemon on a kernel that is too old for the native session, as far as it can tell.
OLD_KERNEL = """
import sys
from agentfsd.fuse.native import protocol
protocol.OLDEST_MINOR = 99
from agentfsd import daemon, process
from agentfsd.config import DaemonConfig
lower, mountpoint, state, session = sys.argv[1:]
daemon.serve(DaemonConfig(lower=lower, mountpoint=mountpoint, state=state, foreground=True, session=session), process.Ready(-1))
"""


@pytest.mark.parametrize("session", ["native", "pyfuse3"])
def test_the_session_that_was_asked_for(make_mount: Callable[..., Mounted], session: str) -> None:
    mounted = make_mount(None, "--session", session)
    (mounted.path / "file").write_text("works")
    assert mounted.json("status")["session"] == session


def test_auto_takes_native_and_says_what_it_speaks(make_mount: Callable[..., Mounted]) -> None:
    status = make_mount().json("status")
    assert status["session"] == "native"
    assert status["session_why"].startswith("FUSE 7.")


def test_auto_falls_back_by_itself_and_says_why(tmp_path: Path) -> None:
    needs_fuse()
    lower, path, state = tmp_path / "lower", tmp_path / "mnt", tmp_path / "state"
    lower.mkdir()
    path.mkdir()
    (lower / "file").write_text("lower")
    daemon = subprocess.Popen([sys.executable, "-c", OLD_KERNEL, str(lower), str(path), str(state), "auto"])
    try:
        while not os.path.exists(path / ".agentfs"):
            assert daemon.poll() is None
            time.sleep(0.02)
        assert (path / "file").read_text() == "lower"
        shown = agentfsd("status", "-m", str(path)).stdout
        assert re.search(
            r"session +pyfuse3 \(the native session is not to be had: the kernel speaks FUSE 7\.", " ".join(shown.split())
        )
        assert [mounted.mountpoint for mounted in mounts.mount_table()].count(str(path)) == 1
        agentfsd("umount", str(path))
        assert daemon.wait(20) == 0
    finally:
        daemon.kill()
        daemon.wait()


def test_native_alone_is_refused_where_it_cannot_be(tmp_path: Path) -> None:
    needs_fuse()
    for name in ("lower", "mnt"):
        (tmp_path / name).mkdir()
    command = [sys.executable, "-c", OLD_KERNEL, *(str(tmp_path / name) for name in ("lower", "mnt", "state")), "native"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode != 0
    assert "7.99 is the oldest we know" in done.stderr
    assert mounts.mount_at(str(tmp_path / "mnt")) is None
