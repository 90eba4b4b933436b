"""A workspace to commit into, on any of the file systems that a lower may lie on, and one whose changes are heard."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from agentfs_host import syscalls
from agentfsd.lower import inotify
from agentfsd.lower.host_lower import HostLower
from agentfsd.lower.watch import LowerWatch
from tests.lower.commit_trees import make_lower, make_wanted
from tests.lower.workspaces import WHEN, Workspace
from tests.mounted import needs_root

MAKE = {"ext4": ["mkfs.ext4", "-q"], "xfs": ["mkfs.xfs", "-q"], "btrfs": ["mkfs.btrfs", "-q"], "tmpfs": []}


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    made = Workspace(tmp_path)
    made.root.mkdir()
    (made.root / "file").write_text("old")
    (made.root / "dir" / "sub").mkdir(parents=True)
    (made.root / "dir" / "sub" / "leaf").write_text("leaf")
    os.utime(made.root, ns=(WHEN, WHEN))
    made.open()
    yield made
    made.lower.close()


@pytest.fixture
def no_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system, or a libc, that does not know renameat2(2)."""
    monkeypatch.setattr(syscalls, "_renameat2", None)


@pytest.fixture
def whole(tmp_path: Path) -> Iterator[Callable[[Path], tuple[Workspace, Path]]]:
    """A factory of a workspace with every kind of file, and the tree that it is to become."""
    with ExitStack() as opened:

        def make(base: Path) -> tuple[Workspace, Path]:
            made = Workspace(base)
            make_lower(made.root, 40)
            make_wanted(base / "wanted", made.root, 40)
            made.open()
            opened.callback(made.lower.close)
            return made, base / "wanted"

        yield make


@pytest.fixture(params=MAKE)
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file system of its own."""
    needs_root()
    kind, command = request.param, MAKE[request.param]
    if command and shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed: scripts/install --tests")
    where = tmp_path / "disk"
    where.mkdir()
    if command:
        with (tmp_path / "image").open("wb") as file:
            file.truncate(320 << 20)
        subprocess.run([*command, tmp_path / "image"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["mount", "-o", "loop", tmp_path / "image", where], check=True)
    else:
        subprocess.run(["mount", "-t", kind, "none", where], check=True)
    yield where
    subprocess.run(["umount", "-l", where], check=True)


@pytest.fixture(params=["disk", "memory"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """dir/sub/deep with a file in each, and one file at the top."""
    with ExitStack() as ending:
        base = tmp_path
        if request.param == "memory":
            if not os.access("/dev/shm", os.W_OK):
                pytest.skip("/dev/shm is missing")
            base = Path(ending.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm")))
        root = base / "root"
        (root / "dir" / "sub" / "deep").mkdir(parents=True)
        for name in ("file", "dir/leaf", "dir/sub/leaf", "dir/sub/deep/leaf"):
            (root / name).write_bytes(b"content")
        fd = os.open(root, os.O_RDONLY)
        ending.callback(os.close, fd)
        if not inotify.tells_all(fd):
            pytest.skip(f"the file system of {base} does not tell of all changes")
        yield root


@pytest.fixture
def lower(root: Path) -> Iterator[HostLower]:
    made = HostLower(str(root))
    yield made
    made.close()


@pytest.fixture
def watcher(lower: HostLower) -> Iterator[LowerWatch]:
    made = LowerWatch(lower)
    yield made
    made.close()
