"""Random calls on a few files, and what each one answered: run twice from one seed, both must say the same.

    python twin.py SEED COUNT [all]

In the current directory, which is empty. *all*: also what file systems answer differently, such as kinds of allocation: then the
twin is the same mount without the library, else it may be a plain directory. A second process, which has no library, works on the
same files.
"""

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import mmap
import os
import random
import select
import stat
import struct
import subprocess
import sys
from collections.abc import Callable
from typing import Any

NAMES = ("a", "b", "c", "d")
SIZE = 200_000
ACCESS = (os.O_RDONLY, os.O_RDONLY, os.O_WRONLY, os.O_WRONLY, os.O_RDWR)
CREATING = (0, os.O_CREAT, os.O_CREAT | os.O_TRUNC, os.O_CREAT | os.O_EXCL, os.O_TRUNC)
SHOWN = os.O_ACCMODE | os.O_APPEND | os.O_DIRECT | os.O_DSYNC | os.O_NONBLOCK
KINDS = {"allocate": 0, "keep": 1, "hole": 3, "zero": 16, "zero and keep": 17, "collapse": 8, "insert": 32, "unshare": 64}
RWF = {"hipri": 1, "dsync": 2, "nowait": 8, "append": 16, "dontcache": 128}
FICLONE, FICLONERANGE, FIONREAD, FIGETBSZ, FS_IOC_FIEMAP = 0x40049409, 0x4020940D, 0x541B, 2, 0xC020660B

libc = ctypes.CDLL(None, use_errno=True)


def short(data: bytes) -> str:
    """Long data by its digest, so that a difference can be seen in one line."""
    return f"{len(data)}:{hashlib.md5(data).hexdigest()[:8]}"


