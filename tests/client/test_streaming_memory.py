"""A file of 1 GiB goes through every stream of HostFilesystem in the memory of a chunk or of a line, as the kernel counts it."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MIB = 1 << 20
GIB = 1 << 30
LINE = MIB // 4
ALLOWED = 16 * MIB

_SCRIPT = """
import json, sys
from agentfs_files.backends.host import HostFilesystem

def peak():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10

def copy(fs):
    with fs.open_read("hole") as source, fs.open_write("copy") as target:
        return target.write_all(source)

def lines(fs):
    with fs.open_text("lines") as reader:
        return sum(len(line) for line in reader)

def one_line_in_pieces(fs):
    with fs.open_text("hole") as reader:
        return sum(map(len, iter(lambda: reader.read(1 << 16), "")))

def window(fs):
    return len(fs.read_bytes("hole", offset=(1 << 30) - 10, limit=1 << 20).content)

def one_line(fs):
    with fs.open_text("long") as reader:
        return len(reader.readline())

fs = HostFilesystem(sys.argv[1])
fs.write("warm", "up"), fs.read("warm"), fs.open_text("warm").readline()
grown = {}
for step in (copy, lines, one_line_in_pieces, window, one_line):
    before = peak()
    size = step(fs)
    grown[step.__name__] = size, peak() - before
print(json.dumps(grown))
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """In memory where there is room for it."""
    shared = os.statvfs("/dev/shm")
    roomy = shared.f_bavail * shared.f_frsize > 2 * GIB
    with tempfile.TemporaryDirectory(dir="/dev/shm" if roomy else None) as name:
        yield Path(name)


def test_streams_of_a_gibibyte_take_little_memory(place: Path) -> None:
    for name, size, step in (("hole", GIB, GIB), ("lines", GIB, LINE), ("long", 24 * MIB, 24 * MIB)):
        with (place / name).open("wb") as file:
            file.truncate(size)
            if step < size:
                for position in range(step - 1, size, step):
                    os.pwrite(file.fileno(), b"\n", position)
    done = subprocess.run([sys.executable, "-c", _SCRIPT, str(place)], capture_output=True, text=True, check=True)
    grown = json.loads(done.stdout)
    assert {step: size for step, (size, _) in grown.items()} == {
        "copy": GIB, "lines": GIB, "one_line_in_pieces": GIB, "window": 10, "one_line": 24 * MIB,
    }  # fmt: skip
    of_the_line = grown.pop("one_line")[1]
    assert {step: memory for step, (_, memory) in grown.items() if memory > ALLOWED} == {}
    assert 24 * MIB - ALLOWED < of_the_line < 3 * 24 * MIB  # which shows, too, that this can be seen
