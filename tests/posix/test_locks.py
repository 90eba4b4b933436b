"""flock, fcntl and open file description locks; leases; what other processes hear of changes."""

import ctypes
import errno
import fcntl
import os
import select
import struct
import subprocess
import sys
from pathlib import Path

from tests.posix.places import call, errno_of, in_child

F_OFD_SETLK = 37
IN_MODIFY, IN_ATTRIB, IN_MOVED_FROM, IN_MOVED_TO, IN_CREATE, IN_DELETE = 0x2, 0x4, 0x40, 0x80, 0x100, 0x200


def test_flock_excludes_and_is_released_on_close(d: Path) -> None:
    one, two = os.open(d / "file", os.O_RDWR), os.open(d / "file", os.O_RDWR)
    fcntl.flock(one, fcntl.LOCK_EX)
    assert errno_of(lambda: fcntl.flock(two, fcntl.LOCK_SH | fcntl.LOCK_NB)) == errno.EWOULDBLOCK
    os.close(one)
    fcntl.flock(two, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(two)


def test_flock_shared(d: Path) -> None:
    one, two = os.open(d / "file", os.O_RDONLY), os.open(d / "file", os.O_RDONLY)
    fcntl.flock(one, fcntl.LOCK_SH)
    fcntl.flock(two, fcntl.LOCK_SH | fcntl.LOCK_NB)
    assert errno_of(lambda: fcntl.flock(two, fcntl.LOCK_EX | fcntl.LOCK_NB)) == errno.EWOULDBLOCK
    os.close(one)
    os.close(two)


def test_flock_between_processes(d: Path) -> None:
    fd = os.open(d / "file", os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)

    def attempt() -> int:
        with (d / "file").open("rb") as mine:
            return errno_of(lambda: fcntl.flock(mine, fcntl.LOCK_EX | fcntl.LOCK_NB))

    assert in_child(attempt) == errno.EWOULDBLOCK
    fcntl.flock(fd, fcntl.LOCK_UN)
    assert in_child(attempt) == 0
    os.close(fd)


def test_fcntl_locks_by_range(d: Path) -> None:
    file = (d / "big").open("r+b")
    fcntl.lockf(file, fcntl.LOCK_EX, 100, 50)

    def attempt(length: int, start: int) -> int:
        with (d / "big").open("r+b") as mine:
            return errno_of(lambda: fcntl.lockf(mine, fcntl.LOCK_EX | fcntl.LOCK_NB, length, start))

    assert in_child(lambda: attempt(10, 100)) in (errno.EACCES, errno.EAGAIN)
    assert in_child(lambda: attempt(10, 150)) == 0
    assert in_child(lambda: attempt(50, 0)) == 0
    assert in_child(lambda: attempt(0, 149)) in (errno.EACCES, errno.EAGAIN)
    fcntl.lockf(file, fcntl.LOCK_UN, 50, 50)
    assert in_child(lambda: attempt(50, 50)) == 0
    file.close()


def test_fcntl_lock_names_its_holder(d: Path) -> None:
    file = (d / "file").open("r+b")
    fcntl.lockf(file, fcntl.LOCK_EX)

    def holder() -> int:
        with (d / "file").open("r+b") as mine:
            asked = struct.pack("hhqqi", fcntl.F_WRLCK, 0, 0, 0, 0)
            kind, _, _, _, pid = struct.unpack("hhqqi", fcntl.fcntl(mine, fcntl.F_GETLK, asked))
            return pid if kind != fcntl.F_UNLCK else 0

    assert in_child(holder) == os.getpid()
    file.close()
    assert in_child(holder) == 0


def test_fcntl_lock_goes_with_any_close_by_its_process(d: Path) -> None:
    file = (d / "file").open("r+b")
    fcntl.lockf(file, fcntl.LOCK_EX)
    (d / "file").open("rb").close()

    def attempt() -> int:
        with (d / "file").open("r+b") as mine:
            return errno_of(lambda: fcntl.lockf(mine, fcntl.LOCK_EX | fcntl.LOCK_NB))

    assert in_child(attempt) == 0
    file.close()


def test_open_file_description_locks(d: Path) -> None:
    one, two = os.open(d / "file", os.O_RDWR), os.open(d / "file", os.O_RDWR)
    lock = struct.pack("hhqqi", fcntl.F_WRLCK, 0, 0, 0, 0)
    fcntl.fcntl(one, F_OFD_SETLK, lock)
    assert errno_of(lambda: fcntl.fcntl(two, F_OFD_SETLK, lock)) == errno.EAGAIN
    os.close(one)
    fcntl.fcntl(two, F_OFD_SETLK, lock)
    os.close(two)


def test_lock_survives_copy_up_and_rename(d: Path) -> None:
    fd = os.open(d / "file", os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.write(fd, b"changed")
    (d / "file").rename(d / "moved")

    def attempt() -> int:
        with (d / "moved").open("rb") as mine:
            return errno_of(lambda: fcntl.flock(mine, fcntl.LOCK_SH | fcntl.LOCK_NB))

    assert in_child(attempt) == errno.EWOULDBLOCK
    os.close(fd)
    assert in_child(attempt) == 0


def test_a_killed_process_leaves_no_lock(d: Path) -> None:
    program = (
        "import fcntl,time\nf=open('file','r+b'); fcntl.flock(f,2); fcntl.lockf(f,2); print('held',flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", program], cwd=d, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    holder.stdout.readline()
    with (d / "file").open("r+b") as file:
        assert errno_of(lambda: fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)) == errno.EWOULDBLOCK
        holder.kill()
        holder.wait()
        holder.stdout.close()
        fcntl.flock(file, fcntl.LOCK_EX)
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


class Watch:
    """inotify(7)."""

    def __init__(self, path: Path, mask: int) -> None:
        self.fd = call("inotify_init1", os.O_NONBLOCK | os.O_CLOEXEC)
        call("inotify_add_watch", self.fd, os.fsencode(path), ctypes.c_uint32(mask))

    def events(self) -> list[tuple[int, str]]:
        found = []
        while select.select([self.fd], [], [], 0.2)[0]:
            data = os.read(self.fd, 65536)
            while data:
                _, mask, _, length = struct.unpack_from("iIII", data)
                found.append((mask & 0xFFF, data[16 : 16 + length].rstrip(b"\0").decode()))
                data = data[16 + length :]
        return found

    def close(self) -> None:
        os.close(self.fd)


def test_inotify_tells_of_names_and_contents(d: Path) -> None:
    watch = Watch(d, IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_MODIFY | IN_ATTRIB)
    (d / "new").touch()
    (d / "new").write_bytes(b"x")
    (d / "new").rename(d / "newer")
    (d / "newer").unlink()
    (d / "file").write_bytes(b"changed")
    (d / "hard").chmod(0o600)
    found = watch.events()
    watch.close()
    assert found[0] == (IN_CREATE, "new")
    for event in (
        (IN_MODIFY, "new"), (IN_MOVED_FROM, "new"), (IN_MOVED_TO, "newer"), (IN_DELETE, "newer"), (IN_MODIFY, "file"),
        (IN_ATTRIB, "hard"),
    ):  # fmt: skip
        assert event in found


def test_inotify_hears_of_other_processes(d: Path) -> None:
    watch = Watch(d / "dir", IN_CREATE)
    subprocess.run(["touch", "made-elsewhere"], cwd=d / "dir", check=True)
    assert watch.events() == [(IN_CREATE, "made-elsewhere")]
    watch.close()
