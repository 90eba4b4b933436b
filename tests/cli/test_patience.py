"""How long whoever starts a daemon waits for it."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from agentfsd.cli.connect import daemon_start
from agentfsd.domain_errors import Refusal
from agentfsd.process.readiness import Readiness
from agentfsd.state.state_directory import StateDirectory

LATE = "import os, sys, time; time.sleep(0.3); os.write(int(sys.argv[1]), sys.argv[2].encode() + b'\\n')"


def answer(state: StateDirectory) -> Readiness:
    """Of a process that says it is ready after a while."""
    ready, writes = os.pipe()
    said = msgspec.json.encode(Readiness(notice="late")).decode()
    with subprocess.Popen([sys.executable, "-c", LATE, str(writes), said], pass_fds=[writes]) as late:
        os.close(writes)
        try:
            return daemon_start._await_ready(late.pid, ready, -1, state, freezes=False)
        finally:
            os.close(ready)


def test_a_start_with_large_metadata_may_take_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the checksums are missing the structure of all of it is checked: from a slow disk not within a minute."""
    monkeypatch.setattr(daemon_start, "READY_TIMEOUT_S", 0.0)
    with pytest.raises(Refusal, match="did not get ready within 0 s"):
        answer(StateDirectory(str(tmp_path)))
    with (tmp_path / "meta.db").open("wb") as file:
        os.truncate(file.fileno(), 1 << 30)
    assert answer(StateDirectory(str(tmp_path))).notice == "late"
