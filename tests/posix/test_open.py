"""open(2) and its flags, reading, writing, truncating."""

import errno
import mmap
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.posix.places import NOBODY, SEED_BYTES, call, errno_of, in_child, link_descriptor, needs_root_for

O_TMPFILE = os.O_TMPFILE


def contents(path: Path) -> bytes:
    return path.read_bytes()


def test_creat_makes_an_empty_file_with_the_umask_applied(d: Path, tmp_umask: None) -> None:
    fd = os.open(d / "new", os.O_CREAT | os.O_WRONLY, 0o666)
    assert os.fstat(fd).st_mode == stat.S_IFREG | 0o644
    assert os.fstat(fd).st_size == 0
    os.close(fd)


def test_excl_refuses_what_is_there(d: Path) -> None:
    for name in ("file", "link", "dir"):
        with pytest.raises(FileExistsError):
            os.open(d / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY)


def test_creat_through_a_dangling_symlink_makes_its_target(d: Path) -> None:
    (d / "dangling").symlink_to("target")
    with pytest.raises(FileExistsError):
        os.open(d / "dangling", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    os.close(os.open(d / "dangling", os.O_CREAT | os.O_WRONLY))
    assert (d / "target").is_file()


def test_trunc_empties(d: Path) -> None:
    os.close(os.open(d / "file", os.O_WRONLY | os.O_TRUNC))
    assert contents(d / "file") == b""


def test_trunc_keeps_mode_inode_and_links(d: Path) -> None:
    before = (d / "hard").stat()
    (d / "hard").write_bytes(b"new")
    after = (d / "hard2").stat()
    assert (after.st_ino, after.st_mode, after.st_nlink, after.st_size) == (before.st_ino, before.st_mode, 2, 3)
    assert contents(d / "hard2") == b"new"


def test_creat_trunc_of_a_read_only_file_fails_for_others(d: Path) -> None:
    needs_root_for("another user")
    (d / "file").chmod(0o444)
    with pytest.raises(PermissionError):
        in_child(lambda: os.open("file", os.O_WRONLY | os.O_TRUNC), where=d, user=NOBODY)
    assert contents(d / "file") == b"seed\n"


def test_directory_flag_and_nofollow(d: Path) -> None:
    assert errno_of(lambda: os.open(d / "file", os.O_RDONLY | os.O_DIRECTORY)) == errno.ENOTDIR
    assert errno_of(lambda: os.open(d / "link", os.O_RDONLY | os.O_NOFOLLOW)) == errno.ELOOP
    assert errno_of(lambda: os.open(d / "dir", os.O_WRONLY)) == errno.EISDIR
    assert errno_of(lambda: os.open(d / "none", os.O_RDONLY)) == errno.ENOENT
    assert errno_of(lambda: os.open(d / "file" / "x", os.O_RDONLY)) == errno.ENOTDIR
    os.close(os.open(d / "dir", os.O_RDONLY | os.O_DIRECTORY))


def test_path_descriptor_can_be_statted_and_not_read(d: Path) -> None:
    fd = os.open(d / "file", os.O_PATH)
    assert os.fstat(fd).st_size == 5
    assert errno_of(lambda: os.read(fd, 1)) == errno.EBADF
    again = os.open(f"/proc/self/fd/{fd}", os.O_RDWR)
    os.write(again, b"SEED")
    assert contents(d / "file") == b"SEED\n"
    os.close(again)
    os.close(fd)


def test_append_goes_to_the_end_whatever_the_offset(d: Path) -> None:
    fd = os.open(d / "file", os.O_WRONLY | os.O_APPEND)
    os.lseek(fd, 0, os.SEEK_SET)
    os.write(fd, b"one\n")
    (d / "file").open("ab").close()
    with (d / "file").open("ab") as other:
        other.write(b"two\n")
    os.write(fd, b"three\n")
    os.close(fd)
    assert contents(d / "file") == b"seed\none\ntwo\nthree\n"


def test_append_by_several_processes_loses_no_line(d: Path) -> None:
    program = (
        "import os,sys\n"
        "fd=os.open('log',os.O_WRONLY|os.O_APPEND|os.O_CREAT,0o644)\n"
        "for i in range(200): os.write(fd,f'{sys.argv[1]}-{i:05} '.encode()*7+b'\\n')\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", program, str(n)], cwd=d) for n in range(4)]
    assert [writer.wait() for writer in writers] == [0] * 4
    lines = contents(d / "log").decode().splitlines()
    assert len(lines) == 800
    for n in range(4):
        mine = [line for line in lines if line.startswith(f"{n}-")]
        assert mine == [" ".join([f"{n}-{i:05}"] * 7) + " " for i in range(200)]


