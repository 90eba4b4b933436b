"""A file system as an MCP server over standard input and output, with the tools of the reference file system server and more.

Tools run in a thread, one at a time. Meanwhile the server answers pings and accepts cancellations.
"""

import gc
import logging
import os
import signal
import sys
from collections.abc import Iterable
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, TextIO, cast

import msgspec
from msgspec import structs

from agentfs_client.extras import needed_for
from agentfs_files.filesystem.filesystem_protocol import Filesystem, SnapshotableFilesystem
from agentfs_files.filesystem.size_limits import without_path_limits
from agentfs_files.integrations.mcp import mcp_stdin
from agentfs_files.integrations.mcp.mcp_failures import EXPECTED, sentence
from agentfs_files.integrations.mcp.mcp_history import DiffSnapshot, DiffWithPatch, ListSnapshots, RestoreSnapshot, TakeSnapshot
from agentfs_files.integrations.mcp.mcp_listing import (
    DirectoryTree,
    GetFileInfo,
    ListAllowedDirectories,
    ListDirectory,
    ListDirectoryWithSizes,
    SearchFiles,
)
from agentfs_files.integrations.mcp.mcp_notes import ListNotes, ReplyNote
from agentfs_files.integrations.mcp.mcp_reading import ReadFile, ReadMediaFile, ReadMultipleFiles, ReadTextFile
from agentfs_files.integrations.mcp.mcp_refusal import McpRefused
from agentfs_files.integrations.mcp.mcp_searching import Glob, Grep
from agentfs_files.integrations.mcp.mcp_tool import McpTool, Workspace
from agentfs_files.integrations.mcp.mcp_writing import CreateDirectory, EditFile, MoveFile, WriteFile
from agentfs_files.tools.tool import json_schema

if TYPE_CHECKING:
    from anyio import CapacityLimiter
    from mcp import types
    from mcp.server.lowlevel import Server

NAME = "agentfsd"
_PATHS = ("path", "source", "destination")  # arguments of tools
_ENDED_BY = (signal.SIGTERM, signal.SIGINT)

_log = logging.getLogger(__name__)

_TOOLS: tuple[type[McpTool], ...] = (
    ReadTextFile, ReadMediaFile, ReadMultipleFiles, WriteFile, EditFile, CreateDirectory, ListDirectory, ListDirectoryWithSizes,
    DirectoryTree, MoveFile, SearchFiles, GetFileInfo, ListAllowedDirectories, ReadFile,
    Glob, Grep, TakeSnapshot, RestoreSnapshot, ListSnapshots, DiffSnapshot, DiffWithPatch, ListNotes, ReplyNote,
)  # fmt: skip


def run(filesystem: Filesystem, *, snapshot_each_change: bool = False) -> None:
    """Serve until the client closes standard input. Meant for a process of its own.

    SIGTERM and SIGINT end the process with exit code 0 as soon as the running tool has finished.
    """
    gc.disable()  # the thousands of objects of that package stay for ever; walking through them takes a tenth of the start
    with needed_for("serving MCP needs", "mcp"):
        import anyio
        import pydantic

        pydantic.BaseModel.model_config["defer_build"] = True  # a conversation uses few of its types: a fifth of the start
        import mcp.server.stdio  # noqa: F401 - only loaded here
    gc.freeze()
    gc.enable()

    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)

    async def until_ended() -> None:
        one_at_a_time = anyio.CapacityLimiter(1)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_end_by_signal, one_at_a_time)
            await _serve(make_server(filesystem, snapshot_each_change=snapshot_each_change, limiter=one_at_a_time))
            tasks.cancel_scope.cancel()

    anyio.run(until_ended)


async def serve(filesystem: Filesystem, *, snapshot_each_change: bool = False) -> None:
    """Serve on standard input and output until the client closes them."""
    await _serve(make_server(filesystem, snapshot_each_change=snapshot_each_change))


async def _serve(server: "Server[Any]") -> None:
    import anyio
    from mcp.server.stdio import stdio_server

    lines = cast("TextIO", mcp_stdin.claim())
    async with stdio_server(stdin=anyio.wrap_file(lines)) as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


async def _end_by_signal(one_at_a_time: "CapacityLimiter") -> None:
    import anyio

    with anyio.open_signal_receiver(*_ENDED_BY) as signals:
        async for _ in signals:
            async with one_at_a_time:
                sys.stderr.flush()
                os._exit(0)  # the thread that reads standard input cannot be interrupted


