"""When a ramdisk stays and when it goes, whatever ends its use; and whom it is refused."""

import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentfsd.backstore import ramdisk
from agentfsd.daemon.state_contents import opened
from agentfsd.state.daemon_config import MIB, DaemonConfig
from agentfsd.state.state_directory import StateDirectory
from tests.mounted import needs_root


@pytest.fixture
def state(tmp_path: Path) -> Iterator[StateDirectory]:
    needs_root()
    made = StateDirectory(str(tmp_path / "state"))
    made.create()
    yield made
    while ramdisk.is_there(made.ramdisk):
        ramdisk.take_away(made.ramdisk)


@pytest.fixture
def config(state: StateDirectory) -> DaemonConfig:
    return DaemonConfig(lower="/l", mountpoint="/m", state=state.path, backstore="ramdisk", ramdisk_size_bytes=16 * MIB)


def test_a_mount_that_fails_leaves_no_ramdisk(state: StateDirectory, config: DaemonConfig) -> None:
    with pytest.raises(RuntimeError), opened(config, state):
        raise RuntimeError
    assert not os.path.exists(state.ramdisk)


def test_a_daemon_that_fails_later_leaves_it_to_the_next(state: StateDirectory, config: DaemonConfig) -> None:
    with pytest.raises(RuntimeError), opened(config, state) as held:
        held.in_use = True
        held.backstore.create(7).close()
        raise RuntimeError
    with pytest.raises(RuntimeError), opened(config, state) as held:
        assert list(held.backstore.ids()) == [7]
        raise RuntimeError  # what was there before stays, though nothing was mounted this time
    with opened(config, state) as held:
        assert list(held.backstore.ids()) == [7]
    assert not os.path.exists(state.ramdisk)


def test_what_somebody_else_has_mounted_there_is_left_alone(state: StateDirectory, config: DaemonConfig) -> None:
    ramdisk.provide(state.ramdisk, 16 * MIB)
    os.mkdir(f"{state.ramdisk}/ramdisk")
    inner = StateDirectory(state.ramdisk)
    ramdisk.mounts.mount_tmpfs(inner.ramdisk, "theirs", MIB)
    try:
        with opened(config, inner) as held:
            assert held.backstore.kind == "memory"
            assert "something else is mounted" in held.notice
    finally:
        ramdisk.mounts.unmount(inner.ramdisk)


@pytest.fixture
def theirs() -> Iterator[Path]:
    """A directory of an ordinary user. Not in tmp_path, whose parent each session of pytest closes to others when it starts."""
    needs_root()
    with tempfile.TemporaryDirectory(prefix="agentfsd-theirs-") as name:
        os.chown(name, 65534, 65534)
        yield Path(name)


def test_an_ordinary_user_gets_a_sentence_and_no_ramdisk(theirs: Path) -> None:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setgid(65534)
            os.setuid(65534)
            ramdisk.provide(str(theirs / "ramdisk"), MIB)
        except OSError as exc:
            code = 0 if exc.errno == errno.EPERM and "CAP_SYS_ADMIN" in str(exc) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert os.listdir(theirs) == []
