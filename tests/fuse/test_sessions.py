"""Which session serves a mount, and what is said about it."""

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agentfs_client.control import ControlClient
from agentfs_host import mount_table
from tests.mounted import Mounted, agentfsd, needs_fuse

# A daemon on a kernel that is too old for the native session, as far as it can tell.
OLD_KERNEL = """
import sys
from agentfsd.fuse.native import fuse_protocol
fuse_protocol.OLDEST_MINOR = 99
from agentfsd.daemon.__main__ import serve
from agentfsd.process.readiness import ReadinessPipe
from agentfsd.state.daemon_config import DaemonConfig
lower, mountpoint, state, session = sys.argv[1:]
config = DaemonConfig(lower=lower, mountpoint=mountpoint, state=state, foreground=True, session=session)
serve(config, ReadinessPipe(-1))
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
        assert [mounted.mountpoint for mounted in mount_table.mount_table()].count(str(path)) == 1
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
    assert mount_table.mount_at(str(tmp_path / "mnt")) is None


def test_through_pyfuse3_every_request_is_counted_and_has_a_place_and_somebody(make_mount: Callable[..., Mounted]) -> None:
    mounted = make_mount(None, "--session", "pyfuse3")
    path, ends = mounted.path / "file", time.monotonic() + 0.6

    def work() -> None:
        while time.monotonic() < ends:
            with open(path, "wb", buffering=0) as file:
                file.write(bytes(1 << 16))
                os.fsync(file.fileno())
            os.posix_fadvise(fd := os.open(path, os.O_RDONLY), 0, 0, os.POSIX_FADV_DONTNEED)
            os.read(fd, 1 << 16)
            os.close(fd)
            os.listdir(mounted.path)

    with ControlClient.connect(mounted.record().socket) as daemon:
        daemon.set_policy("log.slow_ms", "1")
        worker = threading.Thread(target=work)
        worker.start()
        profile = daemon.top(0.5)
        worker.join()
        entries, slow = daemon.audit(path="file").entries, daemon.status().slow
    kinds = {one.name for one in profile.operations}
    assert {"open", "read", "write", "fsync", "flush", "release", "opendir", "readdir", "releasedir"} <= kinds
    assert next(one.written_bytes for one in profile.processes if one.pid == os.getpid()) > 0
    assert {one.pid for one in entries if one.kind == "modified"} == {os.getpid()}
    assert {one.where for one in slow if one.request in ("write", "fsync")} <= {"file"}
    assert "whoever opened it is taken for it" in " ".join(mounted.cli("status").stdout.split())
