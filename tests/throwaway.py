"""A machine to spoil: the running one's root seen through an overlayfs in memory, with processes and mounts of its own.

Whatever a script does there (installing packages, writing to /home and into the checkout, leaving daemons) is gone when it ends.
"""

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

_INSIDE = """
mount --make-rprivate /
mount -t tmpfs tmpfs "$BASE"
mkdir "$BASE/upper" "$BASE/work" "$BASE/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$BASE/upper,workdir=$BASE/work" "$BASE/root"
cd "$BASE/root"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount --rbind /dev dev
for place in run tmp home srv; do mkdir -p $place; mount -t tmpfs tmpfs $place; done
for directory in "$@"; do
    own="$(mktemp -d -p "$BASE")"
    mkdir -p "$own/upper" "$own/work" "./$directory"
    mount -t overlay overlay -o "lowerdir=$directory,upperdir=$own/upper,workdir=$own/work" "./$directory"
done
mkdir .old
pivot_root . .old
umount -l .old
exec env -i "PATH=$PATH" HOME=/home/me LANG=C.UTF-8 USER=root bash -c "$SCRIPT"
"""


def run(script: str, *directories: Path, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """A script of bash there, in HOME=/home/me, which is empty; its two streams in one. *directories* are seen there, too."""
    if os.geteuid() != 0:
        pytest.skip("a machine to spoil takes root")
    with tempfile.TemporaryDirectory(prefix="agentfsd-throwaway-") as base:
        return subprocess.run(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", _INSIDE, "sh", *map(str, directories)],
            env={**os.environ, "BASE": base, "SCRIPT": f"mkdir -p ~; cd\n{script}"}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout_s, check=False,
        )  # fmt: skip
