"""A file system whose server stops answering, and a process that stands in it: what an agent can put before the daemon."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SERVER = """
import os, struct, sys
from agentfsd.linux import mounts
fd = mounts.mount_fuse(sys.argv[1], frozenset(), allow_other=True)
print("mounted", flush=True)
IN, OUT = struct.Struct("=IIQQIIII"), struct.Struct("=IiQ")
def attributes(node):  # valid for no time: whoever asks for them asks us
    mode = 0o40755 if node == 1 else 0o100644
    return struct.pack("=QIIQQQQQQIIIIIIIIII", 0, 0, 0, node, 0, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)
while True:
    asked = os.read(fd, 1 << 20)
    _, opcode, unique, node, *_ = IN.unpack_from(asked)
    body = {
        26: struct.pack("=IIIIHHIIHH8I", 7, 31, 0, 0, 12, 9, 4096, 1, *[0] * 10),  # INIT
        1: struct.pack("=QQQQII", 2, 0, 60, 0, 0, 0) + attributes(2)[16:],  # LOOKUP
        3: attributes(node),  # GETATTR
        14: struct.pack("=QII", 1, 0, 0), 27: struct.pack("=QII", 1, 0, 0),  # OPEN, OPENDIR
    }.get(opcode)
    if opcode not in (2, 36, 42):  # FORGET, INTERRUPT, BATCH_FORGET: no answer
        os.write(fd, OUT.pack(OUT.size + len(body or b""), 0 if body else -38, unique) + (body or b""))
"""


@contextmanager
def in_a_hung_file_system(directory: Path, *, unmounted: bool) -> Iterator[subprocess.Popen[str]]:
    """A process whose current directory and one descriptor lie there. *unmounted*: lazily, so that no mount table has it."""
    directory.mkdir()
    server = subprocess.Popen([sys.executable, "-c", _SERVER, directory], stdout=subprocess.PIPE, text=True)
    inside = None
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == "mounted\n"
        script = 'cd "$0"; exec 3<file; echo in; exec sleep 300'
        inside = subprocess.Popen(["sh", "-ec", script, directory], stdout=subprocess.PIPE, text=True, cwd="/")
        assert inside.stdout is not None
        assert inside.stdout.readline() == "in\n"
        if unmounted:
            subprocess.run(["umount", "-l", directory], check=True)
        os.kill(server.pid, signal.SIGSTOP)
        yield inside
    finally:
        server.kill()  # with the last descriptor of the connection everybody is let go
        server.communicate()
        if inside is not None:
            inside.kill()
            inside.communicate()
        if not unmounted:
            subprocess.run(["umount", "-l", directory], check=False)
