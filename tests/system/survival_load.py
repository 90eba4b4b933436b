"""A program that notices if its daemon is killed: every operation once, with what it has open. ``DIRECTORY SECONDS``

It prints `holds` once it holds everything, and in the end how many rounds it made, and the longest of them in seconds.
"""

import fcntl
import mmap
import os
import sys
import time
from pathlib import Path
from typing import NamedTuple

PAGE = 4096


class Held(NamedTuple):
    """What stays open all the time."""

    log: int
    locked: int
    nameless: int
    unlinked: int
    removed_directory: int
    map: mmap.mmap
    lower: int


def hold(workspace: Path) -> Held:
    """Open what must outlive the daemon. The workspace's file ``lower`` is removed while it is open."""
    locked = os.open("locked", os.O_RDWR | os.O_CREAT)
    fcntl.lockf(locked, fcntl.LOCK_EX, 10, 0)
    fcntl.flock(os.open("flocked", os.O_RDWR | os.O_CREAT), fcntl.LOCK_EX)
    nameless = os.open(".", os.O_TMPFILE | os.O_RDWR)
    os.write(nameless, b"nameless")
    unlinked = os.open("unlinked", os.O_RDWR | os.O_CREAT)
    os.write(unlinked, b"unlinked")
    os.unlink("unlinked")
    os.mkdir("removed")
    removed = os.open("removed", os.O_RDONLY | os.O_DIRECTORY)
    os.rmdir("removed")
    mapped = os.open("mapped", os.O_RDWR | os.O_CREAT)
    os.ftruncate(mapped, PAGE)
    log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    lower = os.open(workspace / "lower", os.O_RDONLY)
    os.unlink(workspace / "lower")
    return Held(log, locked, nameless, unlinked, removed, mmap.mmap(mapped, PAGE), lower)


def check(held: Held, here: str, number: int) -> None:
    """Check that all is as it was."""
    assert os.getcwd() == here
    assert os.pread(held.nameless, 20, 0) == b"nameless"
    assert os.pread(held.unlinked, 20, 0) == b"unlinked"
    assert os.fstat(held.unlinked).st_nlink == 0
    assert os.listdir(held.removed_directory) == []
    assert os.pread(held.lower, 20, 0) == b"of the lower\n"
    if number:
        assert held.map[(number - 1) % PAGE] == (number - 1) % 256
    held.map[number % PAGE] = number % 256
    if number % 10 == 0:
        assert refused("locked", fcntl.lockf)
        assert refused("flocked", fcntl.flock)


def refused(name: str, lock: object) -> bool:
    """Whether another process gets no lock."""
    pid = os.fork()
    if pid == 0:
        try:
            lock(os.open(name, os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB)  # type: ignore[operator]
        except BlockingIOError:
            os._exit(0)
        os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


def change(held: Held, number: int) -> None:
    """Make changes that cannot be made twice."""
    text = str(number)
    file = os.open(f"file{text}", os.O_RDWR | os.O_CREAT | os.O_EXCL)
    os.write(file, text.encode())
    os.link(f"file{text}", f"link{text}")
    os.unlink(f"file{text}")
    os.symlink(text, f"symlink{text}")
    assert os.readlink(f"symlink{text}") == text
    os.unlink(f"symlink{text}")
    os.setxattr(f"link{text}", "user.once", b"1", os.XATTR_CREATE)
    os.removexattr(f"link{text}", "user.once")
    os.mkdir("one")
    directory = os.open("one", os.O_RDONLY | os.O_DIRECTORY)
    os.mkdir("one/inside")
    inner = os.open("inside/file", os.O_CREAT | os.O_RDWR | os.O_EXCL, dir_fd=directory)
    os.write(inner, b"inner")
    os.rename("one", "two")
    assert os.listdir("two") == ["inside"]
    os.unlink("inside/file", dir_fd=directory)
    os.rmdir("two/inside")
    os.rmdir("two")
    assert os.pread(inner, 20, 0) == b"inner"
    os.close(inner)
    os.close(directory)
    os.rename(f"link{text}", f"kept{number % 5}")
    assert os.pread(file, 20, 0) == text.encode()
    os.close(file)
    assert Path(f"kept{number % 5}").read_text() == text
    os.write(held.log, f"{number}\n".encode())


def main(workspace: Path, seconds: float) -> None:
    here = str(workspace / f"of-{os.getpid()}")
    os.mkdir(here)
    os.chdir(here)
    for number in range(300):
        Path(f"listed{number}").touch()
    held = hold(workspace)
    listing = os.scandir(".")
    seen = [next(listing).name for _ in range(20)]
    print("holds", flush=True)
    number, longest, end = 0, 0.0, time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.monotonic()
        check(held, here, number)
        change(held, number)
        longest = max(longest, time.monotonic() - began)
        number += 1
    assert Path("log").read_text().split() == [str(each) for each in range(number)]
    seen += [entry.name for entry in listing]
    assert len(set(seen)) == len(seen)
    assert {f"listed{each}" for each in range(300)} <= set(seen)
    names = {name for name in os.listdir(".") if not name.startswith("listed")}
    assert names == {"locked", "flocked", "mapped", "log", *(f"kept{each}" for each in range(min(number, 5)))}
    os.link(f"/proc/self/fd/{held.nameless}", "named", dst_dir_fd=os.open(".", os.O_RDONLY), follow_symlinks=True)
    assert Path("named").read_text() == "nameless"
    print(number, f"{longest:.3f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
