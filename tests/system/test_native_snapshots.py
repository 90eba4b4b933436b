"""Reflinks: on a file system that has them blocks are shared, and with --no-native-snapshots none are."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentfs_client.control import ControlClient
from tests.disks import REFLINKING, reflinking_disk, shares_blocks
from tests.mounted import AGENTFSD, Mounted, needs_fuse, needs_namespaces
from tests.overlays import Opened
from tests.system.stepper import COMMAND, PIPES, Stepper

MIB = 1 << 20


@pytest.fixture(params=REFLINKING)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    with reflinking_disk(tmp_path, request.param) as where:
        yield where


@pytest.fixture(params=["--native-snapshots", "--no-native-snapshots"])
def mounted(request: pytest.FixtureRequest, disk: Path) -> Iterator[Mounted]:
    """Lower and state on that disk."""
    needs_fuse()
    needs_namespaces()
    made = Mounted(disk, None, request.param)
    try:
        yield made.mount()
    finally:
        made.end()


def in_branch(mounted: Mounted) -> Stepper:
    command = [*AGENTFSD, "run", "-m", str(mounted.path), "-b", "b", "--io", "passthrough", "--", *COMMAND]
    mounted.started.append(subprocess.Popen(command, text=True, cwd=mounted.path, **PIPES))
    return Stepper(mounted.started[-1])


def objects_that_share(mounted: Mounted) -> list[int]:
    """Their sizes in MiB."""
    found = [path for path in (mounted.state / "objects").rglob("*") if path.is_file()]
    return sorted(path.stat().st_size // MIB for path in found if shares_blocks(path))


def test_blocks_are_shared_exactly_when_that_is_wanted(mounted: Mounted) -> None:
    native = mounted.options == ("--native-snapshots",)
    (mounted.lower / "large").write_bytes(os.urandom(3 * MIB))
    mounted.cli("branch create", "b")
    run = in_branch(mounted)
    run("write", "held", "x" * MIB)
    run("open", "held", "held", os.O_RDWR)
    run("pwrite", "held", "before", 0)
    kept = {path: (mounted.subtree("b") / path).read_bytes() for path in ("held", "large")}
    mounted.cli("snapshot create", "s", "-b", "b")
    assert objects_that_share(mounted) == ([1, 1] if native else [])  # the one that is open, and the snapshot's
    run("pwrite", "held", "after ", 0)
    run("open", "large", "large", os.O_RDWR)
    run("pwrite", "large", "after ", 0)
    assert objects_that_share(mounted) == ([1, 1, 3] if native else [])  # copied up from the lower
    run("write", "copy", "")
    run("open", "copy", "copy", os.O_RDWR)
    done = 0
    while done < 3 * MIB:
        done += run("copy_range", "large", done, "copy", done, 3 * MIB - done)
    assert objects_that_share(mounted) == ([1, 1, 3, 3] if native else [])  # as cp asks for it
    for path, content in kept.items():
        assert (mounted.path / ".agentfs" / "snapshots" / "s" / path).read_bytes() == content
        assert (mounted.subtree("b") / path).read_bytes() == b"after " + content[6:]
    assert (mounted.subtree("b") / "copy").read_bytes() == b"after " + kept["large"][6:]
    for name in ("held", "large", "copy"):
        run("close", name)
    mounted.cli("commit", "b")
    assert shares_blocks(mounted.lower / "copy") == native
    assert mounted.fsck() == []
    with ControlClient.connect(mounted.record().socket) as daemon:
        how = "reflink" if native else "none"
        assert daemon.capabilities()["cap.backstore"] == daemon.status().cap_backstore == f"hostfs(native-snapshots={how})"


def test_a_snapshot_of_5000_changed_files_takes_less_than_300_ms(disk: Path) -> None:
    opened = Opened(disk)
    try:
        for number in range(5000):
            opened.write(f"f{number}", b"content")
        began = time.process_time()  # what others do on the machine does not count
        opened.overlay.snapshots.create("main", "s")
        assert time.process_time() - began < 0.3
        opened.write("f0", b"later")
        assert opened.read("f0", "s") == b"content"
    finally:
        opened.close()
