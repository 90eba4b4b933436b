"""A section with a sandbox: the tools for files work on its workspace, and a shell in its container on the same files."""

from typing import Annotated, Any, Unpack

import msgspec
from msgspec import Meta

from agentfs_client.backends.podman_command import CommandResult
from agentfs_client.backends.podman_sandbox import PodmanSandbox, PodmanSandboxConfig
from agentfs_client.filesystem.protocol import Filesystem
from agentfs_client.session.session import Session
from agentfs_client.session.typevars import ParamsT
from agentfs_client.session.workspaces import FilesystemSection, SectionOptions
from agentfs_client.tools.catalogue import FILESYSTEM_TOOLS
from agentfs_client.tools.context import ToolContext, ToolResult, failed
from agentfs_client.tools.tool import Tool

_TEMPLATE = (
    "You work in a container. shell_execute runs commands there, in the directory /workspace; the tools for files see the same "
    "directory, and take paths relative to it."
)


class ShellExecuteParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    command: Annotated[str, Meta(description="What to run, as for `sh -c`. It gets no input.", min_length=1)]
    directory: Annotated[str, Meta(description="Where to run it, relative to the workspace.")] = "."
    timeout_s: Annotated[
        Annotated[float, Meta(gt=0)] | None, Meta(description="Seconds after which it is ended; left out: as the sandbox has it.")
    ] = None


class PodmanSandboxSection(FilesystemSection[ParamsT]):
    """``sandbox``: one to share, else the section makes one by *config*, named after the session, and closes it with close()."""

    def __init__(
        self,
        *,
        session: Session | None = None,
        config: PodmanSandboxConfig | None = None,
        sandbox: PodmanSandbox | None = None,
        **options: Unpack[SectionOptions],
    ) -> None:
        self._is_own = sandbox is None
        self.sandbox = sandbox or PodmanSandbox(config, sandbox_id=None if session is None else session.session_id)
        shell: Tool[Any, Any] = Tool(
            "shell_execute",
            "Run a command in the container. Of a long output you see the beginning and the end.",
            self._shell, ShellExecuteParams, CommandResult, writes=True,
        )  # fmt: skip
        defaults: SectionOptions = {
            "title": "Sandbox", "key": "podman", "template": _TEMPLATE, "tools": (*FILESYSTEM_TOOLS, shell),
            "accepts_overrides": False,
        }  # fmt: skip
        super().__init__(**(defaults | options))

    def _create_backend(self) -> Filesystem:
        return self.sandbox.filesystem

    def _shell(self, params: ShellExecuteParams, /, *, context: ToolContext) -> ToolResult[CommandResult]:
        if context.filesystem is not None and context.filesystem.read_only:
            return failed("The file system is read-only, so no command can be run.")
        try:
            result = self.sandbox.execute(params.command, directory=params.directory, timeout_s=params.timeout_s)
        except RuntimeError as exc:
            return failed(f"The command was not run: {exc}.")
        return ToolResult(_told(result), result, success=True)

    def close(self) -> None:
        """Ends the sandbox, unless it was given."""
        if self._is_own:
            self.sandbox.close()


def _told(result: CommandResult) -> str:
    end = "ended because its time was up" if result.timed_out else f"exit code {result.exit_code}"
    parts = [f"{end}, {result.duration_s:.1f} s"]
    parts += [f"{name}:\n{text.rstrip()}" for name, text in (("stdout", result.stdout), ("stderr", result.stderr)) if text]
    return "\n".join(parts)
