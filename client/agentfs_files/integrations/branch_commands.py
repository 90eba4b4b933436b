"""Run commands in a branch with `agentfsd run`: they see the branch at the mount point, which is the root of its file system."""

import os
import shutil
import sys
from collections.abc import Sequence

from agentfs_files.backends.branch import BranchFilesystem

_PASSED_ON = ("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "AGENTFS_RUNTIME_DIR", "AGENTFS_STATE_HOME")


def run_in_branch(filesystem: BranchFilesystem, command: Sequence[str], options: Sequence[str] = ()) -> list[str]:
    """Return the command line to start, in the mount point, so that *command* runs in the branch.

    Args:
        filesystem: The branch.
        command: The program and its arguments.
        options: Further options of `agentfsd run`.

    Raises:
        FileNotFoundError: `agentfsd` is not in PATH.
        RuntimeError: this process does not see the branch through a mount.
    """
    if not filesystem.is_mounted:
        raise RuntimeError("commands need the mount of the branch, and this process reaches it over the socket alone")
    program = shutil.which("agentfsd") or shutil.which("agentfsd", path=os.path.dirname(sys.executable))
    if program is None:
        raise FileNotFoundError("commands are started by the program agentfsd, which is not in PATH")
    return [program, "run", "-m", filesystem.root, "-b", filesystem.branch, *options, "--", *command]


def passed_on() -> dict[str, str]:
    """Return the variables that `agentfsd run` needs to find the daemon, for callers that start it with few variables."""
    return {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
