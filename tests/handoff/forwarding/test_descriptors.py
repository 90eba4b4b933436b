"""Real descriptors: what somebody gets, and what the mount, snapshots, other branches and a killed daemon make of it."""

import errno
import fcntl
import mmap
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.handoff.asking import IOC_FORWARD, Shim, ask, drop, keep
from tests.handoff.forwarding.granting import changed, done, open_fd, open_on, switch_on, tell, wait_until_nobody_has_any
from tests.mounted import Mounted, agentfsd, needs_fuse


def test_what_a_descriptor_writes_is_seen_through_the_mount_and_the_other_way_round(mounted: Mounted) -> None:
    path = mounted.path / "file1"
    assert path.stat().st_size == 6  # cached from here on
    fd, source = open_fd(mounted, "file1", os.O_RDWR)
    assert source == "own"
    for number in range(20):
        os.pwrite(fd, b"%d" % number * 5000, 0)
        assert path.stat().st_size == len(b"%d" % number) * 5000 or number == 0
        assert path.read_bytes()[:6] == (b"%d" % number * 6)[:6]
    with path.open("r+b") as file:
        file.write(b"mount")
    assert os.pread(fd, 5, 0) == b"mount"
    before = path.stat().st_mtime_ns
    time.sleep(0.02)
    os.pwrite(fd, b"x", 0)
    assert path.stat().st_mtime_ns > before
    os.ftruncate(fd, 3)
    assert path.read_bytes() == b"xou"
    assert (mounted.lower / "file1").read_bytes() == b"lower\n"


def test_a_mapping_of_a_descriptor_is_the_file(mounted: Mounted) -> None:
    fd, _ = open_fd(mounted, "file2", os.O_RDWR)
    with mmap.mmap(fd, 6) as mapped:
        drop(fd)
        mapped[:3] = b"map"
        assert (mounted.path / "file2").read_bytes() == b"maper\n"
        done(mounted, op="snapshot.create", name="mapped")
        mapped[:3] = b"two"
        assert (mounted.path / ".agentfs/snapshots/mapped/file2").read_bytes() == b"maper\n"
        time.sleep(1)  # a store in a mapping moves no time
        assert (mounted.path / "file2").read_bytes() == b"twoer\n"
        mapped[:3] = b"end"
    wait_until_nobody_has_any(mounted)
    assert (mounted.path / "file2").read_bytes() == b"ender\n"
    done(mounted, op="snapshot.delete", ref="mapped")


def test_what_a_mapping_on_the_mount_has_changed_is_in_each_new_descriptor(mounted: Mounted) -> None:
    shim, file = Shim(mounted.state / "handoff.sock"), open_on(mounted, "file4", os.O_RDWR)
    with mmap.mmap(file, 6) as mapped:
        for word in (b"one", b"two"):
            mapped[:3] = word
            fd = shim.forward(file, os.O_RDONLY)
            assert os.pread(fd, 6, 0) == word + b"er\n"
            drop(fd)
        mapped[:3] = b"end"
        fd, _ = open_fd(mounted, "file4", os.O_RDWR)
        assert os.pread(fd, 6, 0) == b"ender\n"
        os.pwrite(fd, b"by fd\n", 0)
        assert mapped[:] == b"by fd\n"
        drop(fd)
        fd = shim.forward(file, os.O_RDWR)
        assert os.pread(fd, 6, 0) == b"by fd\n"


def test_a_mapping_of_what_a_descriptor_has_written_comes_back(mounted: Mounted) -> None:
    """Nothing of the file has gone through the kernel's hands until it is mapped."""
    shim, file = Shim(mounted.state / "handoff.sock"), open_on(mounted, "new", os.O_RDWR | os.O_CREAT)
    fd = shim.forward(file, os.O_WRONLY)
    os.write(fd, b"descriptor")
    drop(fd)
    with mmap.mmap(file, 10) as mapped:
        mapped[:3] = b"map"
        assert os.read(shim.forward(file, os.O_RDONLY), 20) == b"mapcriptor"


def test_reading_gets_the_branch_its_own_and_no_change(mounted: Mounted) -> None:
    fd, source = open_fd(mounted, "file3")
    assert source == "own"
    assert os.read(fd, 10) == b"lower\n"
    (mounted.path / "file3").write_text("changed")
    assert os.pread(fd, 10, 0) == b"changed"  # an open file follows its branch
    fd2, _ = open_fd(mounted, "file4")
    assert changed(mounted) == ["file3"]
    drop(fd)
    drop(fd2)


