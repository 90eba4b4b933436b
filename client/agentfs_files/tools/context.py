"""What a tool handler is given and what it returns. It knows the file system's protocol, and no prompt, session or provider:
of those it says only what a handler may count on.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, Protocol, TypeVar
from uuid import UUID

from agentfs_files.filesystem.filesystem_protocol import Filesystem

T_co = TypeVar("T_co", covariant=True)


class PromptProtocol(Protocol):
    """Source: prompt integration of the file system protocol."""

    def filesystem(self) -> Filesystem | None: ...


class RenderedPromptProtocol(Protocol):
    @property
    def text(self) -> str: ...


class SessionProtocol(Protocol):
    @property
    def session_id(self) -> UUID: ...

    @property
    def tags(self) -> Mapping[str, str]: ...

    def dispatch(self, event: object) -> int: ...


class BudgetExceededError(RuntimeError):
    """What was allotted (tokens, money, calls) is used up."""


class BudgetTracker(Protocol):
    def check(self) -> None:
        """BudgetExceededError when nothing may be started any more."""
        ...


@dataclass(slots=True, frozen=True)
class Deadline:
    """A point in time after which no tool is started. ``expires_at`` has a time zone."""

    expires_at: datetime

    def remaining(self) -> timedelta:
        return self.expires_at - datetime.now(UTC)


@dataclass(slots=True, frozen=True)
class ToolContext:
    """Where a call happens. Everything is optional: a handler says so in its result when it lacks what it needs."""

    prompt: PromptProtocol | None = None
    rendered_prompt: RenderedPromptProtocol | None = None
    adapter: Any = None  # whatever speaks to the model: handlers pass it on
    session: SessionProtocol | None = None
    deadline: Deadline | None = None
    budget_tracker: BudgetTracker | None = None
    filesystem: Filesystem | None = None


@dataclass(slots=True, frozen=True)
class ToolResult(Generic[T_co]):
    """``message`` is what the model reads; ``value`` is the same for programs, None when ``success`` is False."""

    message: str
    value: T_co | None
    success: bool = True


def failed(message: str) -> ToolResult[Any]:
    return ToolResult(message=message, value=None, success=False)
