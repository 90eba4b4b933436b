"""mount.agentfsd, called as mount(8) calls it. (Through mount(8) itself and fstab: tests/system/test_systemd.py.)"""

import os
import pwd
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentfs_host import mount_table
from tests.mounted import Mounted, needs_fuse, needs_open_checkout, needs_root

HELPER = [sys.executable, "-c", "import sys; from agentfsd.cli import mount_helper; sys.exit(mount_helper.run(sys.argv[1:]))"]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Mounted]:
    needs_fuse()
    made = Mounted(tmp_path)
    yield made
    made.end()


def helper(place: Mounted, options: str, *more: str) -> subprocess.CompletedProcess[str]:
    command = [*HELPER, str(place.lower), str(place.path), *more, "-o", options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_fstab_options_become_a_mount(place: Mounted) -> None:
    (place.lower / "file").write_text("lower\n")
    options = f"rw,noexec,noauto,nofail,_netdev,x-systemd.requires=network.target,x-gvfs-hide,state={place.state},session=native"
    done = helper(place, options, "-n")
    assert (done.returncode, done.stderr) == (0, "")
    assert (place.path / "file").read_text() == "lower\n"
    mounted = mount_table.mount_at(str(place.path))
    assert mounted is not None and "noexec" in mounted.options
    assert place.record().state == str(place.state)
    subprocess.run(["umount", str(place.path)], check=True)


def test_read_only(place: Mounted) -> None:
    assert helper(place, f"ro,state={place.state}").returncode == 0
    with pytest.raises(OSError, match="Read-only"):
        (place.path / "new").touch()


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ("state=relative", "absolute"),
        ("backstore=tape", "tape"),
        ("ramdisk_size=big", "big"),
        ("remount,rw", "unmount it"),
        ("colour=blue", "colour=blue"),
        ("uid=nobody-has-this-name", "nobody-has-this-name"),
    ],
)
def test_options_that_make_no_sense_are_refused(place: Mounted, options: str, word: str) -> None:
    done = helper(place, options)
    assert done.returncode == 1
    assert word in done.stderr
    assert mount_table.mount_at(str(place.path)) is None


def test_sloppy_mounting_ignores_what_it_does_not_know(place: Mounted) -> None:
    assert helper(place, f"colour=blue,state={place.state}", "-s").returncode == 0


def test_rehearsal_mounts_nothing(place: Mounted) -> None:
    assert helper(place, f"state={place.state}", "-f").returncode == 0
    assert mount_table.mount_at(str(place.path)) is None


def test_what_cannot_be_mounted_says_why(place: Mounted) -> None:
    place.lower.rmdir()
    done = helper(place, f"state={place.state}")
    assert done.returncode == 32
    assert str(place.lower) in done.stderr


def test_mount_belongs_to_the_user_who_is_named(place: Mounted, tmp_path: Path) -> None:
    needs_root()
    needs_open_checkout()
    nobody = pwd.getpwnam("nobody")
    for directory in [tmp_path, *tmp_path.parents]:
        if not directory.stat().st_mode & stat.S_IXOTH:
            os.chmod(directory, 0o755)
    for path in (place.lower, place.path, place.state):
        path.mkdir(exist_ok=True)
        os.chown(path, nobody.pw_uid, nobody.pw_gid)
    environment = {**os.environ, "AGENTFS_RUNTIME_DIR": ""}
    command = [*HELPER, str(place.lower), str(place.path), "-o", f"uid=nobody,state={place.state}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert Path(f"/proc/{place.record().pid}").stat().st_uid == nobody.pw_uid
