"""Calls on one forwarded file each, whose answers an object of the state directory would give otherwise than the mount does.

    python answers.py

Prints for each call its name and what it said. The current directory holds "large", of a size that is forwarded for reading.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import select
import stat
import struct
import subprocess
import sys
from collections.abc import Callable

NEW = os.O_CREAT | os.O_TRUNC
FICLONE, FS_IOC_FIEMAP, RWF_DONTCACHE = 0x40049409, 0xC020660B, 128
NUMBERS = {"x86_64": (285, 5), "aarch64": (47, 80)}  # fallocate and fstat

libc = ctypes.CDLL(None, use_errno=True)


def said(call: Callable[..., object], *arguments: object) -> object:
    try:
        return call(*arguments)
    except OSError as exc:
        return errno.errorcode[exc.errno or 0]


def make(name: str, flags: int = os.O_RDWR, content: bytes = b"0123456789" * 1000) -> int:
    fd = os.open(name, flags | NEW, 0o644)
    os.write(fd, content)
    return fd


def uninterposed() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "AGENTFS_INTERPOSE")}


def outside(script: str) -> str:
    """What a shell says that has no library."""
    done = subprocess.run(["sh", "-c", script], env=uninterposed(), capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def allocation() -> object:
    fd, found = make("allocation"), []
    for mode in (0, 1, 3, 8, 16, 17, 32, 64):
        done = libc.fallocate(fd, mode, ctypes.c_int64(4096), ctypes.c_int64(4096))
        found.append((mode, done and errno.errorcode[ctypes.get_errno()], os.fstat(fd).st_size))
    return found


def allocation_by_number() -> object:
    fd = make("allocation_by_number")
    number = NUMBERS.get(os.uname().machine, (0, 0))[0]
    done = libc.syscall(ctypes.c_long(number), fd, 8, ctypes.c_long(4096), ctypes.c_long(4096)) if number else 0
    return done and errno.errorcode[ctypes.get_errno()]


def status_by_number() -> object:
    fd, found = make("status_by_number"), ctypes.create_string_buffer(256)
    number = NUMBERS.get(os.uname().machine, (0, 0))[1]
    if number:
        libc.syscall(ctypes.c_long(number), fd, found)
        return struct.unpack_from("QQ", found) == (os.stat("status_by_number").st_dev, os.stat("status_by_number").st_ino)
    return True


def clone() -> object:
    fd, other = make("clone"), make("clone-source")
    sources = other, os.open("large", os.O_RDONLY), os.open("/etc/passwd", os.O_RDONLY)
    return [said(fcntl.ioctl, fd, FICLONE, source) for source in sources]


def extents() -> object:
    return said(fcntl.ioctl, make("extents"), FS_IOC_FIEMAP, bytes(32))


def flags_of_a_write() -> object:
    fd = make("flags_of_a_write")
    return [said(os.pwritev, fd, [b"x"], -1, flags) for flags in (RWF_DONTCACHE, os.RWF_DSYNC, os.RWF_APPEND)], os.lseek(fd, 0, 1)


def flags_of_a_read() -> object:
    fd = os.open("large", os.O_RDONLY)
    return [said(os.preadv, fd, [bytearray(10)], 0, flags) for flags in (RWF_DONTCACHE, os.RWF_NOWAIT, os.RWF_HIPRI)]


def far_offset() -> object:
    fd = make("far_offset")
    copy = os.dup(fd)
    return os.lseek(fd, 1 << 62, os.SEEK_SET), os.lseek(copy, 0, os.SEEK_CUR), said(os.write, copy, b"x")


def direct_from_now_on() -> object:
    fd = make("direct_from_now_on")
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_DIRECT)
    return os.pwrite(fd, b"abc", 5), oct(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT), os.pread(fd, 10, 0)


def holes() -> object:
    fd = os.open("holes", os.O_RDWR | NEW)
    os.pwrite(fd, b"data", 1 << 20)
    os.ftruncate(fd, 3 << 20)
    return [(os.lseek(fd, at, whence), os.lseek(fd, 0, 1)) for at in (0, 1 << 20) for whence in (os.SEEK_DATA, os.SEEK_HOLE)]


def append_behind_what_was_just_written() -> object:
    fd, writer = os.open("append", os.O_RDWR | os.O_CREAT), os.open("append", os.O_WRONLY)
    os.write(writer, b"x" * 5000)
    return os.pwritev(fd, [b"new"], 0, os.RWF_APPEND), os.fstat(fd).st_size


def sending_a_file_to_its_own_end() -> object:
    out = make("own_end", os.O_WRONLY, b"x" * 70_000)
    return os.sendfile(out, os.open("own_end", os.O_RDWR), 0, 150_000)


def seals() -> object:
    return said(fcntl.fcntl, make("seals"), fcntl.F_GET_SEALS)


def polling() -> object:
    with select.epoll() as epoll:
        fd = make("polling")
        return said(epoll.register, fd, select.EPOLLIN), epoll.poll(0) == [(fd, select.EPOLLIN)]


def copy_of_what_was_just_written() -> object:
    source, target = make("copy_of_what_was_just_written"), os.open("copied", os.O_RDWR | os.O_CREAT)
    os.lseek(source, 5, os.SEEK_SET)
    done = os.copy_file_range(source, target, 20_000)
    return done, os.lseek(source, 0, os.SEEK_CUR), os.lseek(target, 0, os.SEEK_CUR), os.pread(target, 3, 0)


def copy_from_elsewhere() -> object:
    with open("/etc/passwd", "rb") as file:
        return said(os.copy_file_range, file.fileno(), make("copy_from_elsewhere"), 1)


def sending_what_was_just_written() -> object:
    writer = os.open("sending_what_was_just_written", os.O_WRONLY | NEW)
    reader, out = os.open("sending_what_was_just_written", os.O_RDONLY), make("sent", os.O_WRONLY, b"")
    os.write(writer, b"x" * 5000)
    return os.sendfile(out, reader, 0, 9000)


def stores_in_a_map() -> object:
    fd = make("stores_in_a_map")
    reader, found = os.open("stores_in_a_map", os.O_RDONLY), []
    found.append(os.pread(reader, 4, 0))
    with mmap.mmap(fd, 10_000) as mapped:
        mapped[:4] = b"mmap"
        found += [os.pread(reader, 4, 0), os.pread(fd, 4, 0), outside("head -c 4 stores_in_a_map")]
        os.pwrite(fd, b"fd", 0)
        found.append(mapped[:4])
        writer = os.open("stores_in_a_map", os.O_WRONLY)
        os.pwrite(writer, b"WR", 2)
        return *found, mapped[:4]


STORE = "import mmap; f = open('large', 'r+b'); m = mmap.mmap(f.fileno(), 0); m[:5] = b'other'; print(flush=True); input()"


def a_map_beside_another_process() -> object:
    """Which stores without the kernel having a reason to write it back."""
    reader = os.open("large", os.O_RDONLY)
    with mmap.mmap(reader, 4096, mmap.MAP_SHARED, mmap.PROT_READ) as mapped:
        command, pipe = [sys.executable, "-c", STORE], subprocess.PIPE
        with subprocess.Popen(command, env=uninterposed(), stdin=pipe, stdout=pipe, text=True) as other:
            assert other.stdout is not None
            other.stdout.readline()
            return mapped[:5], os.pread(reader, 5, 0), os.pread(os.open("large", os.O_RDONLY), 5, 0)


def locks_beside_a_map() -> object:
    fd = make("locks_beside_a_map")
    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with mmap.mmap(fd, 10):
        probe = "import fcntl; fcntl.lockf(open('locks_beside_a_map', 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
        return "BlockingIOError" in outside(f'{sys.executable} -c "{probe}"'), os.fstat(fd).st_size


def setuid_goes_with_a_write() -> object:
    fd = make("setuid_goes_with_a_write", os.O_WRONLY)
    if os.geteuid() == 0:
        os.fchown(fd, 65534, 65534)
    os.fchmod(fd, 0o4755)
    done = os.fork()
    if not done:
        if os.geteuid() == 0:
            os.setuid(65534)
        os.write(fd, b"x")
        os._exit(0)
    os.waitpid(done, 0)
    return oct(os.stat("setuid_goes_with_a_write").st_mode)


def names_of_descriptors() -> object:
    fd = make("names_of_descriptors")
    link, file = f"/proc/self/fd/{fd}", os.stat("names_of_descriptors")
    os.chmod(link, 0o600)
    os.utime(link, (5, 6))
    os.setxattr(link, "user.a", b"b")
    shown = os.stat(link)
    os.truncate(link, 7)
    now = os.stat("names_of_descriptors")
    return (shown.st_dev, shown.st_ino) == (file.st_dev, file.st_ino), oct(now.st_mode), now.st_size, os.getxattr(link, "user.a")


def another_mode_for_a_stream() -> object:
    libc.fopen.restype = libc.freopen.restype = ctypes.c_void_p
    libc.freopen.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p]
    libc.fputs.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
    libc.fclose.argtypes = [ctypes.c_void_p]
    os.close(make("another_mode_for_a_stream", os.O_WRONLY, b"x" * 100_000))
    stream = libc.freopen(None, b"r+", libc.fopen(b"another_mode_for_a_stream", b"r"))
    if not stream:
        return errno.errorcode[ctypes.get_errno()]
    libc.fputs(b"new", stream)
    libc.fclose(stream)
    with open("another_mode_for_a_stream", "rb") as file:
        return file.read(5)


def flags_of_a_descriptor() -> object:
    fd = make("flags_of_a_descriptor", os.O_WRONLY)
    copy, found = os.dup(fd), [fcntl.fcntl(fd, fcntl.F_GETFL)]
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND | os.O_NONBLOCK)
    os.pwrite(copy, b"abc", 0)
    return *found, fcntl.fcntl(copy, fcntl.F_GETFL), os.fstat(fd).st_size


def hints() -> object:
    fd, room = make("hints"), bytearray(8)
    return said(fcntl.fcntl, fd, 1035, bytes(room)), stat.filemode(os.fstat(fd).st_mode)  # F_GET_RW_HINT


CALLS = (
    allocation, allocation_by_number, status_by_number, clone, extents, flags_of_a_write, flags_of_a_read, far_offset,
    direct_from_now_on, holes, append_behind_what_was_just_written, sending_a_file_to_its_own_end, seals, polling,
    copy_of_what_was_just_written, copy_from_elsewhere, sending_what_was_just_written, stores_in_a_map,
    a_map_beside_another_process, locks_beside_a_map, setuid_goes_with_a_write, names_of_descriptors,
    another_mode_for_a_stream, flags_of_a_descriptor, hints,
)  # fmt: skip

if __name__ == "__main__":
    for one in CALLS:
        print(f"{one.__name__}: {said(one)}", flush=True)
