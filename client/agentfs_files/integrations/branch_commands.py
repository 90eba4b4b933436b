"""Commands in a branch, by `agentfsd run`: they see the branch at the mount point, where its file system has its root."""

import os
import shutil
import sys
from collections.abc import Sequence

from agentfs_files.backends.branch import BranchFilesystem

_PASSED_ON = ("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "AGENTFS_RUNTIME_DIR", "AGENTFS_STATE_HOME")


def run_in_branch(filesystem: BranchFilesystem, command: Sequence[str]) -> list[str]:
    """What is to be started, in the mount point, for *command* to run. FileNotFoundError without `agentfsd`, RuntimeError for a
    branch that this process does not see through a mount."""
    if not filesystem.is_mounted:
        raise RuntimeError("commands need the mount of the branch, and this process reaches it over the socket alone")
    program = shutil.which("agentfsd") or shutil.which("agentfsd", path=os.path.dirname(sys.executable))
    if program is None:
        raise FileNotFoundError("commands are started by the program agentfsd, which is not in PATH")
    return [program, "run", "-m", filesystem.root, "-b", filesystem.branch, "--", *command]


def passed_on() -> dict[str, str]:
    """Variables that `agentfsd run` needs to find the daemon, for who starts it with few others."""
    return {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
