"""Turn work on a file system into a handler. Errors of the model and refusals of the file system become sentences that say what
to do next.
"""

import os
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from agentfs_files.filesystem.filesystem_errors import PathEscapeError, RootError
from agentfs_files.filesystem.filesystem_protocol import Filesystem
from agentfs_files.tools.context import ToolContext, ToolResult, failed
from agentfs_files.tools.tool import Handler
from agentfs_files.tools.tool_limits import DEFAULT_TOOL_LIMITS, ToolLimits


class HasPath(Protocol):
    @property
    def path(self) -> str: ...


P = TypeVar("P", bound=HasPath)
R = TypeVar("R")

Work = Callable[[P, Filesystem, ToolLimits], ToolResult[R]]

EXPECTED = (OSError, ValueError, RuntimeError)  # errors that the model is told about; any other is a bug in the program

NO_FILESYSTEM = "There is no file system in this context. Give the prompt a section that has one."
READ_ONLY = (
    "The file system is read-only: nothing can be written, changed or removed. Read what is there, and put changes into words."
)


class ToolRefused(Exception):
    """A tool refuses a call. The message is for the model."""


def on_filesystem(work: Work[P, R], *, writes: bool = False, limits: ToolLimits = DEFAULT_TOOL_LIMITS) -> Handler[P, R]:
    """Return a handler that does *work* on the file system of its context."""

    def handle(params: P, /, *, context: ToolContext) -> ToolResult[R]:
        filesystem = context.filesystem
        if filesystem is None:
            return failed(NO_FILESYSTEM)
        if writes and filesystem.read_only:
            return failed(READ_ONLY)
        try:
            return work(params, filesystem, limits)
        except (ToolRefused, *EXPECTED) as exc:
            return refusal_of(exc, filesystem, params.path)

    return handle


def refusal_of(exc: Exception, filesystem: Filesystem | None, path: str) -> ToolResult[Any]:
    """Return the result for an exception about *path*. Raise exceptions again that a model cannot have caused."""
    if isinstance(exc, NotImplementedError | RecursionError):
        raise exc
    return failed(str(exc) if isinstance(exc, ToolRefused) else _explained(exc, filesystem, path))


def _explained(exc: Exception, filesystem: Filesystem | None, path: str) -> str:
    if isinstance(exc, FileNotFoundError):
        return f"{path} does not exist.{_nearby(filesystem, path)}"
    for kind, sentence in _SENTENCES.items():
        if isinstance(exc, kind):
            return sentence.format(path=path, said=_said(exc))
    return f"{_said(exc)}."


_SENTENCES: dict[type[Exception], str] = {
    RootError: "The root of the workspace can be neither written nor removed; name something inside it.",
    PathEscapeError: "{path} leads out of the workspace. Give a path relative to its root, such as src/main.py.",
    IsADirectoryError: "{path} is a directory. ls shows what is in it.",
    NotADirectoryError: "{path}: one of the names before a slash is a file, not a directory. ls shows what there is.",
    FileExistsError: "{path} exists already. Use mode=overwrite to replace it, mode=append to add to it, or take another name.",
    PermissionError: "{path} may not be touched: {said}.",
    UnicodeDecodeError: "{path} is not UTF-8 text, and the tools show and edit only such.",
    UnicodeEncodeError: "The text holds characters that UTF-8 cannot express (halves of a surrogate pair). Leave them out.",
}


def _said(exc: Exception) -> str:
    if isinstance(exc, OSError) and exc.errno is not None and not getattr(exc, "code", ""):
        return exc.strerror or os.strerror(exc.errno)
    return str(exc).rstrip(".") or type(exc).__name__


def _nearby(filesystem: Filesystem | None, path: str) -> str:
    """Suggest similar names in the nearest existing directory above."""
    import difflib

    if filesystem is None:
        return ""
    above, _, name = path.strip("/").rpartition("/")
    while above and not filesystem.exists(above):
        above, _, name = above.rpartition("/")
    try:
        names = {entry.name: entry.path for entry in filesystem.list(above or ".")}
    except EXPECTED:
        return ""
    close = [names[found] for found in difflib.get_close_matches(name, names, 3, 0.6)]
    if close:
        return f" Did you mean {' or '.join(close)}?"
    return f" ls shows what there is in {above or 'the root'}; glob finds files anywhere." if names else ""
