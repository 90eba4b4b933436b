"""Which branches are linked worktrees of a git repository, and the ``.git`` file that each shows at ``.agentfs/branches/NAME``.

A linked worktree has a file ``.git`` that leads to a directory in the repository, where git keeps the worktree's HEAD and index
(gitrepository-layout(5)). The branch stores no such file: it would be in its diffs, in its commits into the lower, and at the
workspace's own path in a run, where it leads nowhere. So a view of the mount shows it, in place of the branch's own ``.git``.
"""

from agentfsd.core.overlay_state import WORKTREE, OverlayState
from agentfsd.domain_errors import invalid

GIT_FILE = b".git"


class LinkedWorktrees:
    """The branches of one overlay that are linked worktrees."""

    def __init__(self, state: OverlayState) -> None:
        self._state = state

    def __len__(self) -> int:
        return len(self._state.worktrees)

    def directory(self, branch_id: str) -> str:
        """Return git's directory of the worktree that a branch is; "" if it is none."""
        return self._state.worktrees.get(branch_id, "")

    def file(self, branch_id: str) -> bytes:
        """Return the content of the ``.git`` file of the worktree that a branch is; b"" if it is none."""
        found = self._state.worktrees.get(branch_id)
        return b"" if found is None else f"gitdir: {found}\n".encode("utf-8", "surrogateescape")

    def set(self, branch_id: str, directory: str) -> None:
        """Make a branch the worktree of which git keeps its files in *directory*; "": it is one no more.

        Raises:
            Refusal: ``invalid`` if the directory is no absolute path on one line.
        """
        if directory and (not directory.startswith("/") or "\n" in directory or "\0" in directory):
            raise invalid(f"{directory!r} is no directory of a worktree", "give an absolute path")
        with self._state.store.transaction() as tx:
            self._state.store.put_value(WORKTREE + branch_id, directory)
            tx.put(self._state.worktrees, branch_id, directory or None)
