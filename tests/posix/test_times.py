"""Timestamps, to the nanosecond: set by hand, and moved by what moves them."""

import ctypes
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.posix.places import call

LONG_AGO = 10**18 + 123_456_789


def reset(path: Path) -> os.stat_result:
    os.utime(path, ns=(LONG_AGO, LONG_AGO), follow_symlinks=False)
    return path.lstat()


def moved(path: Path, work: Callable[[], object]) -> str:
    """Which of a(ccess), m(odify), c(hange) time *work* moves."""
    before = reset(path)
    time.sleep(0.02)  # the kernel's clock for files ticks every few milliseconds
    work()
    after = path.lstat()
    return "".join(
        letter
        for letter, old, new in (
            ("a", before.st_atime_ns, after.st_atime_ns),
            ("m", before.st_mtime_ns, after.st_mtime_ns),
            ("c", before.st_ctime_ns, after.st_ctime_ns),
        )
        if old != new
    )


def test_utime_to_the_nanosecond(d: Path) -> None:
    for path in (d / "file", d / "dir", d / "link"):
        os.utime(path, ns=(LONG_AGO, LONG_AGO + 7), follow_symlinks=False)
        found = path.lstat()
        assert (found.st_atime_ns, found.st_mtime_ns) == (LONG_AGO, LONG_AGO + 7)


def test_utime_of_far_away_years(d: Path) -> None:
    for second in (0, 1, -1, -(2**31), 2**31, 2**33):
        os.utime(d / "file", ns=(second * 10**9, second * 10**9))
        assert (d / "file").stat().st_mtime_ns == second * 10**9


def test_utime_of_one_leaves_the_other(d: Path) -> None:
    reset(d / "file")
    utime_omit, utime_now = (1 << 30) - 2, (1 << 30) - 1
    times = (ctypes.c_long * 4)(0, utime_omit, 5, 6)
    call("utimensat", -100, os.fsencode(d / "file"), times, 0)
    assert ((d / "file").stat().st_atime_ns, (d / "file").stat().st_mtime_ns) == (LONG_AGO, 5 * 10**9 + 6)
    times = (ctypes.c_long * 4)(0, utime_now, 0, utime_omit)
    call("utimensat", -100, os.fsencode(d / "file"), times, 0)
    assert abs((d / "file").stat().st_atime - time.time()) < 60
    assert (d / "file").stat().st_mtime_ns == 5 * 10**9 + 6


def test_what_moves_the_times_of_a_file(d: Path) -> None:
    file = d / "file"

    def write() -> None:
        with file.open("r+b") as opened:
            opened.write(b"X")

    assert moved(file, write) == "mc"
    assert moved(file, lambda: file.chmod(0o600)) == "c"
    assert moved(file, lambda: os.chown(file, -1, os.getegid())) == "c"
    assert moved(file, lambda: os.link(file, d / "file2")) == "c"
    assert moved(file, (d / "file2").unlink) == "c"
    assert moved(file, lambda: os.truncate(file, 3)) == "mc"
    assert moved(file, lambda: os.truncate(file, 3)) == "mc"
    assert moved(file, lambda: os.close(os.open(file, os.O_WRONLY | os.O_TRUNC))) == "mc"
    assert moved(file, file.stat) == ""
    assert moved(file, lambda: os.close(os.open(file, os.O_RDWR))) == ""
    assert moved(file, lambda: os.setxattr(file, "user.x", b"")) == "c"


def test_what_moves_the_times_of_a_directory(d: Path) -> None:
    void = d / "void"
    assert moved(void, (void / "f").touch) == "mc"
    assert moved(void, (void / "s").mkdir) == "mc"
    assert moved(void, lambda: (void / "l").symlink_to("f")) == "mc"
    assert moved(void, lambda: os.link(void / "f", void / "h")) == "mc"
    assert moved(void, lambda: (void / "f").rename(void / "g")) == "mc"
    assert moved(void, (void / "g").unlink) == "mc"
    assert moved(void, (void / "s").rmdir) == "mc"
    assert moved(void, lambda: (void / "h").write_bytes(b"content")) == ""
    assert moved(void, lambda: void.chmod(0o700)) == "c"


def test_a_first_change_keeps_the_times_it_does_not_touch(d: Path) -> None:
    before = (d / "big").stat()
    (d / "big").chmod(0o600)
    after = (d / "big").stat()
    assert (after.st_atime_ns, after.st_mtime_ns) == (before.st_atime_ns, before.st_mtime_ns)
    directory = (d / "dir").stat()
    (d / "dir" / "inner").chmod(0o600)
    assert (d / "dir").stat().st_mtime_ns == directory.st_mtime_ns


def test_reading_moves_atime_as_relatime_does(d: Path, keeps_atime: bool) -> None:
    if not keeps_atime:
        pytest.skip("in zero-message mode reading a file asks nobody, as under noatime")
    for content in (b"new", b"n" * 100_000):
        (d / "file").write_bytes(content)
        os.utime(d / "file", ns=(LONG_AGO, LONG_AGO + 10**9))
        written = (d / "file").stat()
        time.sleep(0.02)
        (d / "file").read_bytes()
        first = (d / "file").stat()
        assert first.st_atime > time.time() - 60
        assert (first.st_mtime_ns, first.st_ctime_ns) == (LONG_AGO + 10**9, written.st_ctime_ns)
        time.sleep(0.02)
        (d / "file").read_bytes()
        assert (d / "file").stat().st_atime_ns == first.st_atime_ns  # once after a change is enough


def test_reading_with_noatime_moves_nothing(d: Path) -> None:
    (d / "file").write_bytes(b"new")
    os.utime(d / "file", ns=(LONG_AGO, LONG_AGO + 10**9))
    fd = os.open(d / "file", os.O_RDONLY | os.O_NOATIME)
    os.read(fd, 10)
    os.close(fd)
    assert (d / "file").stat().st_atime_ns == LONG_AGO


def test_times_never_run_backwards(d: Path) -> None:
    last = 0
    for number in range(30):
        (d / "file").write_bytes(b"x" * number)
        (d / "file").chmod(0o600 + number % 7)
        found = (d / "file").stat()
        assert found.st_mtime_ns <= found.st_ctime_ns
        assert found.st_ctime_ns >= last
        last = found.st_ctime_ns


def test_new_files_carry_the_present(d: Path) -> None:
    before = time.time_ns() - 20_000_000
    (d / "new").touch()
    (d / "newdir").mkdir()
    (d / "newlink").symlink_to("x")
    for name in ("new", "newdir", "newlink"):
        found = (d / name).lstat()
        assert before <= found.st_atime_ns == found.st_mtime_ns == found.st_ctime_ns <= time.time_ns()