def test_without_eager_upperization_reading_gets_the_lower_and_stores_nothing(mounted: Mounted) -> None:
    switch_on(mounted, eager_upperization="off")
    before = done(mounted, op="status")["usage"]["objects"]
    fd, source = open_fd(mounted, "file5")
    assert source == "lower"
    assert os.read(fd, 10) == b"lower\n"
    assert done(mounted, op="status")["usage"]["objects"] == before
    (mounted.path / "file5").write_text("own")
    fd2, source = open_fd(mounted, "file5")
    assert (source, os.read(fd2, 10)) == ("own", b"own")


@pytest.mark.parametrize("eager", ["on", "off"])
@pytest.mark.parametrize("branch", [None, "frozen"])
def test_nobody_makes_a_descriptor_for_reading_one_for_writing(mounted: Mounted, eager: str, branch: str | None) -> None:
    switch_on(mounted, eager_upperization=eager)
    (mounted.path / "file6").write_text("content")
    done(mounted, op="snapshot.create", name="frozen")
    fd, _ = open_fd(mounted, "file6" if branch else "file7", branch=branch)
    for attempt in (
        lambda: os.open(f"/proc/self/fd/{fd}", os.O_RDWR),
        lambda: os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_TRUNC),
        lambda: os.fchmod(fd, 0o777),
        lambda: os.utime(fd),
        lambda: os.setxattr(fd, "user.x", b"1"),
        lambda: os.fchown(fd, 1, 1),
    ):
        with pytest.raises(OSError) as refused:
            attempt()
        assert refused.value.errno == errno.EROFS
    with pytest.raises(OSError):
        os.write(fd, b"x")
    assert str(mounted.state) not in os.readlink(f"/proc/self/fd/{fd}")
    done(mounted, op="snapshot.delete", ref="frozen")


def test_a_snapshot_keeps_what_was_and_the_writer_goes_on(mounted: Mounted) -> None:
    fd, _ = open_fd(mounted, "file8", os.O_RDWR)
    reader, _ = open_fd(mounted, "file8")
    os.pwrite(fd, b"first ", 0)
    for number in range(3):
        done(mounted, op="snapshot.create", name=f"s{number}")
        os.pwrite(fd, b"%d" % number, 5)
    kept = [(mounted.path / f".agentfs/snapshots/s{number}/file8").read_bytes() for number in range(3)]
    assert kept == [b"first ", b"first0", b"first1"]
    assert (mounted.path / "file8").read_bytes() == os.pread(reader, 10, 0) == b"first2"
    done(mounted, op="branch.create", name="other")
    os.pwrite(fd, b"only main", 0)
    other, _ = open_fd(mounted, "file8", os.O_RDWR, branch="other")
    os.pwrite(other, b"OTHER", 0)
    assert (mounted.path / ".agentfs/branches/other/file8").read_bytes() == b"OTHER2"
    assert (mounted.path / "file8").read_bytes() == b"only main"
    drop(other)
    done(mounted, op="discard", ref="other")
    assert done(mounted, op="fsck")["problems"] == []


def test_a_reader_follows_its_file_across_a_snapshot(mounted: Mounted) -> None:
    reader, _ = open_fd(mounted, "file9")
    done(mounted, op="snapshot.create", name="followed")
    (mounted.path / "file9").write_text("later")
    assert os.pread(reader, 10, 0) == b"later"
    assert (mounted.path / ".agentfs/snapshots/followed/file9").read_text() == "lower\n"
    done(mounted, op="snapshot.delete", ref="followed")


def test_a_restore_leaves_the_descriptor_with_what_it_had(mounted: Mounted) -> None:
    done(mounted, op="snapshot.create", name="before")
    fd, _ = open_fd(mounted, "file10", os.O_RDWR)
    os.pwrite(fd, b"wrong ", 0)
    done(mounted, op="restore", ref="before")
    assert (mounted.path / "file10").read_text() == "lower\n"
    os.pwrite(fd, b"later ", 0)
    assert os.pread(fd, 6, 0) == b"later "
    assert (mounted.path / "file10").read_text() == "lower\n"
    assert done(mounted, op="fsck")["problems"] == []
    done(mounted, op="snapshot.delete", ref="before")


