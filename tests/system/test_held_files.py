"""Snapshots, branches and the daemon's death while a run has files open and mapped for writing, in each way to carry data."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.mounted import AGENTFSD, Mounted, needs_namespaces
from tests.system.stepper import COMMAND, PIPES, Stepper

IO_MODES = ["zero-message", "passthrough", "cached"]
PAGE = 4096


@pytest.fixture(params=IO_MODES)
def io(request: pytest.FixtureRequest) -> str:
    needs_namespaces()
    return str(request.param)


def start(mounted: Mounted, io: str) -> Stepper:
    command = [*AGENTFSD, "run", "-m", str(mounted.path), "-b", "b", "--io", io, "--", *COMMAND]
    mounted.started.append(subprocess.Popen(command, text=True, cwd=mounted.path, **PIPES))
    return Stepper(mounted.started[-1])


def snapshot(mounted: Mounted, name: str) -> Path:
    mounted.cli("snapshot create", name, "-b", "b")
    return mounted.path / ".agentfs" / "snapshots" / name


def sound(mounted: Mounted) -> None:
    assert mounted.fsck() == []
    assert "Error" not in Path(mounted.state, "daemon.log").read_text()


def test_snapshot_has_what_was_written_through_a_mapping(mounted: Mounted, io: str) -> None:
    """Of a file of the lower and of one that was made in the branch."""
    (mounted.lower / "mapped").write_bytes(b"." * 3 * PAGE)
    mounted.cli("branch create", "b")
    run, names, wanted = start(mounted, io), ("mapped", "made"), list("." * 3 * PAGE)
    run("write", "made", "." * 3 * PAGE)
    for name in names:
        run("open", name, name, os.O_RDWR)
        run("map", name, True)
    kept = []
    for turn in range(3):
        for offset, text in ((8, f"turn {turn}"), (PAGE * turn, f"page {turn}")):
            wanted[offset : offset + 6] = text
            for name in names:
                run("poke", name, text, offset)
        kept.append((snapshot(mounted, f"s{turn}"), "".join(wanted)))
        wanted[100:106] = "later!"
        for name in names:
            run("poke", name, "later!", 100)
    mounted.cli("branch create", "other", "--from", "s1")
    for place, text in [*kept, (mounted.subtree("other"), kept[1][1])]:
        for name in names:
            assert (place / name).read_text() == text
    for name in names:
        assert run("read", name) == "".join(wanted)
    assert (mounted.lower / "mapped").read_bytes() == b"." * 3 * PAGE
    sound(mounted)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ["file", "made"])
def test_open_writer_goes_on_after_a_snapshot_which_stays(mounted: Mounted, io: str, name: str) -> None:
    mounted.cli("branch create", "b")
    run = start(mounted, io)
    run("write", name, "first")
    run("open", "w", name, os.O_RDWR)
    run("pwrite", "w", "before", 0)
    first = snapshot(mounted, "one")
    run("pwrite", "w", "after ", 0)
    run("pwrite", "w", "grown", 100_000)
    assert (first / name).read_bytes() == b"before"
    assert (mounted.subtree("b") / name).read_text()[:6] == "after "
    second = snapshot(mounted, "two")
    run("truncate", name, 3)
    mounted.cli("branch create", "c", "--from", "b")
    run("pwrite", "w", "!", 0)
    other = mounted.subtree("c") / name
    assert (first / name).read_bytes() == b"before"
    assert (second / name).stat().st_size == 100_005
    assert other.read_bytes() == b"aft"
    other.write_text("of the other branch")
    assert run("pread", "w", 100, 0) == "!ft"
    assert run("read", name) == (mounted.subtree("b") / name).read_text() == "!ft"
    assert (first / name).read_bytes() == b"before"
    run("close", "w")
    run("append", name, "closed")
    assert (mounted.subtree("b") / name).read_text() == "!ftclosed"
    assert other.read_text() == "of the other branch"
    sound(mounted)


def test_unlinked_and_replaced_files_stay_with_their_descriptors(mounted: Mounted, io: str) -> None:
    mounted.cli("branch create", "b")
    run = start(mounted, io)
    run("write", "file", "first")
    run("open", "w", "file", os.O_RDWR)
    run("unlink", "file")
    run("write", "file", "second")
    snapshot(mounted, "one")
    run("pwrite", "w", "FIRST more", 0)
    assert run("pread", "w", 100, 0) == "FIRST more"
    assert run("fstat", "w")[1:] == [0, 10]
    assert run("read", "file") == "second"
    run("open", "v", "file", os.O_RDWR)
    run("write", "third", "third")
    run("rename", "third", "file")
    run("pwrite", "v", "SECOND", 0)
    assert run("pread", "v", 100, 0) == "SECOND"
    assert run("read", "file") == "third"
    run("close", "w")
    run("close", "v")
    sound(mounted)


def test_acknowledged_data_is_there_after_the_daemon_was_killed(mounted: Mounted, io: str) -> None:
    mounted.cli("branch create", "b")
    run = start(mounted, io)
    run("open", "w", "file", os.O_RDWR)
    run("pwrite", "w", "before", 0)
    snapshot(mounted, "one")
    run("pwrite", "w", "after", 0)
    run("write", "sub/made", "made")
    run("rename", "sub/deep", "moved")
    run("chmod", "moved/leaf", 0o600)
    mounted.kill()
    for process in mounted.started:
        process.kill()
        process.wait()
    mounted.mount()
    tree, kept = mounted.subtree("b"), mounted.path / ".agentfs" / "snapshots" / "one"
    assert (tree / "file").read_text() == "aftere"
    assert (kept / "file").read_text() == "before"
    assert (tree / "sub" / "made").read_text() == "made"
    assert (tree / "moved" / "leaf").stat().st_mode & 0o777 == 0o600
    assert not (tree / "sub" / "deep").exists()
    sound(mounted)
