"""flock, fcntl and open file description locks; leases; what other processes hear of changes."""

import ctypes
import errno
import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

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


def _lock(kind: int, start: int = 0, length: int = 0) -> bytes:
    return struct.pack("hhqqi", kind, 0, start, length, 0)


def _waiter(d: Path, program: str, *fds: int) -> "subprocess.Popen[bytes]":
    """A process that says what it is about to wait for."""
    made = subprocess.Popen(
        [sys.executable, "-c", f"import errno,fcntl,os,signal,struct,sys\n{program}"],
        cwd=d, pass_fds=fds, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
    )  # fmt: skip
    assert made.stdout is not None
    assert made.stdout.readline() == b"ready\n"
    return made


def _is_waiting(process: "subprocess.Popen[bytes]") -> bool:
    """Whether it sleeps in a system call, and goes on to."""
    for _ in range(5):
        time.sleep(0.02)
        state = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
        if process.poll() is not None or state not in "SD":
            return False
    return True


def _end(process: "subprocess.Popen[bytes]") -> bytes:
    said, _ = process.communicate(timeout=20)
    return said


@pytest.mark.parametrize("how", ["fcntl.flock(f, 2)", "fcntl.lockf(f, 2)"])
def test_a_waiter_gets_the_lock_when_it_is_given_back(d: Path, how: str) -> None:
    with (d / "file").open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        fcntl.lockf(file, fcntl.LOCK_EX)
        waiter = _waiter(d, f"f=open('file','r+b'); print('ready',flush=True); {how}; print('got it')")
        assert _is_waiting(waiter)
        fcntl.flock(file, fcntl.LOCK_UN)
        fcntl.lockf(file, fcntl.LOCK_UN)
        assert _end(waiter) == b"got it\n"


@pytest.mark.parametrize("how", ["fcntl.flock(f, 2)", "fcntl.lockf(f, 2)"])
def test_a_signal_ends_waiting(d: Path, how: str) -> None:
    with (d / "file").open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        fcntl.lockf(file, fcntl.LOCK_EX)
        program = f"f=open('file','r+b'); print('ready',flush=True)\ntry: {how}\nexcept KeyboardInterrupt: print('interrupted')"
        waiter = _waiter(d, program)
        assert _is_waiting(waiter)
        waiter.send_signal(signal.SIGINT)
        assert _end(waiter) == b"interrupted\n"
    assert in_child(lambda: _attempt(d)) == 0


@pytest.mark.parametrize("how", ["fcntl.flock(f, 2)", "fcntl.lockf(f, 2)"])
def test_a_killed_waiter_is_no_more_in_the_way(d: Path, how: str) -> None:
    file = (d / "file").open("r+b")
    fcntl.flock(file, fcntl.LOCK_EX)
    fcntl.lockf(file, fcntl.LOCK_EX)
    waiter = _waiter(d, f"f=open('file','r+b'); print('ready',flush=True); {how}")
    assert _is_waiting(waiter)
    waiter.kill()
    _end(waiter)
    file.close()
    assert in_child(lambda: _attempt(d)) == 0


def _attempt(d: Path) -> int:
    with (d / "file").open("r+b") as mine:
        return errno_of(lambda: fcntl.flock(mine, fcntl.LOCK_EX | fcntl.LOCK_NB)) or errno_of(
            lambda: fcntl.lockf(mine, fcntl.LOCK_EX | fcntl.LOCK_NB)
        )


def test_two_who_wait_for_each_other_are_told(d: Path) -> None:
    file = (d / "file").open("r+b")
    fcntl.lockf(file, fcntl.LOCK_EX, 1, 0)
    waiter = _waiter(
        d, "f=open('file','r+b'); fcntl.lockf(f,2,1,1); print('ready',flush=True); fcntl.lockf(f,2,1,0); print('got it')"
    )
    assert _is_waiting(waiter)
    assert errno_of(lambda: fcntl.lockf(file, fcntl.LOCK_EX, 1, 1)) == errno.EDEADLK
    file.close()
    assert _end(waiter) == b"got it\n"


