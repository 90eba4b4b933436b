"""What a command of `run` tries to reach beyond its branch. Run in the branch, with the world's description as JSON.

Prints for each try what came of it: an errno, or what it read. Whether anything outside has changed is looked at from outside:
each try that writes leaves a mark with its name, and each that removes or moves has a victim of its own.
"""

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable

from tests.confinement import tries_of_agentfsd, tries_of_mounts, tries_of_processes, tries_of_real_files, tries_of_the_rest
from tests.confinement.attempts import MARKING, TRIES, world

THEMES = (tries_of_real_files, tries_of_mounts, tries_of_agentfsd, tries_of_processes, tries_of_the_rest)
__all__ = ["MARKING", "THEMES", "TRIES"]


def outcome(work: Callable[[], object]) -> dict[str, object]:
    """What came of a try, made in a child: what is done after one that got out must not be done to the whole machine."""
    low = os.pipe()
    reading, writing = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 200) for fd in low)  # low numbers are those of inherited ones
    for fd in low:
        os.close(fd)
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, json.dumps(attempted(work), default=repr).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as file:
        told = file.read()
    os.waitpid(child, 0)
    return json.loads(told) if told else {"errno": -1, "why": "it died"}


def attempted(work: Callable[[], object]) -> dict[str, object]:
    try:
        return {"got": work()}
    except OSError as exc:
        return {"errno": exc.errno or 0, "why": str(exc)}
    except (AttributeError, ValueError, subprocess.TimeoutExpired) as exc:
        return {"errno": -1, "why": repr(exc)}


if __name__ == "__main__":
    world.__dict__.update(json.loads(sys.argv[1]))
    print(json.dumps({name: outcome(work) for name, work in TRIES.items()}, default=repr))
