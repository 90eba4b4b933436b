"""Run a tool call as a model makes it: a tool name and JSON.

An error in the call is returned as a result, so that the model can correct it; an error in a handler is raised.
"""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

import msgspec

from agentfs_files.tools.catalogue import FILESYSTEM_TOOLS
from agentfs_files.tools.context import ToolContext, ToolResult, failed
from agentfs_files.tools.handling import EXPECTED, READ_ONLY, ToolRefused, refusal_of
from agentfs_files.tools.tool import Tool

Arguments = str | bytes | Mapping[str, Any]


def call_tool(
    name: str, arguments: Arguments, context: ToolContext, *, tools: Iterable[Tool[Any, Any]] = FILESYSTEM_TOOLS
) -> ToolResult[Any]:
    """Call one of *tools* with *arguments*: JSON, or the decoded object."""
    known = {tool.name: tool for tool in tools}
    tool = known.get(name)
    if tool is None:
        return failed(_unknown(name, list(known)))
    if (over := _over(context)) is not None:
        return failed(over)
    if tool.writes and context.filesystem is not None and context.filesystem.read_only:
        return failed(READ_ONLY)
    try:
        params = _decoded(arguments, tool)
    except msgspec.MsgspecError as exc:
        return failed(f"{name} does not take that: {exc}. {_takes(tool)}")
    try:
        return tool.handler(params, context=context)
    except (ToolRefused, *EXPECTED) as exc:
        return refusal_of(exc, context.filesystem, str(getattr(params, "path", "")))


def _decoded(arguments: Arguments, tool: Tool[Any, Any]) -> Any:
    if isinstance(arguments, Mapping):
        return msgspec.convert(dict(arguments), tool.params)
    return msgspec.json.decode(arguments or "{}", type=tool.params)  # some providers send "" if there are no arguments


def _unknown(name: str, known: list[str]) -> str:
    import difflib

    close = difflib.get_close_matches(name, known, 1)
    hint = f"Did you mean {close[0]}?" if close else f"There are {', '.join(known)}." if known else "There are none."
    return f"There is no tool {name!r}. {hint}"


def _takes(tool: Tool[Any, Any]) -> str:
    schema = tool.schema()
    required = schema.get("required", [])
    optional = [name for name in schema.get("properties", {}) if name not in required]
    parts = [f"needs {', '.join(required)}"] if required else []
    parts += [f"may have {', '.join(optional)}"] if optional else []
    return f"It {' and '.join(parts)}." if parts else "It takes nothing."


def _over(context: ToolContext) -> str | None:
    """Return why no further work may start."""
    if context.deadline is not None and context.deadline.remaining() <= timedelta(0):
        return "The time for this task is over: no further tool is started. Finish with what there is."
    if context.budget_tracker is not None:
        try:
            context.budget_tracker.check()
        except RuntimeError as exc:
            return f"{str(exc).rstrip('.')}: no further tool is started. Finish with what there is."
    return None
