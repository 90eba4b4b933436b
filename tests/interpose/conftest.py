"""A mount that gives out descriptors, and commands that get them by the preloaded library."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentfs_client.control import ControlClient
from agentfs_client.interpose import library
from tests.mounted import Mounted, agentfsd, needs_fuse


class Forwarding:
    """``path``: the mount point."""

    def __init__(self, mounted: Mounted, base: Path) -> None:
        self.mounted, self.path, self.trace = mounted, mounted.path, base / "trace"
        self._places = {name: os.environ[name] for name in ("AGENTFS_STATE_HOME", "AGENTFS_RUNTIME_DIR")}
        self._branches = set[str]()
        with ControlClient.open_mount(str(mounted.path)) as daemon:
            daemon.set_interpose("enabled", "on")
            daemon.set_interpose("min_read_bytes", "64k")

    def run(self, branch: str, *command: str, plain: bool = False, io: str = "auto") -> str:
        """What the command prints, in a branch that is made if need be; *plain*: without the library."""
        new = ["--new"] * (branch not in self._branches)
        self._branches.add(branch)
        options = ["-m", str(self.path), "-b", branch, *new, "--io", io, *["--interpose"] * (not plain)]
        environment = os.environ | self._places | {"AGENTFS_INTERPOSE_TRACE": str(self.trace), "LC_ALL": "C"}
        return agentfsd("run", *options, "--", *command, cwd=self.path, env=environment, stdin=subprocess.DEVNULL).stdout

    def forwarded(self) -> set[str]:
        """The names, below the mount point, that the library has got descriptors of."""
        lines = self.trace.read_text().splitlines() if self.trace.exists() else []
        paths = [line.split(" ", 3)[3] for line in lines if line.startswith("forwarded ")]
        return {os.path.relpath(path, self.path) for path in paths}

    def tree(self, branch: str) -> dict[str, bytes]:
        """Every file of a branch as somebody sees it who knows no library."""
        root = self.mounted.subtree(branch)
        return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def mount_that_forwards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forwarding]:
    """Made once for all: each test has branches of its own."""
    needs_fuse()
    if library() is None:
        pytest.skip("the preloaded library was not compiled: apt-get install gcc, then scripts/install")
    base = tmp_path_factory.mktemp("forwarding")
    lower = base / "lower"
    lower.mkdir()
    (lower / "small").write_text("lower\n")
    (lower / "large").write_bytes(bytes(range(256)) * 1024)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENTFS_STATE_HOME", str(base / "places"))
        patch.setenv("AGENTFS_RUNTIME_DIR", str(base / "run"))
        mounted = Mounted(base, lower).mount()
        try:
            yield Forwarding(mounted, base)
        finally:
            mounted.end()


@pytest.fixture
def forwarding(mount_that_forwards: Forwarding) -> Forwarding:
    mount_that_forwards.trace.unlink(missing_ok=True)
    return mount_that_forwards


@pytest.fixture
def compiled(tmp_path: Path) -> Callable[[str], str]:
    """Compiles a program beside these tests; its path."""

    def build(name: str) -> str:
        if shutil.which("gcc") is None:
            pytest.skip("gcc is not installed: apt-get install gcc")
        source, made = Path(__file__).with_name(name), tmp_path / name.removesuffix(".c")
        subprocess.run(["gcc", "-O1", "-Wall", "-Werror", "-pthread", "-o", str(made), str(source)], check=True)
        return str(made)

    return build
