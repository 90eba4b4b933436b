"""Where the changes of each branch to the home directory are kept: one directory for each branch that has any.

A layer's directory holds ``upper`` and ``work``, which belong to the kernel's overlayfs, and ``home``, a symbolic link to the
home directory that the layer is for. A layer that a discard has put aside for undo is named BRANCH@SNAPSHOT. This module mounts
nothing.
"""

import contextlib
import errno
import os
import time

from agentfs_host.tree_removal import remove_tree
from agentfsd.domain_errors import Refusal
from agentfsd.state.state_directory import StateDirectory

_GONE = ".gone-"


class HomeLayerStore:
    """The layers of one overlay."""

    def __init__(self, state: StateDirectory) -> None:
        self.path = state.home_layers

    def create(self) -> None:
        """Create the directory of all layers."""
        os.makedirs(self.path, mode=0o700, exist_ok=True)

    def upper(self, branch_id: str) -> str:
        """Return the directory with a branch's changes, which exists if a run has had a layer."""
        return os.path.join(self.path, branch_id, "upper")

    def home(self, branch_id: str) -> str:
        """Return the home directory that a branch's layer is for; "" if it has none."""
        try:
            return os.readlink(os.path.join(self.path, branch_id, "home"))
        except FileNotFoundError:
            return ""

    def make(self, branch_id: str, home: str) -> None:
        """Make an empty layer, unless the branch has one.

        Raises:
            Refusal: ``other-home`` if the branch's layer is for another directory.
        """
        there = self.home(branch_id)
        if there and there != home:
            raise Refusal(
                errno.EINVAL, "other-home", f"the branch has changes to another home directory, {there}", "set HOME to it"
            )
        layer = os.path.join(self.path, branch_id)
        for name in ("upper", "work"):
            os.makedirs(os.path.join(layer, name), mode=0o700, exist_ok=True)
        if not there:
            mode = os.stat(home).st_mode & 0o7777
            os.chmod(os.path.join(layer, "upper"), mode)  # the kernel shows it as the home directory's own
            os.symlink(home, os.path.join(layer, "home"))

    def has_changes(self, branch_id: str) -> bool:
        """Return whether there is anything in a branch's layer."""
        try:
            with os.scandir(self.upper(branch_id)) as found:
                return any(True for _ in found)
        except FileNotFoundError:
            return False

    def put_aside(self, branch_id: str, snapshot: str) -> None:
        """Take a layer away until bring_back()."""
        with contextlib.suppress(FileNotFoundError):
            os.rename(os.path.join(self.path, branch_id), os.path.join(self.path, aside(branch_id, snapshot)))

    def is_aside(self, branch_id: str, snapshot: str) -> bool:
        """Return whether put_aside() has taken a layer away."""
        return os.path.isdir(os.path.join(self.path, aside(branch_id, snapshot)))

    def bring_back(self, branch_id: str, snapshot: str) -> None:
        """Give a branch without a layer the one that put_aside() has taken away."""
        os.rename(os.path.join(self.path, aside(branch_id, snapshot)), os.path.join(self.path, branch_id))

    def forget(self, branch_id: str) -> None:
        """Take a layer away. sweep() removes its files."""
        with contextlib.suppress(FileNotFoundError):
            os.rename(os.path.join(self.path, branch_id), os.path.join(self.path, f"{_GONE}{time.time_ns()}"))

    def names(self) -> list[str]:
        """Return the names of all layers: branch ids, and others for layers that were taken away."""
        try:
            return os.listdir(self.path)
        except FileNotFoundError:
            return []

    def remove(self, name: str) -> None:
        """Remove a layer with its files. OSError."""
        remove_tree(os.path.join(self.path, name))


def aside(branch_id: str, snapshot: str) -> str:
    """Return the name of a layer that was put aside with a snapshot of its branch."""
    return f"{branch_id}@{snapshot}"