def test_open_file_descriptions_that_wait_for_each_other_wait_on(d: Path) -> None:
    """They have no owner who could be asleep: another process may give the lock back."""
    one, two = os.open(d / "file", os.O_RDWR), os.open(d / "file", os.O_RDWR)
    fcntl.fcntl(one, F_OFD_SETLK, _lock(fcntl.F_WRLCK, 0, 1))
    fcntl.fcntl(two, F_OFD_SETLK, _lock(fcntl.F_WRLCK, 1, 1))
    waiters = []
    for fd, start in ((one, 1), (two, 0)):
        program = f"print('ready',flush=True); fcntl.fcntl({fd},38,struct.pack('hhqqi',1,0,{start},1,0)); print('got it')"
        waiters.append(_waiter(d, program, fd))
    assert all(map(_is_waiting, waiters))
    fcntl.fcntl(two, F_OFD_SETLK, _lock(fcntl.F_UNLCK, 1, 1))
    assert _end(waiters[0]) == b"got it\n"
    fcntl.fcntl(one, F_OFD_SETLK, _lock(fcntl.F_UNLCK))
    assert _end(waiters[1]) == b"got it\n"
    os.close(one)
    os.close(two)


@pytest.mark.parametrize("flags", [os.O_RDWR, os.O_RDONLY, os.O_WRONLY], ids=["rw", "r", "w"])
def test_a_lock_ends_with_its_process_and_not_with_who_shares_the_open(d: Path, flags: int) -> None:
    kind = fcntl.F_RDLCK if flags == os.O_RDONLY else fcntl.F_WRLCK
    fd = os.open(d / "file", flags)
    program = (
        f"fcntl.fcntl({fd},{fcntl.F_SETLK},struct.pack('hhqqi',{kind},0,0,0,0)); print('held',flush=True); sys.stdin.read(1)"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", f"import fcntl,struct,sys\n{program}"], pass_fds=[fd], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, cwd=d, bufsize=0,
    )  # fmt: skip
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    mine = os.open(d / "file", os.O_RDWR)
    assert errno_of(lambda: fcntl.fcntl(mine, F_OFD_SETLK, _lock(fcntl.F_WRLCK))) == errno.EAGAIN
    holder.kill()
    _end(holder)
    for _ in range(100):  # a process forked now may be the same owner to the kernel
        if not (found := errno_of(lambda: fcntl.fcntl(mine, F_OFD_SETLK, _lock(fcntl.F_WRLCK)))):
            break
        time.sleep(0.02)
    assert found == 0
    os.close(mine)
    os.close(fd)


@pytest.mark.parametrize("flags", [os.O_RDWR, os.O_RDONLY], ids=["rw", "r"])
def test_a_lock_of_an_open_file_description_stays_with_who_shares_it(d: Path, flags: int) -> None:
    fd = os.open(d / "file", flags)
    lock = _lock(fcntl.F_RDLCK if flags == os.O_RDONLY else fcntl.F_WRLCK)
    program = f"import fcntl; fcntl.fcntl({fd},{F_OFD_SETLK},{lock!r})"
    subprocess.run([sys.executable, "-c", program], pass_fds=[fd], cwd=d, check=True)
    time.sleep(0.05)
    assert in_child(lambda: _attempt(d)) == errno.EAGAIN
    os.close(fd)
    assert in_child(lambda: _attempt(d)) == 0


def test_closing_a_shared_open_frees_what_its_process_has_locked(d: Path) -> None:
    fd = os.open(d / "file", os.O_RDWR)
    fcntl.lockf(fd, fcntl.LOCK_EX)
    child = subprocess.Popen([sys.executable, "-c", "input()"], pass_fds=[fd], cwd=d, stdin=subprocess.PIPE)
    os.close(fd)
    assert in_child(lambda: _attempt(d)) == 0
    child.communicate(b"\n")


def test_a_removed_file_stays_locked(d: Path) -> None:
    one = os.open(d / "file", os.O_RDWR)
    two = os.open(d / "file", os.O_RDWR)
    fcntl.flock(one, fcntl.LOCK_EX)
    (d / "file").unlink()
    assert errno_of(lambda: fcntl.flock(two, fcntl.LOCK_EX | fcntl.LOCK_NB)) == errno.EWOULDBLOCK
    (d / "file").write_bytes(b"another")
    assert in_child(lambda: _attempt(d)) == 0
    os.close(one)
    fcntl.flock(two, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(two)


@pytest.mark.parametrize("how", ["flock", "lockf"])
def test_counters_under_a_lock_lose_nothing(d: Path, how: str) -> None:
    program = (
        f"import fcntl,os\nf=os.open('counter',os.O_RDWR)\nfor _ in range(100):\n fcntl.{how}(f,2)\n"
        " n=int(os.pread(f,20,0) or 0)\n os.pwrite(f,b'%d'%(n+1),0)\n"
        f" fcntl.{how}(f,8)"
    )
    (d / "counter").write_bytes(b"0")
    running = [subprocess.Popen([sys.executable, "-c", program], cwd=d) for _ in range(4)]
    assert [process.wait() for process in running] == [0] * 4
    assert (d / "counter").read_bytes() == b"400"


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
