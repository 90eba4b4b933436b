"""A prompt section whose files and commands are those of a podman container. The files exist at once; the first command starts
the container.
"""

from typing import TYPE_CHECKING, Unpack, cast

from agentfs_files.filesystem.filesystem_protocol import Filesystem
from agentfs_files.filesystem.records import FilesystemSnapshot
from agentfs_files.session.agent_session import Session
from agentfs_files.session.typevars import ParamsT
from agentfs_files.session.workspaces import FilesystemSection, SectionOptions
from agentfs_files.tools.catalogue import FILESYSTEM_TOOLS
from agentfs_files.tools.shell_tool import Executed, shell_tool

if TYPE_CHECKING:
    from agentfs_files.backends.host import HostFilesystem
    from agentfs_files.backends.podman_sandbox import PodmanSandbox, PodmanSandboxConfig

_TEMPLATE = """
    You work in a sandbox, a container with the workspace at its working directory. The tools for files and shell_execute see the
    same files. Paths may be relative to the workspace, or absolute as the shell has them.
"""


class PodmanSandboxSection(FilesystemSection[ParamsT]):
    """A section with a sandbox.

    ``sandbox`` is an existing one. Without it, the first use creates one from ``config``, with a workspace named after
    ``session``. close() ends it.
    """

    def __init__(
        self,
        *,
        session: Session | None = None,
        config: "PodmanSandboxConfig | None" = None,
        sandbox: "PodmanSandbox | None" = None,
        **options: Unpack[SectionOptions],
    ) -> None:
        own: SectionOptions = {
            "title": "Sandbox", "key": "podman", "template": _TEMPLATE, "accepts_overrides": False,
            "tools": (*FILESYSTEM_TOOLS, shell_tool(self._execute)),
        }  # fmt: skip
        super().__init__(**(own | options))
        self._session, self._config, self._sandbox = session, config, sandbox

    @property
    def sandbox(self) -> "PodmanSandbox":
        if self._sandbox is None:
            from agentfs_files.backends.podman_sandbox import PodmanSandbox

            sandbox_id = None if self._session is None else self._session.session_id
            self._sandbox = PodmanSandbox(self._config, sandbox_id=sandbox_id)
        return self._sandbox

    @property
    def filesystem(self) -> "HostFilesystem":
        return cast("HostFilesystem", super().filesystem)

    def _create_backend(self) -> Filesystem:
        return self.sandbox.filesystem

    def _execute(self, command: str, *, timeout_s: float | None = None, directory: str | None = None) -> Executed:
        return self.sandbox.execute(command, timeout_s=timeout_s, directory=directory)

    def snapshot(self, *, tag: str | None = None) -> FilesystemSnapshot:
        """Take a snapshot with the configured strategy. Raises SnapshotCreationError."""
        return self.sandbox.snapshot(tag=tag)

    def restore(self, snapshot: FilesystemSnapshot) -> None:
        """Restore a snapshot. Raises SnapshotRestoreError."""
        self.sandbox.restore(snapshot)

    def close(self) -> None:
        """Remove the container, and the workspace if it is temporary."""
        if self._sandbox is not None:
            self._sandbox.close()


PodmanSection = PodmanSandboxSection  # the name in the tool operations
