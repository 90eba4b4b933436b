"""What must be known of a machine to read its numbers."""

import datetime
import os
import platform
import subprocess
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmark.places import Place, available_memory_bytes
from benchmark.settings import MIB

_ROOT = Path(__file__).parent.parent.parent
_PROGRAMS = (("fio", "--version"), ("git", "--version"), ("fuse-overlayfs", "--version"), ("rg", "--version"),
             ("node", "--version"), ("npm", "--version"), ("cc", "--version"))  # fmt: skip
_ENVIRONMENT = os.environ | {"NODE_DISABLE_COMPILE_CACHE": "1"}  # or npm leaves files in the temporary directory
_PACKAGES = ("agentfsd", "pyfuse3", "trio", "msgspec", "pytest", "pip")


def machine(places: Sequence[Place]) -> dict[str, object]:
    """Kernel, processor, file systems, versions, date and commit."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": _said("git", "-C", str(_ROOT), "describe", "--always", "--dirty", "--abbrev=12"),
        "kernel": platform.release(),
        "cpu": _cpu(),
        "cpus": os.cpu_count() or 0,
        "memory_available_mib": available_memory_bytes() // MIB,
        "root": os.geteuid() == 0,
        "filesystems": {place.name: place.filesystem for place in places},
        "python": platform.python_version(),
        "programs": {name: _said(name, option) for name, option in _PROGRAMS},
        "packages": {name: _version(name) for name in _PACKAGES},
    }


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("model name", "Model", "CPU part")):
            return line.partition(":")[2].strip()
    return platform.machine()


def _said(*argv: str) -> str:
    """The first line that a command prints; "" where it is missing."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, env=_ENVIRONMENT)
    except OSError:
        return ""
    return next(iter(done.stdout.splitlines()), "")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