def make_server(
    filesystem: Filesystem, *, snapshot_each_change: bool = False, limiter: "CapacityLimiter | None" = None
) -> "Server[Any]":
    """Make a server for any transport of the package `mcp`.

    Args:
        filesystem: The file system to serve.
        snapshot_each_change: Before each tool that changes files, take a snapshot whose tag describes the change.
        limiter: Held while a tool runs. It must admit one tool at a time.
    """
    with needed_for("serving MCP needs", "mcp"):
        import anyio
        import anyio.to_thread
        from mcp import types
        from mcp.server.lowlevel import Server

    without_path_limits(filesystem)
    workspace = Workspace(filesystem)
    tools = {tool.name: tool for tool in _offered(filesystem)}
    listed = [_description(tool) for tool in tools.values()]
    with_snapshots = snapshot_each_change and isinstance(filesystem, SnapshotableFilesystem)
    one_at_a_time = limiter or anyio.CapacityLimiter(1)

    async def list_tools(context: Any, parameters: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=listed)

    async def call_tool(context: Any, parameters: types.CallToolRequestParams) -> types.CallToolResult:
        tool = tools.get(parameters.name)
        if tool is None:
            return _failure(f"there is no tool {parameters.name}; there are {', '.join(tools)}")  # which the model sees
        given = parameters.arguments or {}
        return await anyio.to_thread.run_sync(_call, tool, given, workspace, with_snapshots, limiter=one_at_a_time)

    return Server(
        NAME,
        version=version("agentfsd"),
        instructions=_instructions(workspace, tools),
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _offered(filesystem: Filesystem) -> Iterable[type[McpTool]]:
    return (tool for tool in _TOOLS if isinstance(filesystem, tool.needs) and not (tool.changes and filesystem.read_only))


def _instructions(workspace: Workspace, tools: Iterable[str]) -> str:
    parts = [f"All paths are beneath {workspace.root}; they may be given relative to it."]
    if RestoreSnapshot.name in tools:
        parts.append(
            "snapshot fixes the state of all files in an instant and restore brings it back: use them around risky steps."
        )
    if ListNotes.name in tools:
        parts.append("notes_list has what people say about your work.")
    if workspace.filesystem.read_only:
        parts.append("Nothing can be changed here.")
    return " ".join(parts)


def _description(tool: type[McpTool]) -> "types.Tool":
    from mcp import types

    schema, result = json_schema(tool), json_schema(tool.result)
    for noise in (schema, result):
        noise.pop("description", None)
    annotations = types.ToolAnnotations(
        title=tool.title, read_only_hint=not tool.changes, open_world_hint=False,
        destructive_hint=tool.destroys if tool.changes else None, idempotent_hint=tool.repeatable if tool.changes else None,
    )  # fmt: skip
    said = " ".join((tool.__doc__ or "").split())
    return types.Tool(
        name=tool.name, title=tool.title, description=said, input_schema=schema, output_schema=result, annotations=annotations
    )


def _call(tool: type[McpTool], given: dict[str, Any], workspace: Workspace, with_snapshot: bool) -> "types.CallToolResult":
    path = str(given.get("path") or given.get("destination") or "")
    try:
        tool_call = msgspec.convert(given, tool, strict=False)
        tool_call = structs.replace(tool_call, **{name: workspace.locate(getattr(tool_call, name)) for name in _paths_of(tool)})
        if with_snapshot and tool.changes and tool not in (TakeSnapshot, RestoreSnapshot, ReplyNote):
            workspace.snapshot(f"before {tool.name} {path}".rstrip())
        return _answer(tool_call.run(workspace))
    except msgspec.ValidationError as exc:
        known = ", ".join(tool.__struct_encode_fields__) or "none"
        return _failure(f"{tool.name} cannot be called so: {exc}; its arguments: {known}")
    except (McpRefused, *EXPECTED) as exc:
        return _failure(sentence(exc, path, workspace.root))
    except Exception as exc:  # noqa: BLE001 - no error in a tool may end the server
        _log.exception("%s failed", tool.name)
        return _failure(f"{tool.name} failed: an internal error ({type(exc).__name__}), which the log of this server tells about")


def _paths_of(tool: type[McpTool]) -> Iterable[str]:
    return (name for name in _PATHS if name in tool.__struct_fields__)


def _answer(result: Any) -> "types.CallToolResult":
    from mcp import types

    structured = _sendable(msgspec.to_builtins(result))
    content = structured["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return types.CallToolResult.model_validate({"content": blocks, "structuredContent": structured})


def _failure(said: str) -> "types.CallToolResult":
    from mcp import types

    return types.CallToolResult(content=[types.TextContent(type="text", text=_sendable(said))], is_error=True)


def _sendable(value: Any) -> Any:
    r"""Spell out the bytes of names that are not UTF-8 (`\udcff`). Sent as they are, they would end the conversation."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {key: _sendable(item) for key, item in value.items()}
    return list(map(_sendable, value)) if isinstance(value, list | tuple) else value
