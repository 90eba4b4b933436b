"""The behaviour suite inside `agentfsd run`, for each way in which files get to a command."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mounted import AGENTFSD, Mounted, needs_interposing, needs_namespaces
from tests.rounds import is_long

ROOT = Path(__file__).parents[2]
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
NOT_ABOUT_A_DIRECTORY = [  # that is given; the second names its own places, and runs in them with the suite itself
    "--ignore=tests/posix/test_branches.py", "--deselect=tests/posix/test_readdir.py::test_a_directory_of_very_many_entries",
]  # fmt: skip


# cached is how the mount point itself is served
@pytest.mark.parametrize("io", ["zero-message", "passthrough"] if is_long() else ["zero-message"])
@pytest.mark.parametrize("interposed", [False, True] if is_long() else [False])
def test_behaviour_suite(tmp_path: Path, make_mount: Callable[..., Mounted], io: str, interposed: bool) -> None:
    needs_namespaces()
    options = ["--allow-other", "-o", "suid,dev"] if os.geteuid() == 0 else []
    mounted = make_mount(None, *options)
    if interposed:
        needs_interposing(mounted)
    mounted.path.parent.chmod(0o755)
    for above in mounted.path.parents:
        if above.owner() == mounted.path.owner() and not above.stat().st_mode & 1:
            above.chmod(above.stat().st_mode | 0o711)
    command = [*PYTEST, f"--basetemp={tmp_path}/inside", *NOT_ABOUT_A_DIRECTORY, "tests/posix"]
    done = subprocess.run(
        [*AGENTFSD, "run", "-m", str(mounted.path), "-b", "suite", "--new", "--io", io, *["--interpose"] * interposed, "--",
         "env", "-C", str(ROOT), f"AGENTFSD_POSIX_HERE={mounted.path}",
         f"AGENTFSD_POSIX_NOATIME={int(io == 'zero-message')}", *command],
        cwd=mounted.path, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert mounted.fsck() == []
    assert list(mounted.lower.iterdir()) == []


def test_behaviour_suite_as_an_overlay(tmp_path: Path, make_mount: Callable[..., Mounted]) -> None:
    """What the kernel's overlayfs cannot do is left out: an extended attribute of the largest size."""
    needs_namespaces()
    if not is_long():
        pytest.skip("needs --long: the suite takes half a minute")
    mounted = make_mount(None, *(["--allow-other", "-o", "suid,dev"] if os.geteuid() == 0 else []))
    command = [*PYTEST, f"--basetemp={tmp_path}/inside", *NOT_ABOUT_A_DIRECTORY, "tests/posix"]
    command += ["--deselect", f"tests/posix/test_xattrs.py::test_sizes[{mounted.path}]"]
    done = subprocess.run(
        [*AGENTFSD, "run", "-m", str(mounted.path), "-b", "suite", "--new", "--io", "overlay", "--",
         "env", "-C", str(ROOT), f"AGENTFSD_POSIX_HERE={mounted.path}", "AGENTFSD_POSIX_NOATIME=0", *command],
        cwd=mounted.path, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert mounted.fsck() == []
