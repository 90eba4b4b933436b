"""Build the context in which an adapter calls a tool of a rendered prompt."""

from typing import Any

from agentfs_files.filesystem.filesystem_protocol import Filesystem
from agentfs_files.session.agent_session import Session
from agentfs_files.session.prompt import RenderedPrompt, WorkspaceSection
from agentfs_files.tools.context import BudgetTracker, Deadline, ToolContext
from agentfs_files.tools.tool import Tool


def build_tool_context(
    rendered: RenderedPrompt[Any],
    *,
    tool: Tool[Any, Any] | str | None = None,
    session: Session | None = None,
    adapter: Any = None,
    deadline: Deadline | None = None,
    budget_tracker: BudgetTracker | None = None,
) -> ToolContext:
    """Return a context with the file system of the tool's section, if it has one; else with that of the prompt."""
    return ToolContext(
        rendered.prompt, rendered, adapter, session, deadline or rendered.deadline, budget_tracker, _filesystem(rendered, tool)
    )


def _filesystem(rendered: RenderedPrompt[Any], tool: Tool[Any, Any] | str | None) -> Filesystem | None:
    section = None if tool is None else rendered.section_of(tool)
    return section.filesystem if isinstance(section, WorkspaceSection) else rendered.prompt.filesystem()
