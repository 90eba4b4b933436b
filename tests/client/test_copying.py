"""Copying content: which way is tried, which is not tried again, and what counts as data."""

import errno
import fcntl
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentfs_host import copying

MIB = 1 << 20


class Pair:
    """A source with a hole in the middle and one at the end, and an empty target."""

    def __init__(self, base: Path) -> None:
        self.source = os.open(base / "source", os.O_RDWR | os.O_CREAT)
        self.target = os.open(base / "target", os.O_RDWR | os.O_CREAT)
        os.pwrite(self.source, os.urandom(MIB), 0)
        os.pwrite(self.source, os.urandom(MIB), 8 * MIB)
        os.ftruncate(self.source, 16 * MIB)

    def same(self) -> bool:
        return all(os.pread(self.source, MIB, start) == os.pread(self.target, MIB, start) for start in range(0, 17 * MIB, MIB))

    def close(self) -> None:
        os.close(self.source)
        os.close(self.target)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    made.close()


@pytest.fixture
def reflinks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What FICLONE shall answer, one number for each try; every try is taken off."""
    answers: list[int] = []

    def ioctl(*_: object) -> int:
        number = answers.pop(0)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "ioctl", ioctl)
    return answers


@pytest.mark.parametrize("answer", [errno.EXDEV, errno.EOPNOTSUPP, errno.ENOTTY, errno.ENOSYS])
def test_a_device_without_reflink_is_not_asked_again(pair: Pair, reflinks: list[int], answer: int) -> None:
    reflinks.append(answer)  # a second try would find the list empty
    known: set[int] = set()
    for _ in range(2):
        os.ftruncate(pair.target, 0)
        copying.copy_content(pair.source, pair.target, known)
        assert pair.same()
    assert known == {os.fstat(pair.source).st_dev}


@pytest.mark.parametrize("answer", [errno.EINVAL, errno.EPERM, errno.ETXTBSY])
def test_one_files_refusal_says_nothing_of_its_device(pair: Pair, reflinks: list[int], answer: int) -> None:
    reflinks.append(answer)
    known: set[int] = set()
    copying.copy_content(pair.source, pair.target, known)
    assert pair.same()
    assert known == set()


def test_a_full_disk_is_no_reason_to_copy(pair: Pair, reflinks: list[int]) -> None:
    reflinks.append(errno.ENOSPC)
    with pytest.raises(OSError) as caught:
        copying.copy_content(pair.source, pair.target, set())
    assert caught.value.errno == errno.ENOSPC
    assert os.fstat(pair.target).st_size == 0


@pytest.mark.parametrize("by_hand", [False, True])
def test_holes_in_the_middle_and_at_the_end_are_kept(pair: Pair, by_hand: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if by_hand:
        monkeypatch.setattr(os, "copy_file_range", lambda *_: 0)  # what it says of files of /proc
    copying.copy(pair.source, pair.target)
    assert pair.same()
    assert os.fstat(pair.target).st_size == 16 * MIB
    assert copying.data_bytes(pair.target) == copying.data_bytes(pair.source) == 2 * MIB


def test_where_holes_cannot_be_found_all_is_data(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    with monkeypatch.context() as patched:
        patched.setattr(os, "lseek", refuse)
        assert copying.data_bytes(pair.source) == 16 * MIB
        copying.copy(pair.source, pair.target)
    assert pair.same()


def test_a_source_that_shrinks_meanwhile_ends_the_copy(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.copy_file_range

    def cut(*arguments: int) -> int:
        os.ftruncate(pair.source, 10)
        return real(*arguments)

    monkeypatch.setattr(os, "copy_file_range", cut)
    copying.copy(pair.source, pair.target)
    assert os.pread(pair.target, 10, 0) == os.pread(pair.source, 10, 0)


def test_data_is_counted_in_whole_pages(tmp_path: Path) -> None:
    with open(tmp_path / "f", "w+b") as file:
        assert copying.data_bytes(file.fileno()) == 0
        file.write(b"x")
        file.flush()
        assert copying.data_bytes(file.fileno()) == mmap.PAGESIZE


def test_a_write_that_is_cut_short_is_continued(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: real(fd, data[:1000], offset))
    data = os.urandom(2500)
    assert copying.write_all(pair.target, data, 7) == 2500
    assert os.pread(pair.target, 9999, 0) == b"\0" * 7 + data
