"""A program that does to descriptors what Python can, and prints what it saw: the same with the preloaded library as without."""

import fcntl
import mmap
import os
import subprocess
import sys
from typing import Any

TRY_LOCK = """
import fcntl
with open("a", "r+") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        print("mine")
    except OSError as exc:
        print(exc)
"""
GET_LOCK = """
import fcntl, struct
wanted = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0)
print(struct.unpack("hhqq", fcntl.fcntl(open("a", "r+"), fcntl.F_GETLK, wanted)[:24]))
"""
SAME = "import os; a, b = os.fstat({fd}), os.stat({path!r}); print((a.st_ino, a.st_dev) == (b.st_ino, b.st_dev))"
NOT_PRELOADED = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}


def is_file(fd: int, path: str) -> bool:
    one, other = os.fstat(fd), os.stat(path)
    return (one.st_ino, one.st_dev, one.st_size, one.st_mode) == (other.st_ino, other.st_dev, other.st_size, other.st_mode)


def python(program: str, **options: Any) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, **options).stdout


def attributes() -> None:
    fd = os.open("a", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o640)
    os.write(fd, b"abc")
    print(fd, is_file(fd, "a"), os.fstat(fd).st_size)
    for name in (f"/proc/self/fd/{fd}", f"/proc/{os.getpid()}/fd/{fd}"):
        print(os.readlink(name) == os.path.realpath(name) == os.path.abspath("a"))
    os.fchmod(fd, 0o600)
    os.utime(fd, ns=(10**18, 10**18 + 1))
    print(oct(os.stat("a").st_mode), is_file(fd, "a"), os.stat("a").st_mtime_ns, os.fstat(fd).st_mtime_ns)
    os.write(fd, b"def")
    print(os.stat("a").st_mtime_ns > 10**18 + 1, os.stat("a").st_size)
    os.setxattr(fd, "user.x", b"1")
    print(os.getxattr("a", "user.x"), os.listxattr(fd), os.fstatvfs(fd)[:3] == os.statvfs("a")[:3])
    os.ftruncate(fd, 2)
    print(os.stat("a").st_size, os.pread(fd, 9, 0))
    os.fsync(fd)
    os.fdatasync(fd)
    os.close(fd)


def copies() -> None:
    fd = os.open("a", os.O_RDWR | os.O_TRUNC)
    os.write(fd, b"copied")
    copy = os.dup(fd)
    os.close(fd)
    os.dup2(copy, 40, inheritable=False)
    print(fd, copy, is_file(copy, "a"), is_file(40, "a"), os.get_inheritable(40))
    os.close(copy)
    os.set_inheritable(40, True)
    print(python(SAME.format(fd=40, path="a") + "; os.fchmod(40, 0o611)", pass_fds=[40]), oct(os.stat("a").st_mode))
    for name, flags in (("/proc/self/fd/40", os.O_RDONLY), ("/dev/fd/40", os.O_RDWR)):
        again = os.open(name, flags)
        print(is_file(again, "a"), os.read(again, 9), fcntl.fcntl(again, fcntl.F_GETFL) & os.O_ACCMODE)
        os.close(again)
    os.close(40)
    fd = os.open("a", os.O_RDWR | os.O_TRUNC)
    os.closerange(fd + 1, 5000)  # others than ours
    print(is_file(fd, "a"))
    os.close(fd)
    for number in (40, 552, 1064):
        try:
            os.close(number)
        except OSError as exc:
            print(number, exc)


def locks() -> None:
    fd = os.open("a", os.O_RDWR | os.O_TRUNC)
    fcntl.lockf(fd, fcntl.LOCK_EX)
    print(python(TRY_LOCK), python(TRY_LOCK, env=NOT_PRELOADED))
    second = os.open("a", os.O_WRONLY)  # which ends no lock
    print(python(TRY_LOCK), python(TRY_LOCK, env=NOT_PRELOADED), is_file(second, "a"))
    os.close(os.open("a", os.O_RDWR))  # which ends them all, as POSIX has it
    print(python(TRY_LOCK, env=NOT_PRELOADED))
    os.close(second)
    os.lseek(fd, 1, os.SEEK_SET)
    fcntl.lockf(fd, fcntl.LOCK_EX, 2, 0, os.SEEK_CUR)
    print(python(GET_LOCK), python(GET_LOCK, env=NOT_PRELOADED))
    os.write(fd, b"longer")
    fcntl.lockf(fd, fcntl.LOCK_UN)
    fcntl.lockf(fd, fcntl.LOCK_EX, 1, -1, os.SEEK_END)
    print(python(GET_LOCK), python(GET_LOCK, env=NOT_PRELOADED))
    os.close(fd)


def streams() -> None:
    with open("b", "w") as file:
        file.write("one\n")
    with open("b", "a") as file:
        print(file.tell())
        file.write("two\n")
    with open("b", "r+") as file:  # for both: not forwarded
        print(file.read())
    with open("b", "w+b") as raw:
        raw.truncate(100_000)
        with mmap.mmap(raw.fileno(), 0) as mapped:
            mapped[5:8] = b"map"
        print(raw.read(9), raw.seek(0, os.SEEK_END))


def children() -> None:
    with open("out", "w") as file:
        subprocess.run(["sh", "-c", "echo x; echo y >&2"], stdout=file, stderr=subprocess.STDOUT, check=True)
        subprocess.run([sys.executable, "-c", SAME.format(fd=1, path="out")], stdout=file, check=True)
    fd = os.open("spawned", os.O_WRONLY | os.O_CREAT)
    actions = [(os.POSIX_SPAWN_DUP2, fd, 1), (os.POSIX_SPAWN_CLOSE, fd)]
    program = [sys.executable, "-c", SAME.format(fd=1, path="spawned")]
    os.waitpid(os.posix_spawn(sys.executable, program, os.environ, file_actions=actions), 0)
    os.close(fd)
    fd = os.open("forked", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND)
    for number in range(5):
        child = os.fork()
        if child == 0:
            os.write(fd, b"%d\n" % (os.fstat(fd).st_ino == os.stat("forked").st_ino))
            with open(f"own{number}", "w") as file:
                file.write(str(number))
                file.flush()
                os._exit(0 if is_file(file.fileno(), f"own{number}") else 1)
        print(os.waitpid(child, 0)[1])
    for path in ("out", "spawned", "forked", "own4"):
        with open(path) as file:
            print(file.read())
    os.rename("spawned", "moved")
    with open("moved", "r+") as file:
        os.unlink("moved")
        print(os.fstat(file.fileno()).st_nlink, file.read())
    os.close(fd)


for part in (attributes, copies, locks, streams, children):
    part()
print(sorted(name for name in os.listdir("/proc/self/fd") if int(name) < 500))
