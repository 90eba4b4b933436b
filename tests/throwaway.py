"""A machine to spoil: the running one's root seen through an overlayfs in memory, with processes and mounts of its own.

Whatever a script does there (installing packages, writing to /home and into the checkout, leaving daemons) is gone when it ends.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

_APART = ("unshare", "--mount", "--pid", "--fork")
_HIDDEN = ("/run", "/tmp", "/home", "/srv")  # empty in there
_TRIAL = """
mount -t tmpfs tmpfs "$1" && mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
"""
_INSIDE = """
mount --make-rprivate /
mount -t tmpfs tmpfs "$BASE"
mkdir "$BASE/upper" "$BASE/work" "$BASE/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$BASE/upper,workdir=$BASE/work" "$BASE/root"
cd "$BASE/root"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount --rbind /dev dev
for place in $HIDDEN; do mkdir -p .$place; mount -t tmpfs tmpfs .$place; done
for directory in "$@"; do
    own="$(mktemp -d -p "$BASE")"
    mkdir -p "$own/upper" "$own/work" "./$directory"
    mount -t overlay overlay -o "lowerdir=$directory,upperdir=$own/upper,workdir=$own/work" "./$directory"
done
mkdir .old
pivot_root . .old
umount -l .old
unset BASE HIDDEN
exec bash -c "$SCRIPT"
"""


def needs_view_of_root() -> None:
    """Skips where the root cannot be shown through an overlayfs, with what mount(8) says."""
    if os.geteuid() != 0:
        pytest.skip("a machine to spoil takes root")
    with tempfile.TemporaryDirectory(prefix="agentfsd-throwaway-") as base:
        trial = [*_APART, "sh", "-ec", _TRIAL, "sh", base]
        done = subprocess.run(trial, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"this root cannot be shown through an overlayfs: {done.stderr.strip()}")


def run(script: str, *directories: Path, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """A script of bash there, in HOME=/home/me, which is empty; its two streams in one. *directories* are seen there, too."""
    needs_view_of_root()
    pythons = [place for place in (sys.base_prefix, sys.prefix) if place.startswith(tuple(f"{hidden}/" for hidden in _HIDDEN))]
    script = f"unset SCRIPT; mkdir -p ~; cd\n{script}"
    with tempfile.TemporaryDirectory(prefix="agentfsd-throwaway-") as base:
        return subprocess.run(
            [*_APART, "--kill-child", "sh", "-ec", _INSIDE, "sh", *pythons, *map(str, directories)],
            env={**_environment(), "BASE": base, "HIDDEN": " ".join(_HIDDEN), "SCRIPT": script},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout_s, check=False,
        )  # fmt: skip


def _environment() -> dict[str, str]:
    """A new user's, and what says how the network is reached from here."""
    network = {
        name: value for name, value in os.environ.items()
        if name.startswith(("PIP_", "SSL_CERT_")) or name.lower().endswith(("_proxy", "_ca_bundle"))
    }  # fmt: skip
    return {**network, "PATH": os.environ["PATH"], "HOME": "/home/me", "USER": "root", "LANG": "C.UTF-8"}
