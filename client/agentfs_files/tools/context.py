"""The input and output of a tool handler.

This module knows the file system's protocol, and no prompt, session or provider: it only declares what a handler needs of them.
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
    """The budget (tokens, money, calls) is used up."""


class BudgetTracker(Protocol):
    def check(self) -> None:
        """Raise BudgetExceededError if no further work may start."""
        ...


@dataclass(slots=True, frozen=True)
class Deadline:
    """A point in time after which no tool starts. ``expires_at`` has a time zone."""

    expires_at: datetime

    def remaining(self) -> timedelta:
        return self.expires_at - datetime.now(UTC)


@dataclass(slots=True, frozen=True)
class ToolContext:
    """The surroundings of a call. Everything is optional: a handler that lacks something says so in its result."""

    prompt: PromptProtocol | None = None
    rendered_prompt: RenderedPromptProtocol | None = None
    adapter: Any = None  # the object that talks to the model; handlers only pass it on
    session: SessionProtocol | None = None
    deadline: Deadline | None = None
    budget_tracker: BudgetTracker | None = None
    filesystem: Filesystem | None = None


@dataclass(slots=True, frozen=True)
class ToolResult(Generic[T_co]):
    """The result of a tool. ``message`` is for the model; ``value`` is the same for programs, None if ``success`` is False."""

    message: str
    value: T_co | None
    success: bool = True


def failed(message: str) -> ToolResult[Any]:
    return ToolResult(message=message, value=None, success=False)
