"""A branch as the workspace of OpenHands' conversations: `Conversation(agent, workspace=AgentFSLocalWorkspace(mount=MOUNT))`.

OpenHands' tools act in the process of the conversation. So this process is bound to the branch, which it and all that it starts
then see at the mount point.
"""

import os
from pathlib import Path
from typing import Any

from agentfs_client import locate
from agentfs_client.extras import needed_for
from agentfs_files.backends.branch import BranchFilesystem
from agentfs_files.integrations.branch_workspace import BranchWorkspace

with needed_for("this workspace needs", "openhands"):
    from openhands.sdk.utils.command import sanitized_env
    from openhands.sdk.workspace import CommandResult, FileOperationResult, LocalWorkspace
    from pydantic import PrivateAttr

_BRANCHES = ".agentfs/branches"
_KILLED = -1  # OpenHands' exit code for a command that took too long


class AgentFSLocalWorkspace(LocalWorkspace):
    """A branch, which stays when the conversation has ended.

    A stored conversation that is continued finds its branch again.

    Attributes:
        mount: The mount point.
        branch: Name of the branch.
        source: The ref that the branch was created from, if it was missing.
        bind: Whether this process is in the branch. A process cannot leave a branch, so conversations in several branches need
            a process each, or ``bind=False``: then ``working_dir`` is the branch's directory below ``.agentfs``, where any
            process sees it, and only execute_command() runs in the branch.
    """

    mount: str = ""
    branch: str = ""
    source: str | None = None
    bind: bool = True

    _workspace: BranchWorkspace = PrivateAttr()

    def __init__(
        self,
        *,
        mount: str | os.PathLike[str] | None = None,
        branch: str | None = None,
        source: str | None = None,
        bind: bool = True,
        **fields: Any,
    ) -> None:
        """Open the branch, and create it if it is missing.

        Args:
            mount: The mount point; None for AGENTFS_MOUNT, the mount around the current directory, or the only one.
            branch: Its name; None for the branch of this process, or a new one with a name of its own.
            source: The ref to create it from; None means the present ``main``.
            bind: As the attribute.
            **fields: The fields of LocalWorkspace, except ``working_dir``.

        Raises:
            AgentFSError: There is no such mount or source, or the daemon cannot be reached.
            RuntimeError: This process is in another branch.
        """
        found = locate.find(os.fspath(mount) if mount else None)
        workspace = _opened(found, branch or None, source, bind=bind)
        root = found.mountpoint
        fields["working_dir"] = root if bind else f"{root}/{_BRANCHES}/{workspace.branch}"
        super().__init__(mount=root, branch=workspace.branch, source=source, bind=bind, **fields)
        self._workspace = workspace

    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        """Let go of the branch, which stays."""
        super().__exit__(exc_type, exc_val, exc_tb)
        self._workspace.close()

    @property
    def filesystem(self) -> BranchFilesystem:
        """The branch, for snapshots, diff and restore."""
        return self._workspace.filesystem

    def execute_command(self, command: str, cwd: str | Path | None = None, timeout: float = 30.0) -> CommandResult:
        """Run a command line with bash in the branch.

        Args:
            command: The command line.
            cwd: The working directory; None means the mount point.
            timeout: Seconds until the command is killed.
        """
        if self.bind:
            return super().execute_command(command, cwd, timeout)
        directory = None if cwd is None else os.path.join(self.mount, self._inside(cwd))
        secrets = [f"--unset={name}" for name in os.environ.keys() - sanitized_env().keys()]
        done = self._workspace.run(["env", *secrets, "bash", "-c", command], directory=directory, timeout_s=timeout)
        return CommandResult(
            command=command,
            exit_code=_KILLED if done.has_timed_out else done.exit_code,
            stdout=done.output.decode("utf-8", "replace"),
            stderr=done.errors.decode("utf-8", "replace"),
            timeout_occurred=done.has_timed_out,
        )

    def file_upload(self, source_path: str | Path, destination_path: str | Path) -> FileOperationResult:
        """Copy a file into the branch. A relative destination begins at the mount point."""
        return super().file_upload(source_path, self._shown(destination_path))

    def file_download(self, source_path: str | Path, destination_path: str | Path) -> FileOperationResult:
        """Copy a file out of the branch. A relative source begins at the mount point."""
        return super().file_download(self._shown(source_path), destination_path)

    def _inside(self, path: str | Path) -> str:
        """Return a path in the branch relative to its root; an absolute path elsewhere stays."""
        text = str(path)
        for root in (self.working_dir, self.mount):
            if text == root or text.startswith(f"{root}/"):
                return text[len(root) :].strip("/")
        return text

    def _shown(self, path: str | Path) -> str:
        """Return where this process sees a path of the branch."""
        return os.path.join(self.working_dir, self._inside(path))


def _opened(found: locate.Mount, branch: str | None, source: str | None, *, bind: bool) -> BranchWorkspace:
    """Open the branch, and put this process into it with *bind*."""
    with found.connect() as client:
        hello = client.hello
        if hello.bound:
            if branch not in (None, hello.branch):
                raise RuntimeError(
                    f"this process is in the branch {hello.branch}, not in {branch}; start another process for that"
                )
            return BranchWorkspace(BranchFilesystem(hello.branch, mount=found.mountpoint))
        workspace = BranchWorkspace.open(found.mountpoint, branch=branch, source=source)
        if bind:
            client.bind(os.getpid(), workspace.branch)
    return workspace
