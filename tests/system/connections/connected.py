"""Processes that see one branch over several connections."""

import os
import subprocess
from pathlib import Path

from tests.mounted import AGENTFSD, Mounted
from tests.system.stepper import COMMAND, PIPES, Stepper

IO_MODES = ["zero-message", "passthrough", "cached"]
PAIRS = [
    *((mode, mode) for mode in IO_MODES),  # of runs of one branch the first decides: they share one connection
    *((one, view) for one in IO_MODES for view in ("subtree", "pid")), ("subtree", "pid"),
]  # fmt: skip


class Places:
    """Processes that see one branch, each in a way of its own; main through the pid view where that is named."""

    def __init__(self, mounted: Mounted, branch: str) -> None:
        self.mounted, self.branch = mounted, branch
        self.started: list[subprocess.Popen[str]] = []

    @property
    def tree(self) -> Path:
        return self.mounted.subtree(self.branch)

    def command(self, view: str, *command: str) -> subprocess.Popen[str]:
        """*view*: a mode of --io, "pid", or "subtree" for an unbound process below .agentfs."""
        where = self.tree if view == "subtree" else self.mounted.path
        arguments: list[str] = []
        if view != "subtree":
            options = ["--no-namespace"] if view == "pid" else ["--io", view]
            arguments = [*AGENTFSD, "run", "-m", str(self.mounted.path), "-b", self.branch, *options, "--"]
        self.started.append(subprocess.Popen([*arguments, *command], text=True, cwd=where, **PIPES))
        return self.started[-1]

    def start(self, view: str) -> Stepper:
        return Stepper(self.command(view, *COMMAND))

    def end(self) -> None:
        for process in self.started:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
            try:
                process.wait(20)
            finally:
                process.kill()
                process.wait()


def build(lower: Path) -> None:
    (lower / "sub" / "deep").mkdir(parents=True)
    (lower / "file").write_text("lower\n")
    (lower / "sub" / "inner").write_text("inner\n")
    (lower / "sub" / "deep" / "leaf").write_text("leaf\n")
    (lower / "link").symlink_to("file")


def warm(see: Stepper) -> None:
    """Has the kernel cache whatever it will of what the other is about to change."""
    for _ in range(2):
        assert see("names", ".") == ["file", "link", "sub"]
        assert see("names", "sub") == ["deep", "inner"]
        assert see("stat", "file")[2] == 6
        assert see("read", "file") == "lower\n"
        assert see("read", "sub/inner") == "inner\n"
        assert not see("exists", "new")
        assert not see("exists", "sub/new")
        assert see("stat", "sub/deep/leaf")[2] == 5
        assert see("read", "link") == "lower\n"
    see("open", "file", "file", os.O_RDONLY)
    see("map", "file", False)
    assert see("peek", "file", 6, 0) == "lower\n"
    see("open", "inner", "sub/inner", os.O_RDONLY)
