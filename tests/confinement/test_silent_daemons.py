"""Other daemons that do not answer keep no run from starting."""

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.confinement.world import World

pytestmark = pytest.mark.sample(1)


@pytest.fixture
def silent(world: World, turn: int, request: pytest.FixtureRequest) -> Iterator[World]:
    """The world while its other daemon is stopped, and a process waits for a look-up in that daemon's mount."""
    fcntl.flock(turn, fcntl.LOCK_EX)
    pid = world.state(world.other_lower).pid
    os.kill(pid, signal.SIGSTOP)
    become = {"user": world.user, "group": world.user, "extra_groups": []} if world.user else {}
    waiting = subprocess.Popen(["stat", world.other_point / request.node.name], stderr=subprocess.DEVNULL, **become)  # type: ignore[call-overload]
    deadline = time.monotonic() + 10
    while "request_wait_answer" not in Path(f"/proc/{waiting.pid}/wchan").read_text():
        time.sleep(0.01)
        if time.monotonic() > deadline:
            break
    try:
        assert time.monotonic() < deadline, "the look-up does not wait"
        yield world
    finally:
        os.kill(pid, signal.SIGCONT)
        waiting.wait()


def test_a_run_starts_beside_a_silent_daemon(silent: World) -> None:
    began = time.monotonic()
    done = silent.run("silent-1", f"echo started; echo x > {silent.lower}/new; grep -c {silent.other_point} /proc/mounts")
    assert time.monotonic() - began < 15
    assert done.stdout.startswith("started\n")
    is_told = f"a cover over {silent.other_point}: its daemon does not answer" in done.stderr
    assert is_told == (silent.user != 0), done.stderr  # root's run detaches that mount
    assert not (silent.lower / "new").exists()


def test_a_strict_run_beside_a_silent_daemon_hides_its_mount_or_refuses_to_start(silent: World) -> None:
    script = f"echo started; ls -A {silent.other_point}"
    done = silent.run("silent-2", script, "--confine", "strict", "--tmp", "shared", check=False)
    if silent.user == 0:
        assert (done.returncode, done.stdout, done.stderr) == (0, "started\n", "")
        assert os.path.ismount(silent.other_point), "it was unmounted for everybody"
    else:
        assert (done.returncode, done.stdout) == (1, "")
        assert "its daemon does not answer" in done.stderr
