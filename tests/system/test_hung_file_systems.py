"""Somebody else's file system hangs, with a process in it: the daemon never asks it anything, and everybody goes on."""

import os
import subprocess
import threading
from pathlib import Path

import pytest

from agentfsd.linux import occupants
from tests.hanging import in_a_hung_file_system
from tests.mounted import Mounted, agentfsd, needs_root


@pytest.mark.sample(1)
@pytest.mark.parametrize("unmounted", [True, False], ids=["unmounted lazily", "mounted"])
def test_everybody_goes_on(mounted: Mounted, tmp_path: Path, unmounted: bool) -> None:
    needs_root()
    mounted.cli("branch create", "other")
    agent = mounted.start("other", "sh", "-c", "while read x; do echo $x > said; cat said; done", stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE)  # fmt: skip
    assert agent.stdin is not None
    assert agent.stdout is not None
    with in_a_hung_file_system(tmp_path / "hung", unmounted=unmounted) as inside:
        mounted.cli("bind", str(inside.pid), "other")
        for number in range(2):
            refused = agentfsd("umount", str(mounted.path), check=False)
            assert refused.returncode == 1
            assert f"{inside.pid} sleep" in refused.stderr
            agent.stdin.write(f"{number}\n")
            agent.stdin.flush()
            assert agent.stdout.readline() == f"{number}\n"
        assert "other" in mounted.cli("status").stdout
        assert mounted.json("top", "--once")
        mounted.cli("snapshot create", "-b", "other", "meanwhile")
        assert mounted.run("fresh", "cat", "file", new=True).stdout == "lower\n"
        mounted.cli("unbind", str(inside.pid))
        agent.stdin.close()
        agent.wait()
        agentfsd("umount", str(mounted.path))
        assert not mounted.record().alive()


def test_who_stands_in_a_mount_is_found_beside_one_that_hangs(mounted: Mounted, tmp_path: Path) -> None:
    needs_root()
    device = mounted.path.stat().st_dev
    with (mounted.path / "file").open() as file:
        holder = subprocess.Popen(["sleep", "60"], stdin=file)
    stander = subprocess.Popen(["sleep", "60"], cwd=mounted.path)
    try:
        with in_a_hung_file_system(tmp_path / "hung", unmounted=True) as inside:
            found = occupants.users_of(device)
            assert {holder.pid, stander.pid} <= set(found)
            assert inside.pid not in found
            subprocess.run(["umount", "-l", mounted.path], check=True)
            assert {holder.pid, stander.pid} <= set(occupants.users_of(device))
    finally:
        for process in (holder, stander):
            process.kill()
            process.wait()


def test_a_look_that_hangs_is_given_up_and_not_begun_again(mounted: Mounted, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a network share whose server is gone: even opening the magic link waits for it."""
    device = mounted.path.stat().st_dev
    stander = subprocess.Popen(["sleep", "60"], cwd=mounted.path)
    hung, release, looks = subprocess.Popen(["sleep", "60"], cwd="/"), threading.Event(), []
    real = os.open

    def slow(path: str, flags: int, *arguments: int) -> int:
        if path == f"/proc/{hung.pid}/cwd":
            looks.append(path)
            release.wait(60)
        return real(path, flags, *arguments)

    monkeypatch.setattr(os, "open", slow)
    try:
        for _ in range(2):
            assert stander.pid in occupants.users_of(device)
        assert len(looks) == 1
    finally:
        release.set()
        for process in (stander, hung):
            process.kill()
            process.wait()


def test_a_lazy_umount_says_whom_it_waits_for(mounted: Mounted) -> None:
    user = subprocess.Popen(["sleep", "60"], cwd=mounted.path)
    try:
        done = agentfsd("umount", "--lazy", str(mounted.path))
        assert f"{user.pid} sleep" in done.stderr
    finally:
        user.kill()
        user.wait()


def test_who_has_only_a_mapping_left_is_named(mounted: Mounted) -> None:
    """A mapping alone is no descriptor and no directory: only the kernel knows of it, and refuses."""
    script = (
        "import ctypes, sys, time; f = open(sys.argv[1], 'rb'); map = ctypes.CDLL(None).mmap; map.restype = ctypes.c_void_p\n"
    )
    script += "map(None, 4096, 1, 2, f.fileno(), 0); f.close(); print('in', flush=True); time.sleep(60)"
    user = subprocess.Popen(["python3", "-c", script, mounted.path / "file"], stdout=subprocess.PIPE, text=True)
    assert user.stdout is not None
    assert user.stdout.readline() == "in\n"
    try:
        refused = agentfsd("umount", str(mounted.path), check=False)
        assert refused.returncode == 1
        assert f"is in use by process {user.pid} python" in refused.stderr
    finally:
        user.kill()
        user.communicate()
