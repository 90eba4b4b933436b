"""Which mount a command means that names none: it says in one sentence why none or several could be meant."""

from pathlib import Path

import pytest

from agentfs_client import locate, registry
from agentfs_client.errors import AgentFSError


def found(monkeypatch: pytest.MonkeyPatch, *lowers: str) -> AgentFSError:
    records = [
        registry.DaemonRecord(
            pid=1, start_ticks=0, lower=lower, mountpoint=f"/mnt/{number}", socket="", state=f"/state/{number}", started_ns=0
        )
        for number, lower in enumerate(lowers)
    ]
    monkeypatch.setattr(locate, "live_daemons", lambda: records)
    with pytest.raises(AgentFSError) as refused:
        locate.find()
    return refused.value


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(locate.MOUNT_VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)


def test_outside_several_mounts_the_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = found(monkeypatch, *(f"/work/{number}" for number in range(5)))
    assert refusal.message == "the current directory is in no workspace, and 5 are mounted"
    assert refusal.hint.startswith("choose one with -m: /mnt/0 (of /work/0), ")
    assert refusal.hint.endswith("/mnt/2 (of /work/2), and 2 more (`agentfsd status` lists them)")


def test_directory_that_is_mounted_twice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    refusal = found(monkeypatch, str(tmp_path), str(tmp_path))
    assert refusal.message == f"{tmp_path} is mounted at 2 places"
    assert refusal.hint == f"choose one with -m: /mnt/0 (of {tmp_path}), /mnt/1 (of {tmp_path})"


def test_without_any_mount(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(monkeypatch).message == "there is no agentfsd mount here"