def test_a_branch_that_somebody_writes_past_is_not_merged_into(mounted: Mounted) -> None:
    done(mounted, op="branch.create", name="source")
    (mounted.path / ".agentfs/branches/source/file11").write_text("merged")
    fd, _ = open_fd(mounted, "file12", os.O_RDWR)
    os.pwrite(fd, b"held", 0)
    assert mounted.cli("merge", "source", "main", check=False).returncode == 1
    os.pwrite(fd, b"HELD", 0)
    assert (mounted.path / "file12").read_text() == "HELDr\n"
    drop(fd)
    mounted.cli("merge", "source", "main")
    assert (mounted.path / "file11").read_text() == "merged"
    assert (mounted.path / "file12").read_text() == "HELDr\n"
    done(mounted, op="discard", ref="source")


def test_appends_through_the_mount_and_by_descriptors_lose_nothing(mounted: Mounted) -> None:
    """Lines of 64 bytes: the kernel sends an append that crosses a page in two parts, and others may come in between."""
    line = "os.write(int(sys.argv[1]), sys.argv[2].encode() * 63 + b'\\n')"
    script = f"import os, sys, time\nfor n in range(400): {line}; time.sleep(2e-5)"
    fd, _ = open_fd(mounted, "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    ours = open_on(mounted, "log", os.O_WRONLY | os.O_APPEND)
    writers = []
    for number, letter in ((fd, "d"), (ours, "m"), (fd, "e")):
        os.set_inheritable(number, True)
        writers.append(subprocess.Popen([sys.executable, "-c", script, str(number), letter], pass_fds=[number]))
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    lines = (mounted.path / "log").read_text().splitlines()
    assert sorted(lines) == sorted([letter * 63 for letter in "dme" for _ in range(400)])


def test_what_is_given_up_is_closed_here_too(mounted: Mounted) -> None:
    fds = [open_fd(mounted, f"file{number}", os.O_RDWR)[0] for number in range(13, 20)]
    assert tell(mounted, op="interpose.get")["open"] >= 7
    copy = keep(os.dup(fds[0]))
    for fd in fds:
        drop(fd)
    time.sleep(1.2)
    assert done(mounted, op="status")["resources"]["forwarded"] == 1  # a duplicate counts
    drop(copy)
    wait_until_nobody_has_any(mounted)


def test_flags_are_those_of_open(mounted: Mounted) -> None:
    made, _ = open_fd(mounted, "new", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, permissions=0o640)
    os.write(made, b"one")
    os.pwrite(made, b"two", 0)  # pwrite(2): O_APPEND wins
    assert (mounted.path / "new").read_text() == "onetwo"
    assert stat.S_IMODE((mounted.path / "new").stat().st_mode) == 0o640
    assert tell(mounted, op="fd.open", path="new", flags=os.O_CREAT | os.O_EXCL | os.O_WRONLY)["code"] == "EEXIST"
    assert tell(mounted, op="fd.open", path="nothing")["code"] == "ENOENT"
    assert tell(mounted, op="fd.open", path="dir")["code"] == "EISDIR"
    assert tell(mounted, op="fd.open", path="link", flags=os.O_NOFOLLOW)["code"] == "ELOOP"
    assert tell(mounted, op="fd.open", path="../x")["code"] == "path-escape"
    assert tell(mounted, op="fd.open", path="file20", flags=3)["errno"] == errno.EINVAL
    assert tell(mounted, op="fd.open", path="file20", flags=os.O_PATH)["code"] == "not-a-file"
    through_link, _ = open_fd(mounted, "link", os.O_RDWR)
    os.write(through_link, b"LINK")
    assert (mounted.path / "file0").read_text() == "LINKr\n"
    emptied, _ = open_fd(mounted, "file21", os.O_WRONLY | os.O_TRUNC)
    assert (mounted.path / "file21").stat().st_size == 0
    os.write(emptied, b"x")
    assert fcntl.fcntl(emptied, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY


def test_unlinked_and_renamed_while_it_is_open(mounted: Mounted) -> None:
    fd, _ = open_fd(mounted, "file22", os.O_RDWR)
    os.rename(mounted.path / "file22", mounted.path / "renamed")
    os.pwrite(fd, b"follow", 0)
    assert (mounted.path / "renamed").read_text() == "follow"
    (mounted.path / "renamed").unlink()
    os.pwrite(fd, b"gone", 0)
    assert os.pread(fd, 6, 0) == b"goneow"
    assert tell(mounted, op="fd.open", path="renamed")["code"] == "ENOENT"
    drop(fd)
    wait_until_nobody_has_any(mounted)
    assert done(mounted, op="fsck")["problems"] == []


def test_what_must_not_be_forwarded_is_declined_and_unchanged(mounted: Mounted) -> None:
    path = mounted.path / "setuid"
    path.write_text("#!")
    path.chmod(0o4755)
    assert tell(mounted, op="fd.open", path="setuid", flags=os.O_RDWR | os.O_TRUNC)["code"] == "not-forwarded"
    assert path.read_text() == "#!"
    assert stat.S_IMODE(path.stat().st_mode) == 0o4755
    switch_on(mounted, max_copy_bytes="3")
    refused = tell(mounted, op="fd.open", path="file23", flags=os.O_RDWR)
    assert (refused["code"], refused["errno"]) == ("not-forwarded", errno.EFBIG)
    assert tell(mounted, op="fd.open", path="file23", no_copy=False)["code"] == "not-forwarded"
    assert open_fd(mounted, "file23", no_copy=True)[1] == "lower"
    assert changed(mounted) == ["setuid"]
    assert open_fd(mounted, "file24", os.O_WRONLY | os.O_TRUNC)[1] == "own"  # nothing to copy


def test_forwarding_is_off_until_it_is_switched_on(mounted: Mounted) -> None:
    ask(mounted.state / "control.sock", {"op": "interpose.set", "name": "enabled", "value": "off"})
    refused = tell(mounted, op="fd.open", path="made", flags=os.O_RDWR | os.O_CREAT)
    assert (refused["code"], refused["errno"]) == ("not-forwarded", errno.EPERM)
    assert not (mounted.path / "made").exists()
    with (mounted.path / "file25").open() as file, pytest.raises(PermissionError):
        Shim(mounted.state / "handoff.sock").forward(file.fileno())
    for name, value in [("enabled", "perhaps"), ("max_copy_bytes", "-1"), ("nonsense", "1"), ("min_read_bytes", "9" * 40)]:
        assert tell(mounted, op="interpose.set", name=name, value=value)["op"] == "error"
    assert tell(mounted, op="interpose.get")["settings"]["enabled"] == "off"


# -- a daemon that is killed


def test_a_killed_daemon_takes_no_descriptor_away_and_the_next_one_knows_it(tmp_path: Path) -> None:
    needs_fuse()
    mounted = Mounted(tmp_path)
    (mounted.lower / "file").write_text("lower\n")
    mounted.mount()
    try:
        switch_on(mounted)
        fd, _ = open_fd(mounted, "file", os.O_RDWR)
        new, _ = open_fd(mounted, "new", os.O_RDWR | os.O_CREAT)
        os.pwrite(fd, b"one", 0)
        os.write(new, b"acknowledged")
        mounted.kill()
        os.write(new, b", and after the kill")
        mounted.mount()
        assert (mounted.path / "file").read_text() == "oneer\n"
        assert (mounted.path / "new").read_text() == "acknowledged, and after the kill"
        assert tell(mounted, op="interpose.get")["open"] == 2
        os.pwrite(fd, b"two", 0)
        assert (mounted.path / "file").read_text() == "twoer\n"
        done(mounted, op="snapshot.create", name="s")
        os.pwrite(fd, b"xxx", 0)
        os.ftruncate(new, 1)
        assert (mounted.path / ".agentfs/snapshots/s/file").read_text() == "twoer\n"
        assert (mounted.path / ".agentfs/snapshots/s/new").read_text() == "acknowledged, and after the kill"
        assert (mounted.path / "file").read_text() == "xxxer\n"
        drop(fd)
        drop(new)
        wait_until_nobody_has_any(mounted)
        assert done(mounted, op="fsck")["problems"] == []
    finally:
        agentfsd("umount", "--lazy", str(mounted.path))


def test_the_memory_backstore_gives_nothing_out_and_says_so(tmp_path: Path) -> None:
    needs_fuse()
    mounted = Mounted(tmp_path, None, "--backstore", "memory").mount()
    try:
        told = tell(mounted, op="interpose.get")
        assert not told["possible"]
        assert "memory" in told["why"]
        (mounted.path / "file").write_text("x")
        assert tell(mounted, op="fd.open", path="file")["code"] == "not-forwarded"
        with (mounted.path / "file").open() as file, pytest.raises(OSError) as refused:
            fcntl.ioctl(file.fileno(), IOC_FORWARD, bytearray(40), True)
        assert refused.value.errno == errno.ENOTTY
    finally:
        agentfsd("umount", str(mounted.path))
