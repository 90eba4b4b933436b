"""How a mount ends: by `agentfsd umount`, by the system's, by a signal, and after a killed daemon."""

import os
import signal
import subprocess
import time

import pytest

from agentfs_client import registry
from tests.cli.mount_checks import is_mounted, refusal, wait_until
from tests.mounted import Mounted, agentfsd, needs_root


def test_umount_ends_the_daemon_and_keeps_the_branches(mounted: Mounted) -> None:
    mounted.cli("branch create", "kept")
    (mounted.subtree("kept") / "new").write_text("content")
    record = mounted.record()
    agentfsd("umount", str(mounted.path))
    assert not is_mounted(mounted.path)
    assert not record.alive()
    assert not os.path.exists(record.socket)
    assert registry.live_daemons() == []
    mounted.mount()
    assert (mounted.subtree("kept") / "new").read_text() == "content"


def test_umount_names_who_uses_the_mount(mounted: Mounted) -> None:
    user = subprocess.Popen(["sleep", "30"], cwd=mounted.path)
    try:
        said = refusal("umount", str(mounted.path))
        assert f"is in use by process {user.pid} sleep" in said
        assert (mounted.path / "file").exists()
    finally:
        user.kill()
        user.wait()


def test_umount_spares_a_run_in_its_own_namespace(mounted: Mounted) -> None:
    mounted.cli("branch create", "b")
    runner = mounted.start("b", "sh", "-c", "cd /; echo up; sleep 30", view="namespace", stdout=subprocess.PIPE)
    try:
        assert runner.stdout is not None
        assert runner.stdout.readline() == "up\n"
        assert "is in use by process" in refusal("umount", str(mounted.path))
    finally:
        runner.terminate()
        runner.wait(20)
        assert runner.stdout is not None
        runner.stdout.close()


def test_lazy_umount_serves_its_last_user_to_the_end(mounted: Mounted) -> None:
    record = mounted.record()
    user = subprocess.Popen(["sh", "-c", "read x; cat file"], cwd=mounted.path, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    done = agentfsd("umount", "--lazy", str(mounted.path))
    assert not is_mounted(mounted.path)
    assert f"process {record.pid}, ends with the last process" in done.stderr
    out, _ = user.communicate(b"go\n", timeout=20)
    assert out == b"lower\n"
    wait_until(lambda: not record.alive())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_unmounts_in_order(mounted: Mounted, number: signal.Signals) -> None:
    record = mounted.record()
    os.kill(record.pid, number)
    wait_until(lambda: not record.alive())
    assert not is_mounted(mounted.path)
    assert registry.live_daemons() == []


def test_signal_ends_the_daemon_also_while_the_mount_is_in_use(mounted: Mounted) -> None:
    record = mounted.record()
    user = subprocess.Popen(["sleep", "30"], cwd=mounted.path)
    try:
        os.kill(record.pid, signal.SIGTERM)
        wait_until(lambda: not record.alive())
        assert not is_mounted(mounted.path)
    finally:
        user.kill()
        user.wait()
    assert "unmounting it lazily" in (mounted.state / "daemon.log").read_text()


def unmounts(mounted: Mounted) -> bool:
    """The system's umount. It refuses while anybody looks, as others who start a run beside us may for a moment."""
    done = subprocess.run(["umount", mounted.path], capture_output=True, text=True, check=False)
    assert done.returncode == 0 or "target is busy" in done.stderr, done.stderr
    return done.returncode == 0


def test_mount_right_after_umount_of_the_system_works(mounted: Mounted) -> None:
    needs_root()
    for number in range(5):
        (mounted.path / f"f{number}").write_bytes(b"x" * 100_000)
        wait_until(lambda: unmounts(mounted))
        mounted.mount()
        assert (mounted.path / f"f{number}").stat().st_size == 100_000


@pytest.mark.parametrize("command", [["umount"], ["umount", "-l"]])
def test_umount_of_the_system_ends_the_daemon_though_a_namespace_holds_a_copy(mounted: Mounted, command: list[str]) -> None:
    needs_root()
    elsewhere = subprocess.Popen(["unshare", "-m", "sh", "-c", "echo in; exec sleep 60"], stdout=subprocess.PIPE, cwd="/")
    assert elsewhere.stdout is not None
    elsewhere.stdout.readline()
    inside = subprocess.Popen(["sleep", "60"], cwd=mounted.path) if len(command) > 1 else None
    try:
        subprocess.run([*command, mounted.path], check=True)
        if inside is not None:
            time.sleep(2.5)
            assert mounted.record().alive()
            inside.kill()
            inside.wait()
        mounted.mount()
        assert (mounted.path / "file").read_text() == "lower\n"
    finally:
        elsewhere.kill()
        elsewhere.communicate()


def test_mount_clears_away_what_a_killed_daemon_left(mounted: Mounted) -> None:
    (mounted.path / "file").write_text("acknowledged")
    mounted.kill()
    assert "the daemon of" in refusal("branch", "list", "-m", str(mounted.path))
    mounted.mount()
    assert (mounted.path / "file").read_text() == "acknowledged"


def test_umount_clears_away_what_a_killed_daemon_left(mounted: Mounted) -> None:
    mounted.kill()
    agentfsd("umount", str(mounted.path))
    assert not is_mounted(mounted.path)


def test_a_copy_of_the_mount_in_another_namespace_does_not_keep_the_daemon(mounted: Mounted) -> None:
    """A container or service that started meanwhile has a copy of every mount there was."""
    needs_root()
    with subprocess.Popen(["unshare", "-m", "sleep", "60"]) as holder:
        try:
            time.sleep(0.2)
            began = time.monotonic()
            agentfsd("umount", str(mounted.path))
            assert time.monotonic() - began < 10
            assert not mounted.record().alive()
        finally:
            holder.kill()
