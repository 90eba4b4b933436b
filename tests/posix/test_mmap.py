"""mmap(2): shared and private, between handles and processes, across copy-up."""

import mmap
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.posix.places import SEED_BYTES, in_child


def test_shared_mapping_writes_the_file(d: Path) -> None:
    with (d / "big").open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[5000:5004] = b"mmap"
        mapped.flush()
        assert os.pread(file.fileno(), 4, 5000) == b"mmap"
    assert (d / "big").read_bytes() == SEED_BYTES[:5000] + b"mmap" + SEED_BYTES[5004:]


def test_shared_mapping_reaches_the_file_without_msync(d: Path) -> None:
    with (d / "big").open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), 0)
    mapped[0:4] = b"mmap"
    mapped.close()
    assert (d / "big").read_bytes()[:6] == b"mmap45"


def test_private_mapping_leaves_the_file_alone(d: Path) -> None:
    with (
        (d / "big").open("rb") as file,
        mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE) as mapped,
    ):
        mapped[0:4] = b"mmap"
        assert mapped[0:4] == b"mmap"
    assert (d / "big").read_bytes() == SEED_BYTES


def test_write_shows_in_a_mapping(d: Path) -> None:
    with (d / "big").open("r+b") as file, mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ) as mapped:
        assert mapped[:4] == b"0123"
        os.pwrite(file.fileno(), b"ABCD", 0)
        assert mapped[:4] == b"ABCD"


def test_copy_up_by_another_handle_shows_in_an_older_mapping(d: Path) -> None:
    with (d / "big").open("rb") as reader, mmap.mmap(reader.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ) as mapped:
        assert mapped[:4] == b"0123"
        assert mapped[8192:8196] == b"0123"
        with (d / "big").open("r+b") as writer:
            writer.write(b"ABCD")
            writer.seek(8192)
            writer.write(b"EFGH")
        assert mapped[:4] == b"ABCD"
        assert mapped[8192:8196] == b"EFGH"


def test_two_processes_share_a_mapping(d: Path) -> None:
    with (d / "big").open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:

        def write_there() -> None:
            with (d / "big").open("r+b") as mine, mmap.mmap(mine.fileno(), 0) as own:
                own[100:105] = b"child"

        in_child(write_there)
        assert mapped[100:105] == b"child"
        mapped[200:206] = b"parent"
        assert in_child(lambda: (d / "big").read_bytes()[200:206]) == b"parent"


def test_two_programs_count_in_one_mapping(d: Path) -> None:
    program = (
        "import fcntl,mmap,struct\n"
        "f=open('counter','r+b'); m=mmap.mmap(f.fileno(),8)\n"
        "for _ in range(300):\n"
        "    fcntl.lockf(f,fcntl.LOCK_EX)\n"
        "    struct.pack_into('Q',m,0,struct.unpack_from('Q',m,0)[0]+1)\n"
        "    fcntl.lockf(f,fcntl.LOCK_UN)\n"
    )
    (d / "counter").write_bytes(bytes(8))
    counters = [subprocess.Popen([sys.executable, "-c", program], cwd=d) for _ in range(3)]
    assert [counter.wait() for counter in counters] == [0, 0, 0]
    assert int.from_bytes((d / "counter").read_bytes(), "little") == 900


def test_mapping_outlives_the_descriptor_and_the_name(d: Path) -> None:
    fd = os.open(d / "big", os.O_RDWR)
    mapped = mmap.mmap(fd, 0)
    os.close(fd)
    (d / "big").unlink()
    assert mapped[-16:] == SEED_BYTES[-16:]
    mapped[0:4] = b"gone"
    mapped.flush()
    assert mapped[0:4] == b"gone"
    mapped.close()


def test_mapping_sees_the_file_grow_within_its_page(d: Path) -> None:
    with (d / "file").open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        os.pwrite(file.fileno(), b"longer than before", 0)
        assert mapped[:5] == b"longe"
    assert (d / "file").read_bytes() == b"longer than before"


def test_access_beyond_the_end_is_a_bus_error(d: Path) -> None:
    program = "import mmap,os\nf=open('big','r+b'); m=mmap.mmap(f.fileno(),0)\nos.ftruncate(f.fileno(),100)\nm[100000]\n"
    assert subprocess.run([sys.executable, "-c", program], cwd=d, check=False).returncode == -signal.SIGBUS


def test_a_program_can_be_executed_from_there(d: Path) -> None:
    (d / "run").write_bytes(Path("/bin/true").read_bytes())
    (d / "run").chmod(0o755)
    assert subprocess.run([d / "run"], check=False).returncode == 0
    (d / "script").write_text("#!/bin/sh\necho hello\n")
    (d / "script").chmod(0o755)
    assert subprocess.check_output([d / "script"]) == b"hello\n"
