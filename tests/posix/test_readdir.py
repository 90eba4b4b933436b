"""Listing directories: complete, without doubles, while entries come and go, from any position."""

import ctypes
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rounds import rounds

_libc = ctypes.CDLL(None, use_errno=True)


class Dirent(ctypes.Structure):
    _fields_ = [
        ("d_ino", ctypes.c_ulong), ("d_off", ctypes.c_long), ("d_reclen", ctypes.c_ushort), ("d_type", ctypes.c_ubyte),
        ("d_name", ctypes.c_char * 256),
    ]  # fmt: skip


_libc.opendir.restype = ctypes.c_void_p
_libc.readdir.argtypes, _libc.readdir.restype = [ctypes.c_void_p], ctypes.POINTER(Dirent)
_libc.telldir.argtypes, _libc.telldir.restype = [ctypes.c_void_p], ctypes.c_long
_libc.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]
_libc.rewinddir.argtypes = _libc.closedir.argtypes = [ctypes.c_void_p]


class Stream:
    """opendir(3) and what goes with it."""

    def __init__(self, path: Path) -> None:
        self._stream = _libc.opendir(os.fsencode(path))
        assert self._stream

    def next(self) -> Dirent | None:
        entry = _libc.readdir(self._stream)
        return entry.contents if entry else None

    def rest(self) -> list[str]:
        names = []
        while (entry := self.next()) is not None:
            names.append(entry.d_name.decode())
        return names

    def tell(self) -> int:
        position: int = _libc.telldir(self._stream)
        return position

    def seek(self, position: int) -> None:
        _libc.seekdir(self._stream, position)

    def rewind(self) -> None:
        _libc.rewinddir(self._stream)

    def close(self) -> None:
        _libc.closedir(self._stream)


SEED_NAMES = ["big", "dir", "file", "hard", "hard2", "link", "void"]


def test_lists_what_is_there_and_the_dots(d: Path) -> None:
    stream = Stream(d)
    assert sorted(stream.rest()) == [".", "..", *SEED_NAMES]
    stream.close()


def test_types_and_numbers_agree_with_stat(d: Path) -> None:
    os.mkfifo(d / "pipe")
    stream = Stream(d)
    while (entry := stream.next()) is not None:
        found = os.lstat(os.path.join(d, entry.d_name.decode()))
        assert entry.d_type << 12 == stat.S_IFMT(found.st_mode), entry.d_name
        assert entry.d_ino == found.st_ino, entry.d_name
    stream.close()


def test_changes_show_at_once(d: Path) -> None:
    assert sorted(os.listdir(d)) == SEED_NAMES
    (d / "new").touch()
    (d / "file").unlink()
    (d / "big").rename(d / "renamed")
    assert sorted(os.listdir(d)) == ["dir", "hard", "hard2", "link", "new", "renamed", "void"]
    (d / "file").mkdir()
    assert sorted(os.listdir(d)) == ["dir", "file", "hard", "hard2", "link", "new", "renamed", "void"]


def test_rewind_shows_what_came_since(d: Path) -> None:
    stream = Stream(d)
    stream.rest()
    (d / "new").touch()
    (d / "file").unlink()
    stream.rewind()
    assert sorted(stream.rest()) == sorted([".", "..", "new", *SEED_NAMES[:2], *SEED_NAMES[3:]])
    stream.close()


def test_telldir_and_seekdir_find_their_place(d: Path) -> None:
    for number in range(300):
        (d / "void" / f"n{number}").touch()
    stream = Stream(d / "void")
    marks: list[tuple[int, str]] = []
    while True:
        position, entry = stream.tell(), stream.next()
        if entry is None:
            break
        marks.append((position, entry.d_name.decode()))
    assert len(marks) == 302
    for position, name in [*marks[::37], marks[-1], marks[0]]:
        stream.seek(position)
        entry = stream.next()
        assert entry is not None
        assert entry.d_name.decode() == name
    stream.close()


def test_no_entry_twice_or_missed_while_others_come_and_go(d: Path) -> None:
    steady = {f"steady{number}" for number in range(400)}
    for name in steady:
        (d / "void" / name).touch()
    program = (
        "import os,sys\n"
        "print('on', flush=True)\n"
        "n=0\n"
        "while not os.path.exists('../stop'):\n"
        "    n+=1; name=f'moving{n%50}'\n"
        "    open(name,'w').close(); os.rename(name,name+'x'); os.unlink(name+'x')\n"
    )
    mover = subprocess.Popen([sys.executable, "-c", program], cwd=d / "void", stdout=subprocess.PIPE)
    assert mover.stdout is not None
    mover.stdout.readline()
    try:
        for _ in range(40):
            stream = Stream(d / "void")
            names = stream.rest()
            stream.close()
            assert len(names) == len(set(names))
            assert steady <= set(names)
    finally:
        (d / "stop").touch()
        assert mover.wait() == 0
        mover.stdout.close()


def test_removing_while_listing_removes_all(d: Path) -> None:
    for number in range(500):
        (d / "void" / f"n{number}").touch()
    stream, seen = Stream(d / "void"), 0
    while (entry := stream.next()) is not None:
        name = entry.d_name.decode()
        if name not in (".", ".."):
            (d / "void" / name).unlink()
            seen += 1
    stream.close()
    assert seen == 500
    (d / "void").rmdir()


def test_two_streams_do_not_disturb_each_other(d: Path) -> None:
    one, two = Stream(d), Stream(d)
    first = one.next()
    assert first is not None
    name = first.d_name.decode()
    everything = two.rest()
    assert sorted([name, *one.rest()]) == sorted(everything)
    one.close()
    two.close()


def test_listing_by_descriptor_starts_anew_each_time(d: Path) -> None:
    fd = os.open(d, os.O_RDONLY)
    assert sorted(os.listdir(fd)) == SEED_NAMES
    assert sorted(os.listdir(fd)) == SEED_NAMES
    os.close(fd)


@pytest.mark.parametrize("place", ["ext4", "native-after-snapshot"])
def test_a_directory_of_very_many_entries(d: Path) -> None:
    count, fd = rounds("names in a directory", 3_000, 100_000), os.open(d / "void", os.O_RDONLY)
    for number in range(count):
        os.symlink("x", f"n{number}", dir_fd=fd)
    names = os.listdir(fd)
    assert len(names) == count
    assert set(names) == {f"n{number}" for number in range(count)}
    assert os.readlink(f"n{count - 1}", dir_fd=fd) == "x"
    for number in range(0, count, 2):
        os.unlink(f"n{number}", dir_fd=fd)
    assert len(os.listdir(fd)) == count // 2
    os.close(fd)
