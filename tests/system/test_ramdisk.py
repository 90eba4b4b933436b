"""The ramdisk backstore: a killed daemon leaves it to the next one, an orderly end takes it away, and a full one says so."""

import errno
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentfs_client.control import ControlClient
from agentfs_host import mount_table
from agentfsd.backstore import ramdisk
from agentfsd.linux import mounts
from agentfsd.state import state_directory
from tests.mounted import Mounted, agentfsd, needs_fuse, needs_root

MIB = 1 << 20


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Mounted]:
    """On a ramdisk of 16 MiB."""
    needs_root()
    needs_fuse()
    made = Mounted(tmp_path, None, "--backstore", "ramdisk", "--ramdisk-size", "16")
    (made.lower / "file").write_text("lower")
    try:
        yield made.mount()
    finally:
        made.end()
        while ramdisk.is_there(place(made)):
            ramdisk.take_away(place(made))


def place(mounted: Mounted) -> str:
    return state_directory.StateDirectory(str(mounted.state)).ramdisk


def mount_again(mounted: Mounted, *options: str) -> subprocess.CompletedProcess[str]:
    return agentfsd("mount", str(mounted.lower), str(mounted.path), "--state", str(mounted.state), *options, check=False)


def test_a_killed_daemon_loses_nothing_and_an_orderly_end_leaves_nothing(mounted: Mounted) -> None:
    mounted.cli("branch create", "b")
    (mounted.subtree("b") / "file").write_text("changed")
    mounted.cli("snapshot create", "s", "-b", "b")
    shown = mount_table.mount_at(place(mounted))
    assert shown is not None
    assert {"nosuid", "nodev", "mode=700"} <= shown.options
    for _ in range(2):
        mounted.kill()
        assert "every branch goes with the mount" in mount_again(mounted, *mounted.options).stderr
        assert (mounted.subtree("b") / "file").read_text() == "changed"
        assert mounted.fsck() == []
    agentfsd("umount", str(mounted.path))
    assert not os.path.exists(place(mounted))
    mounted.mount()
    assert mounted.cli("branch list").stdout.count("\n") == 2  # the header and main
    assert not {"meta.db", "objects"} & set(os.listdir(mounted.state))


def test_a_larger_one_grows_what_a_killed_daemon_left(mounted: Mounted) -> None:
    (mounted.path / "kept").write_bytes(bytes(8 * MIB))
    mounted.kill()
    mount_again(mounted, "--backstore", "ramdisk", "--ramdisk-size", "48")
    assert os.statvfs(place(mounted)).f_blocks * os.statvfs(place(mounted)).f_frsize == 48 * MIB
    (mounted.path / "more").write_bytes(bytes(16 * MIB))
    assert (mounted.path / "kept").read_bytes() == bytes(8 * MIB)


def test_umount_takes_away_what_a_killed_daemon_left(mounted: Mounted) -> None:
    mounted.kill()
    assert "ramdisk" in agentfsd("umount", str(mounted.path)).stdout
    assert mount_table.mount_at(str(mounted.path)) is None
    assert not os.path.exists(place(mounted))
    assert agentfsd("umount", str(mounted.path), check=False).returncode == 1
    mounted.mount()
    mounted.kill()
    mounts.unmount(str(mounted.path), lazy=True)  # by somebody else: the ramdisk is still found by the mount point
    agentfsd("umount", str(mounted.path))
    assert not os.path.exists(place(mounted))


def test_no_other_backstore_passes_over_branches_on_a_ramdisk(mounted: Mounted) -> None:
    (mounted.path / "file").write_text("changed")
    mounted.kill()
    for kind in ("hostfs", "memory"):
        done = mount_again(mounted, "--backstore", kind)
        assert done.returncode == 1
        assert "killed has left branches in the ramdisk" in done.stderr
    assert agentfsd("fsck", "--state", str(mounted.state)).stdout == "sound\n"
    mounted.mount()
    assert (mounted.path / "file").read_text() == "changed"


def test_a_full_one_says_enospc_and_keeps_what_it_has(mounted: Mounted) -> None:
    (mounted.path / "kept").write_bytes(b"kept" * 1000)
    with (mounted.path / "filler").open("wb", buffering=0) as file, pytest.raises(OSError) as caught:
        for _ in range(64):
            file.write(bytes(MIB))
    assert caught.value.errno == errno.ENOSPC
    assert (mounted.path / "filler").stat().st_size > 4 * MIB
    with pytest.raises(OSError, match="No space left"):
        (mounted.path / "another").write_bytes(bytes(MIB))
    mounted.kill()
    mounted.mount()
    assert (mounted.path / "kept").read_bytes() == b"kept" * 1000
    (mounted.path / "filler").unlink()
    deadline = time.monotonic() + 10
    while mounted.json("backstore status")["garbage_objects"] and time.monotonic() < deadline:
        time.sleep(0.1)
    (mounted.path / "after").write_bytes(b"a" * MIB)
    assert (mounted.path / "after").read_bytes() == b"a" * MIB
    assert mounted.fsck() == []


def test_copies_of_the_mount_in_other_namespaces_go_with_it(mounted: Mounted) -> None:
    with subprocess.Popen(["unshare", "-m", "--propagation", "private", "sh", "-c", "echo; exec sleep 60"], stdout=-1) as holder:
        try:
            assert holder.stdout is not None
            holder.stdout.readline()
            assert place(mounted) in Path(f"/proc/{holder.pid}/mountinfo").read_text()
            agentfsd("umount", str(mounted.path))
            assert place(mounted) not in Path(f"/proc/{holder.pid}/mountinfo").read_text()
        finally:
            holder.kill()


def test_memory_stands_in_where_there_can_be_no_ramdisk(mounted: Mounted) -> None:
    agentfsd("umount", str(mounted.path))
    said = mount_again(mounted, "--backstore", "ramdisk", "--ramdisk-size", str(1 << 30)).stderr
    assert said.count("\n") == 1
    assert "MiB of memory are available; contents are in the daemon's memory instead" in said
    assert "there is no ramdisk" in (mounted.state / "daemon.log").read_text()
    (mounted.path / "file").write_text("changed")
    shown = mounted.json("status")
    assert (shown["backstore"], shown["cap_backstore"]) == ("memory", "memory")
    assert "there is no ramdisk" in shown["backstore_why"]
    assert shown["backstore_why"] in mounted.cli("status").stdout
    assert mounted.json("backstore status")["why"] == shown["backstore_why"]
    assert not os.path.exists(place(mounted))


def test_capabilities_name_it(mounted: Mounted) -> None:
    with ControlClient.connect(mounted.record().socket) as daemon:
        assert daemon.capabilities()["cap.backstore"] == "ramdisk(native-snapshots=none)"
    assert "ramdisk(native-snapshots=none)" in mounted.cli("status").stdout
