"""Daemons are found by their records. One counts as alive until its last thread has ended."""

import subprocess
import sys
from pathlib import Path

from agentfs_client.registry import DaemonRecord, process_start_ticks

OUTLIVES_ITS_FIRST_THREAD = """
import ctypes, sys, threading
threading.Thread(target=sys.stdin.read).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def record_of(pid: int) -> DaemonRecord:
    return DaemonRecord(
        pid=pid, start_ticks=process_start_ticks(pid), lower="/l", mountpoint="/m", socket="/s", state="/t", started_ns=1
    )


def test_a_process_lives_until_its_last_thread_has_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", OUTLIVES_ITS_FIRST_THREAD], stdin=subprocess.PIPE) as process:
        record, status = record_of(process.pid), Path(f"/proc/{process.pid}/stat")
        while status.read_text().rpartition(") ")[2][0] != "Z":
            assert record.alive()
        assert process.poll() is None
        assert record.alive()
        process.kill()
        process.wait()
    assert not record.alive()


def test_a_process_that_nobody_has_waited_for_has_ended() -> None:
    with subprocess.Popen(["true"]) as process:
        while Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2][0] != "Z":
            pass
        assert process_start_ticks(process.pid) == 0
    assert process_start_ticks(process.pid) == 0
