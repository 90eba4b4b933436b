"""A program with the preloaded library that outlives its daemon."""

import subprocess
import sys
from collections.abc import Callable

from tests.mounted import Mounted, needs_interposing

SCRIPT = """
import os, sys
print("ready", flush=True)
for line in sys.stdin:
    fd = os.open(sys.argv[1] + "/" + line.strip(), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.write(fd, b"x" * 1000)
    os.close(fd)
    print("done", flush=True)
"""


def test_it_gets_descriptors_from_the_next_daemon(make_mount: Callable[..., Mounted]) -> None:
    mounted = make_mount()
    needs_interposing(mounted)
    program = mounted.start(
        "main", sys.executable, "-c", SCRIPT, str(mounted.path), interposed=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert program.stdin is not None
    assert program.stdout is not None

    def make(name: str) -> None:
        program.stdin.write(name + "\n")
        program.stdin.flush()
        assert program.stdout.readline() == "done\n"
        assert (mounted.path / name).read_bytes() == b"x" * 1000

    assert program.stdout.readline() == "ready\n"
    make("one")
    assert mounted.json("status")["resources"]["forwardings"] == 1
    mounted.kill()
    mounted.mount()
    assert mounted.json("interpose get")["settings"]["enabled"] == "on"
    make("two")  # is left to the mount: the conversation was with the daemon before
    make("three")
    assert mounted.json("status")["resources"]["forwardings"] == 1
    program.stdin.close()
    assert program.wait(20) == 0
