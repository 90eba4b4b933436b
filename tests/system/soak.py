"""Branches under load for a while: what the daemon takes must not grow with time. Prints a row of figures now and then.

    python -m tests.system.soak MOUNTPOINT MINUTES [BRANCHES]

Each branch has a process that works on the same small set of names for ever; meanwhile processes come and go, snapshots
are taken and deleted, and branches are made and discarded.
"""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

from agentfs_client.control import ControlClient

KEPT_SNAPSHOTS = 5
COLUMNS = ("rss_bytes", "descriptors", "nodes", "handles", "inodes", "processes", "threads", "database_bytes")

WORK = r"""
import os, random, shutil, subprocess, sys
chance = random.Random(sys.argv[1])
os.makedirs("work", exist_ok=True)
def any_file(): return f"work/d{chance.randrange(8)}/f{chance.randrange(50)}"
steps = 0
while not os.path.exists(sys.argv[2]):
    steps += 1
    name, kind = any_file(), chance.randrange(12)
    try:
        os.makedirs(os.path.dirname(name), exist_ok=True)
        if kind < 4:
            with open(name, "w") as file: file.write(f"{steps} " * chance.randrange(500))
        elif kind < 6:
            with open(name) as file: file.read()
        elif kind == 6: os.rename(name, any_file())
        elif kind == 7: os.unlink(name)
        elif kind == 8: os.listdir(os.path.dirname(name))
        elif kind == 9: shutil.rmtree(os.path.dirname(name))
        elif kind == 10: os.stat(name)
        elif steps % 20 == 0: subprocess.run(["cat", name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except (FileNotFoundError, FileExistsError, NotADirectoryError): pass
print(steps)
"""


def soak(mountpoint: Path, minutes: float, branches: int, stop: Path) -> tuple[list[dict[str, int]], int]:
    """The figures of the daemon, some twenty of them over the time, and how many steps the workers made."""
    figures: list[dict[str, int]] = []
    with ControlClient.open_mount(str(mountpoint)) as daemon:
        workers = [start_worker(daemon, mountpoint, number, stop) for number in range(branches)]
        begin = time.monotonic()
        chance = random.Random(1)
        while time.monotonic() - begin < minutes * 60:
            until = time.monotonic() + minutes * 60 / 20
            while time.monotonic() < until:
                _use_control(daemon, f"soak{chance.randrange(branches)}")
                time.sleep(0.05)
            figures.append(dict(daemon.status().resources))
            print(_row(time.monotonic() - begin, figures[-1]), flush=True)
        stop.touch()
        steps = sum(int(worker.communicate()[0]) for worker in workers)
    return figures, steps


def start_worker(daemon: ControlClient, mountpoint: Path, number: int, stop: Path) -> subprocess.Popen[str]:
    """Every other one in the caller-dependent view, the rest as `run` shows it."""
    name = f"soak{number}"
    daemon.create_branch(name)
    command = [sys.executable, "-m", "agentfsd.cli.main", "run", "-m", str(mountpoint), "-b", name]
    command += [*["--no-namespace"] * (number % 2), "--", sys.executable, "-c", WORK, str(number), str(stop)]
    return subprocess.Popen(command, cwd=mountpoint, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def _use_control(daemon: ControlClient, branch: str) -> None:
    daemon.create_snapshot(branch)
    mine = daemon.list_snapshots(branch)
    for old in mine[:-KEPT_SNAPSHOTS]:
        daemon.delete_snapshot(old.id)
    passing = daemon.create_branch("passing", branch)
    daemon.discard(passing.id)


def _row(seconds: float, found: dict[str, int]) -> str:
    return json.dumps({"seconds": round(seconds), **{name: found[name] for name in COLUMNS}})


def main() -> None:
    mountpoint, minutes = Path(sys.argv[1]), float(sys.argv[2])
    stop = Path(f"/tmp/agentfsd-soak-{os.getpid()}")
    _, steps = soak(mountpoint, minutes, int(sys.argv[3]) if len(sys.argv) > 3 else 10, stop)
    stop.unlink()
    print(f"{steps} steps")


if __name__ == "__main__":
    main()
