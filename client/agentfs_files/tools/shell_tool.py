"""shell_execute: run a command where the creator of the tool runs commands, such as in a container. This module starts nothing
itself.
"""

from typing import Annotated, Protocol

import msgspec
from msgspec import Meta

from agentfs_files.tools.context import ToolContext, ToolResult, failed
from agentfs_files.tools.handling import EXPECTED, refusal_of
from agentfs_files.tools.tool import Tool

_LONGEST_S = 3_600


class Executed(Protocol):
    """The result of a command. ``exit_code`` is None after a timeout; ``truncated`` means that parts of the output
    are missing.
    """

    @property
    def exit_code(self) -> int | None: ...

    @property
    def stdout(self) -> str: ...

    @property
    def stderr(self) -> str: ...

    @property
    def truncated(self) -> bool: ...


class Execute(Protocol):
    def __call__(self, command: str, *, timeout_s: float | None = None, directory: str | None = None) -> Executed:
        """Run a command. ``timeout_s`` None means the default time limit. Raises RuntimeError if nothing can be run."""
        ...


class ShellExecuteParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    command: Annotated[str, Meta(description="What sh is to run. Nothing can be typed in while it runs.", min_length=1)]
    directory: Annotated[str | None, Meta(description="Where, relative to the root of the workspace; the root by default.")] = (
        None
    )
    timeout_s: Annotated[
        Annotated[float, Meta(gt=0, le=_LONGEST_S)] | None, Meta(description="Seconds after which it is ended.")
    ] = None


def shell_tool(execute: Execute) -> Tool[ShellExecuteParams, Executed]:
    """Make the tool from a function that runs commands. If the command fails, the tool still succeeds: the exit code tells."""

    def handle(params: ShellExecuteParams, /, *, context: ToolContext) -> ToolResult[Executed]:
        try:
            done = execute(params.command, timeout_s=params.timeout_s, directory=params.directory)
        except EXPECTED as exc:
            return refusal_of(exc, context.filesystem, params.directory or "")
        lines = _lines(done)
        if done.exit_code is None:
            note = "[its time was up, so it was ended; a longer timeout_s, or a command that does less, may help]"
            return failed("\n".join([*lines, note]))
        return ToolResult("\n".join(lines), done)

    description = "Run a shell command in the sandbox, in the workspace. Output that is too long lacks its middle."
    return Tool("shell_execute", description, handle, ShellExecuteParams, writes=True)


def _lines(done: Executed) -> list[str]:
    lines = [done.stdout.rstrip("\n")] if done.stdout else []
    if done.stderr:
        lines += ["[stderr]", done.stderr.rstrip("\n")]
    if done.truncated:
        lines.append("[the output was cut]")
    if done.exit_code is not None and (done.exit_code or not lines):
        lines.append(f"[exit code {done.exit_code}]")
    return lines