class Twin:
    """``files``: what is open here, by descriptor, with the name it was opened by. Methods named do_* are the calls."""

    def __init__(self, seed: int, everything: bool) -> None:
        self.random = random.Random(seed)
        self.everything = everything
        self.files: list[tuple[int, str]] = []
        self.maps: list[mmap.mmap] = []
        kinds = ("do_", "all_") if everything else ("do_",)
        self.calls: list[Callable[[], object]] = [getattr(self, name) for name in sorted(dir(self)) if name.startswith(kinds)]
        clean = {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "AGENTFS_INTERPOSE")}
        self.peer = subprocess.Popen(
            [sys.executable, __file__, "peer"], env=clean, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, count: int) -> None:
        for number in range(count):
            call = self.random.choice(self.calls)
            self.note = ""
            try:
                answer = str(call())
            except (OSError, ValueError) as exc:
                answer = errno.errorcode.get(exc.errno or 0, "?") if isinstance(exc, OSError) else str(exc)
            print(number, call.__name__.partition("_")[2], self.note, "->", answer, flush=True)
        self.end()

    def end(self) -> None:
        for fd, _ in self.files:
            os.close(fd)
        for mapped in self.maps:
            mapped.close()
        assert self.peer.stdin is not None
        self.peer.stdin.close()
        self.peer.wait()
        for name in sorted(os.listdir(".")):
            found = os.stat(name)
            with open(name, "rb") as file:
                print(name, oct(found.st_mode), found.st_nlink, short(file.read()), sorted(os.listxattr(name)))

    # -- what a call is about

    def say(self, *words: object) -> None:
        self.note = " ".join(map(str, words))

    def name(self) -> str:
        return self.random.choice(NAMES)

    def fd(self) -> int:
        """One that is open; the first call of all opens."""
        if not self.files:
            self.files.append((os.open("a", os.O_RDWR | os.O_CREAT | os.O_TRUNC), "a"))
        place = self.random.randrange(len(self.files))
        self.say(place, self.files[place][1])
        return self.files[place][0]

    def keep(self, fd: int, name: str) -> str:
        self.files.append((fd, name))
        if len(self.files) > 10:
            os.close(self.files.pop(0)[0])
        return "ok"

    def content(self) -> bytes:
        return bytes([self.random.randrange(256)]) * self.random.choice((1, 10, 4096, 5000, 70_000))

    def offset(self) -> int:
        return self.random.choice((0, 1, 4096, 8192, self.random.randrange(SIZE)))

    # -- descriptors

    def do_open(self) -> object:
        name, flags = self.name(), self.random.choice(ACCESS) | self.random.choice(CREATING)
        flags |= self.random.choice((0, 0, 0, os.O_APPEND)) | self.random.choice((0, 0, 0, 0, os.O_SYNC, os.O_DSYNC))
        self.say(name, oct(flags))
        return self.keep(os.open(name, flags, 0o644), name)

    do_open_again = do_open_anew = do_open

    def do_close(self) -> object:
        fd = self.fd()
        self.files = [(other, name) for other, name in self.files if other != fd]
        return os.close(fd)

    def do_dup(self) -> object:
        return self.keep(os.dup(self.fd()), "dup")

    def do_dup2(self) -> object:
        old, fd = self.fd(), self.fd()
        os.dup2(old, fd)
        return fd == old

    def do_open_by_link(self) -> object:
        fd, access = self.fd(), self.random.choice(ACCESS)
        return self.keep(os.open(f"/proc/self/fd/{fd}", access), "link")

    def do_unnamed(self) -> object:
        fd = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o600)
        os.write(fd, self.content())
        name = self.name()
        self.say(name)
        self.keep(fd, name)
        os.link(f"/proc/self/fd/{fd}", name, follow_symlinks=True)
        return "linked"

    # -- bytes

    def do_write(self) -> object:
        return os.write(self.fd(), self.content())

    def do_pwrite(self) -> object:
        return os.pwrite(self.fd(), self.content(), self.offset())

    def do_writev(self) -> object:
        return os.writev(self.fd(), [self.content(), self.content()])

    def do_append(self) -> object:
        return os.pwritev(self.fd(), [self.content()], self.offset(), os.RWF_APPEND)

    def do_read(self) -> object:
        return short(os.read(self.fd(), self.random.randrange(SIZE)))

    def do_pread(self) -> object:
        return short(os.pread(self.fd(), self.random.randrange(SIZE), self.offset()))

    do_pread_again = do_pread

    def do_seek(self) -> object:
        whence = self.random.choice((os.SEEK_SET, os.SEEK_CUR, os.SEEK_END))
        return os.lseek(self.fd(), self.random.choice((0, 5, -5, 4096, SIZE)), whence)

    def do_truncate(self) -> object:
        length, fd = self.offset(), self.fd()
        return os.truncate(fd if self.random.random() < 0.5 else self.name(), length)

    def do_sendfile(self) -> object:
        out, source = self.fd(), self.fd()
        return os.sendfile(out, source, self.random.choice((None, self.offset())), self.random.randrange(SIZE))

    def do_splice(self) -> object:
        source, target = self.fd(), self.fd()
        ends = os.pipe()
        try:
            moved = os.splice(source, ends[1], 30_000, offset_src=self.random.choice((None, self.offset())))
            return moved, os.splice(ends[0], target, moved, offset_dst=self.offset()) if moved else 0
        finally:
            os.close(ends[0])
            os.close(ends[1])

    def do_copy_range(self) -> object:
        """To its end: where blocks are shared, a call may stop at the border of one."""
        source, target, length = self.fd(), self.fd(), self.random.randrange(SIZE)
        places = [self.random.choice((None, self.offset())) for _ in range(2)]
        self.say(self.note, source, length, *places)
        copied = 0
        while copied < length and (done := os.copy_file_range(source, target, length - copied, *places)):
            copied, places = copied + done, [place if place is None else place + done for place in places]
        return copied, os.lseek(source, 0, os.SEEK_CUR), os.lseek(target, 0, os.SEEK_CUR)

    def do_posix_fallocate(self) -> object:
        return os.posix_fallocate(self.fd(), self.offset(), self.random.randrange(1, SIZE))

    # -- memory

    def do_map(self) -> object:
        fd = self.fd()
        writes = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR
        size = os.fstat(fd).st_size
        if not size:
            return "empty"
        mapped = mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ | (mmap.PROT_WRITE if writes else 0))
        if writes:
            mapped[0 : min(size, 3)] = b"map"[: min(size, 3)]
        seen = short(mapped[:])
        if self.random.random() < 0.5:
            mapped.close()
        else:
            self.maps = [*self.maps[-2:], mapped]
        return seen

    def do_look_at_private_map(self) -> object:
        fd = self.fd()
        size = os.fstat(fd).st_size
        if not size:
            return "empty"
        with mmap.mmap(fd, size, mmap.MAP_PRIVATE, mmap.PROT_READ) as mapped:
            return short(mapped[:])

    def do_see_in_map(self) -> object:
        if not self.maps:
            return "none"
        mapped = self.random.choice(self.maps)
        return short(mapped[: min(len(mapped), mapped.size())])  # behind the end there is nothing to be seen

    # -- the file

    def do_stat(self) -> object:
        found = os.fstat(self.fd())
        link = os.stat(f"/proc/self/fd/{self.files[-1][0]}")
        same = os.fstat(self.files[-1][0])
        shown = stat.filemode(found.st_mode), found.st_nlink, found.st_size, found.st_uid
        return *shown, (link.st_ino, link.st_dev, link.st_size) == (same.st_ino, same.st_dev, same.st_size)

    def do_stat_name(self) -> object:
        name = self.name()
        self.say(name)
        found = os.stat(name)
        here = (os.fstat(fd) for fd, other in self.files if other == name)
        times = {one.st_mtime_ns == found.st_mtime_ns for one in here if one.st_ino == found.st_ino}
        return stat.filemode(found.st_mode), found.st_nlink, found.st_size, times

    def do_unlink(self) -> object:
        name = self.name()
        self.say(name)
        return os.unlink(name)

    def do_rename(self) -> object:
        name, other = self.name(), self.name()
        self.say(name, other)
        return os.rename(name, other)

    def do_mode(self) -> object:
        return os.chmod(self.fd(), self.random.choice((0o644, 0o600, 0o4755)))

    def do_attribute(self) -> object:
        fd = self.fd()
        os.setxattr(fd, "user.one", bytes([self.random.randrange(256)]))
        return os.getxattr(fd, "user.one"), os.listxattr(fd)

    def do_times(self) -> object:
        fd = self.fd()
        os.utime(fd, (5, self.random.randrange(10)))
        return os.fstat(fd).st_mtime

    def do_flags(self) -> object:
        fd = self.fd()
        before = fcntl.fcntl(fd, fcntl.F_GETFL)
        fcntl.fcntl(fd, fcntl.F_SETFL, before ^ self.random.choice((os.O_APPEND, os.O_NONBLOCK)))
        return oct(before & SHOWN), oct(fcntl.fcntl(fd, fcntl.F_GETFL) & SHOWN)

    def do_sync(self) -> object:
        return self.random.choice((os.fsync, os.fdatasync))(self.fd())

    # -- locks

    def do_flock(self) -> object:
        return fcntl.flock(self.fd(), self.random.choice((fcntl.LOCK_EX, fcntl.LOCK_SH, fcntl.LOCK_UN)) | fcntl.LOCK_NB)

    def do_record_lock(self) -> object:
        kind = self.random.choice((fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_SH | fcntl.LOCK_NB, fcntl.LOCK_UN))
        return fcntl.lockf(self.fd(), kind, self.random.randrange(100), self.offset(), self.random.randrange(3))

    # -- other processes

    def do_fork(self) -> object:
        fd, data = self.fd(), self.content()
        child = os.fork()
        if not child:
            status = 9
            with contextlib.suppress(OSError):
                os.write(fd, data)
                status = os.fstat(fd).st_size % 7
            os._exit(status)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), os.lseek(fd, 0, os.SEEK_CUR)

    def do_spawn(self) -> object:
        if self.random.random() < 0.7:
            return "not now"
        fd = self.fd()
        with open("/dev/null", "w") as null:
            done = subprocess.run(["sh", "-c", "echo spawned; wc -c < a"], stdout=fd, stderr=null, check=False)
        return done.returncode

    def do_ask_peer(self) -> object:
        what = self.random.choice(("read", "append", "size", "put", "locked", "cut", "hold", "held"))
        self.say(what, order := f"{what} {self.name()} {self.offset()} {self.random.choice((1, 10, 5000))}")
        assert self.peer.stdin is not None and self.peer.stdout is not None
        self.peer.stdin.write(order + "\n")
        self.peer.stdin.flush()
        return self.peer.stdout.readline().strip()

    do_ask_peer_again = do_ask_peer

    # -- what file systems differ in

    def all_open_direct(self) -> object:
        name, flags = self.name(), self.random.choice(ACCESS) | os.O_DIRECT
        return self.keep(os.open(name, flags), name)

    def all_flag_direct(self) -> object:
        fd = self.fd()
        return fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) ^ os.O_DIRECT)

    def all_seek_far(self) -> object:
        return os.lseek(self.fd(), (1 << 62) + self.random.randrange(9), os.SEEK_SET)

    def all_fallocate(self) -> object:
        kind, fd = self.random.choice(sorted(KINDS)), self.fd()
        offset, length = self.offset(), self.random.choice((1, 4096, 8192, self.random.randrange(1, SIZE)))
        self.say(kind, offset, length)
        done = libc.fallocate(fd, KINDS[kind], ctypes.c_int64(offset), ctypes.c_int64(length))
        return done or errno.errorcode.get(ctypes.get_errno()) if done else os.fstat(fd).st_size

    def all_fallocate_by_number(self) -> object:
        done = libc.syscall(285, self.fd(), 3, ctypes.c_long(4096), ctypes.c_long(4096)) if os.uname().machine == "x86_64" else 0
        return done, errno.errorcode.get(ctypes.get_errno()) if done else ""

    def all_flagged_write(self) -> object:
        kind = self.random.choice(sorted(RWF))
        self.say(kind)
        return os.pwritev(self.fd(), [self.content()], self.offset(), RWF[kind])

    def all_flagged_read(self) -> object:
        kind = self.random.choice(("hipri", "nowait", "dontcache"))
        self.say(kind)
        return os.preadv(self.fd(), [bytearray(5000)], self.offset(), RWF[kind])

    def all_clone(self) -> object:
        target, source = self.fd(), self.fd()
        if self.random.random() < 0.5:
            return fcntl.ioctl(target, FICLONE, source)
        return fcntl.ioctl(target, FICLONERANGE, struct.pack("=qQQQ", source, 0, 4096, 0))

    def all_extents(self) -> object:
        return len(fcntl.ioctl(self.fd(), FS_IOC_FIEMAP, bytes(32)))

    def all_block_size(self) -> object:
        return struct.unpack("=i", fcntl.ioctl(self.fd(), FIGETBSZ, bytes(4)))

    def all_seals(self) -> object:
        return fcntl.fcntl(self.fd(), fcntl.F_GET_SEALS)

    def all_epoll(self) -> object:
        with select.epoll() as epoll:
            epoll.register(self.fd(), select.EPOLLIN)
            return [mask for _, mask in epoll.poll(0)]