def test_excl_race_has_one_winner(d: Path) -> None:
    program = (
        "import os\nwon=0\n"
        "for i in range(60):\n"
        "    try: os.close(os.open(f'race{i}',os.O_CREAT|os.O_EXCL)); won+=1\n"
        "    except FileExistsError: pass\n"
        "print(won)\n"
    )
    racers = [subprocess.Popen([sys.executable, "-c", program], cwd=d, stdout=subprocess.PIPE) for _ in range(4)]
    assert sum(int(racer.communicate()[0]) for racer in racers) == 60


def test_mkdir_race_has_one_winner(d: Path) -> None:
    program = (
        "import os\nwon=0\n"
        "for i in range(60):\n"
        "    try: os.mkdir(f'race{i}'); won+=1\n"
        "    except FileExistsError: pass\n"
        "print(won)\n"
    )
    racers = [subprocess.Popen([sys.executable, "-c", program], cwd=d, stdout=subprocess.PIPE) for _ in range(3)]
    assert sum(int(racer.communicate()[0]) for racer in racers) == 60


def test_direct_io(d: Path, place: str) -> None:
    buffer = mmap.mmap(-1, 8192)
    buffer.write(b"D" * 8192)
    fd = os.open(d / "direct", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    assert os.pwritev(fd, [buffer], 0) == 8192
    buffer[:] = bytes(8192)
    assert os.preadv(fd, [buffer], 0) == 8192
    assert buffer[:] == b"D" * 8192
    os.close(fd)
    buffered = os.open(d / "direct", os.O_RDWR)
    assert os.pread(buffered, 4, 4094) == b"DDDD"
    os.pwrite(buffered, b"page", 4096)
    os.fsync(buffered)
    again = os.open(d / "direct", os.O_RDONLY | os.O_DIRECT)
    assert os.preadv(again, [buffer], 4096) == 4096
    assert buffer[:4] == b"page"
    for fd in (buffered, again):
        os.close(fd)
    buffer.close()


def test_direct_io_on_what_was_not_changed_yet(d: Path) -> None:
    buffer = mmap.mmap(-1, 4096)
    fd = os.open(d / "big", os.O_RDWR | os.O_DIRECT)
    assert os.preadv(fd, [buffer], 4096) == 4096
    assert buffer[:] == SEED_BYTES[4096:8192]
    buffer[:] = b"x" * 4096
    assert os.pwritev(fd, [buffer], 4096) == 4096
    os.close(fd)
    buffer.close()
    assert contents(d / "big") == SEED_BYTES[:4096] + b"x" * 4096 + SEED_BYTES[8192:]


def test_reader_that_opened_before_sees_the_write(d: Path) -> None:
    reader = os.open(d / "file", os.O_RDONLY)
    assert os.pread(reader, 10, 0) == b"seed\n"
    with (d / "file").open("r+b") as writer:
        writer.write(b"SEEDS!")
    assert os.pread(reader, 10, 0) == b"SEEDS!"
    assert os.fstat(reader).st_size == 6
    assert os.path.sameopenfile(reader, reader)
    os.close(reader)


def test_sparse_file_reads_zeros_and_uses_few_blocks(d: Path) -> None:
    with (d / "sparse").open("w+b") as file:
        file.seek(10 << 20)
        file.write(b"end")
        file.flush()
        assert os.fstat(file.fileno()).st_size == (10 << 20) + 3
        assert os.fstat(file.fileno()).st_blocks < 1000
        assert os.pread(file.fileno(), 5, 5 << 20) == bytes(5)


def test_truncate_down_and_up_shows_zeros(d: Path) -> None:
    os.truncate(d / "big", 100)
    os.truncate(d / "big", 5000)
    assert contents(d / "big") == SEED_BYTES[:100] + bytes(4900)


def test_truncate_up_what_was_not_changed(d: Path) -> None:
    os.truncate(d / "file", 10)
    assert contents(d / "file") == b"seed\n\0\0\0\0\0"


def test_ftruncate_moves_what_another_handle_sees(d: Path) -> None:
    one, two = os.open(d / "big", os.O_RDWR), os.open(d / "big", os.O_RDONLY)
    os.read(two, 4096)
    os.ftruncate(one, 3)
    assert os.fstat(two).st_size == 3
    assert os.pread(two, 10, 0) == SEED_BYTES[:3]
    assert os.read(two, 10) == b""
    os.close(one)
    os.close(two)


def test_truncate_errors(d: Path) -> None:
    assert errno_of(lambda: os.truncate(d / "dir", 0)) == errno.EISDIR
    assert errno_of(lambda: os.truncate(d / "none", 0)) == errno.ENOENT
    assert errno_of(lambda: os.truncate(d / "file", -1)) == errno.EINVAL
    fd = os.open(d / "file", os.O_RDONLY)
    assert errno_of(lambda: os.ftruncate(fd, 0)) == errno.EINVAL
    os.close(fd)


def test_offsets_beyond_4_gib(d: Path) -> None:
    with (d / "far").open("w+b") as file:
        for offset in ((1 << 32) - 2, (1 << 32) + 5, 1 << 40):
            os.pwrite(file.fileno(), b"mark", offset)
            assert os.pread(file.fileno(), 4, offset) == b"mark"
        assert os.fstat(file.fileno()).st_size == (1 << 40) + 4
        os.ftruncate(file.fileno(), (1 << 32) + 9)
        assert os.pread(file.fileno(), 100, (1 << 32) - 2) == b"mark\0\0\0mark"


def test_readv_writev_and_holes_between(d: Path) -> None:
    fd = os.open(d / "v", os.O_RDWR | os.O_CREAT)
    assert os.writev(fd, [b"ab", b"", b"cd"]) == 4
    assert os.pwrite(fd, b"z", 9) == 1
    parts = [bytearray(3), bytearray(7)]
    assert os.preadv(fd, parts, 0) == 10
    assert b"".join(parts) == b"abcd\0\0\0\0\0z"
    os.close(fd)


def test_one_megabyte_write_is_whole(d: Path) -> None:
    data = os.urandom(1 << 20)
    fd = os.open(d / "big", os.O_RDWR)
    assert os.write(fd, data) == len(data)
    assert os.pread(fd, len(data), 0) == data
    os.close(fd)


def test_wrong_descriptor_mode(d: Path) -> None:
    reader, writer = os.open(d / "file", os.O_RDONLY), os.open(d / "file", os.O_WRONLY)
    assert errno_of(lambda: os.write(reader, b"x")) == errno.EBADF
    assert errno_of(lambda: os.read(writer, 1)) == errno.EBADF
    os.close(reader)
    os.close(writer)


def test_descriptor_opened_before_chmod_keeps_its_rights(d: Path) -> None:
    fd = os.open(d / "file", os.O_RDWR)
    os.fchmod(fd, 0)
    assert os.write(fd, b"still") == 5
    os.close(fd)
    assert (d / "file").stat().st_mode == stat.S_IFREG


def test_fsync_and_fdatasync(d: Path) -> None:
    fd = os.open(d / "file", os.O_RDWR)
    os.write(fd, b"x")
    os.fsync(fd)
    os.fdatasync(fd)
    os.close(fd)
    directory = os.open(d / "dir", os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


def test_copy_file_range_and_sendfile(d: Path) -> None:
    source, target = os.open(d / "big", os.O_RDONLY), os.open(d / "copy", os.O_RDWR | os.O_CREAT)
    done = 0
    while part := os.copy_file_range(source, target, len(SEED_BYTES) - done):
        done += part
        if done == len(SEED_BYTES):
            break
    assert contents(d / "copy") == SEED_BYTES
    os.ftruncate(target, 0)
    os.lseek(target, 0, os.SEEK_SET)
    done = 0
    while done < len(SEED_BYTES):
        done += os.sendfile(target, source, done, len(SEED_BYTES) - done)
    assert contents(d / "copy") == SEED_BYTES
    os.close(source)
    os.close(target)


def test_posix_fallocate_extends(d: Path) -> None:
    fd = os.open(d / "file", os.O_RDWR)
    os.posix_fallocate(fd, 0, 8192)
    assert os.fstat(fd).st_size == 8192
    os.close(fd)
    assert contents(d / "file") == b"seed\n" + bytes(8187)


def test_unnamed_temporary_file(d: Path, by_pyfuse3: bool) -> None:
    if by_pyfuse3:
        assert errno_of(lambda: os.open(d, O_TMPFILE | os.O_RDWR)) == errno.EOPNOTSUPP  # pyfuse3 has no TMPFILE request
        return
    fd = os.open(d, O_TMPFILE | os.O_RDWR, 0o600)
    os.write(fd, b"x")
    link_descriptor(fd, d / "named")
    os.close(fd)
    assert contents(d / "named") == b"x"


def test_seek_hole_and_data(d: Path, by_pyfuse3: bool) -> None:
    fd = os.open(d / "sparse", os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, b"x" * 4096, 1 << 20)
    if by_pyfuse3:  # pyfuse3 has no LSEEK request; the kernel then takes all for data, which POSIX allows
        assert os.lseek(fd, 0, os.SEEK_DATA) == 0
    else:
        assert os.lseek(fd, 0, os.SEEK_DATA) == 1 << 20
    assert os.lseek(fd, 1 << 20, os.SEEK_HOLE) == (1 << 20) + 4096
    assert errno_of(lambda: os.lseek(fd, 2 << 20, os.SEEK_DATA)) == errno.ENXIO
    os.close(fd)


def test_fifo_carries_data_between_processes(d: Path) -> None:
    os.mkfifo(d / "pipe", 0o600)
    writer = subprocess.Popen(["sh", "-c", "echo through > pipe"], cwd=d)
    assert contents(d / "pipe") == b"through\n"
    assert writer.wait() == 0
    assert stat.S_ISFIFO((d / "pipe").stat().st_mode)


def test_device_nodes(d: Path) -> None:
    needs_root_for("device nodes")
    os.mknod(d / "zero", 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    assert (d / "zero").stat().st_rdev == os.makedev(1, 5)
    fd = os.open(d / "zero", os.O_RDONLY)
    assert os.read(fd, 4) == bytes(4)
    os.close(fd)


def test_unix_socket_can_be_bound_and_reached(d: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        directory = os.open(d, os.O_RDONLY)
        server.bind(f"/proc/self/fd/{directory}/s")
        server.listen()
        client.connect(f"/proc/self/fd/{directory}/s")
        os.close(directory)
    assert stat.S_ISSOCK((d / "s").stat().st_mode)


def test_ioctl_that_no_file_system_knows(d: Path) -> None:
    fd = os.open(d / "file", os.O_RDONLY)
    assert errno_of(lambda: call("ioctl", fd, 0x1234, 0)) == errno.ENOTTY
    os.close(fd)