def be_peer() -> None:
    """Answers orders, a line each, as a process that has no library."""
    held: dict[str, int] = {}
    for line in sys.stdin:
        what, name, offset, length = line.split()
        try:
            print(answer(held, what, name, int(offset), int(length)), flush=True)
        except OSError as exc:
            print(errno.errorcode.get(exc.errno or 0), flush=True)


def answer(held: dict[str, int], what: str, name: str, offset: int, length: int) -> Any:
    if what == "hold":
        held[name] = os.open(name, os.O_RDWR)
        return "held"
    if what == "held":
        return (short(os.pread(held[name], SIZE, offset)), os.lseek(held[name], 0, os.SEEK_END)) if name in held else "not held"
    if what == "size":
        return os.stat(name).st_size
    fd = os.open(name, {"read": os.O_RDONLY, "append": os.O_WRONLY | os.O_APPEND}.get(what, os.O_RDWR))
    try:
        if what == "read":
            return short(os.pread(fd, SIZE, offset))
        if what == "append":
            return os.write(fd, b"p" * length)
        if what == "put":
            return os.pwrite(fd, b"P" * length, offset)
        if what == "cut":
            return os.ftruncate(fd, offset)
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 50)
        return "free"
    finally:
        os.close(fd)


if __name__ == "__main__":
    if sys.argv[1] == "peer":
        be_peer()
    else:
        Twin(int(sys.argv[1]), "all" in sys.argv[3:]).run(int(sys.argv[2]))
