"""A file system in memory that records every call, for tests of handlers and tools. Otherwise it works normally."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from agentfs_files.backends.in_memory import InMemoryFilesystem
from agentfs_files.filesystem.file_results import WriteMode
from agentfs_files.filesystem.size_limits import DEFAULT_LIMITS, Limits

_READS = ("open_read", "open_text", "read", "read_bytes")
_WRITES = ("write", "write_bytes")
_OTHERS = (
    "open_write", "exists", "stat", "list", "glob", "grep", "delete", "mkdir", "export_archive", "import_archive", "snapshot",
    "restore", "diff",
)  # fmt: skip


class Call(NamedTuple):
    """A call of a method, with its arguments as the caller gave them."""

    method: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]


class MockFilesystem(InMemoryFilesystem):
    """An in-memory file system that records calls. Calls that one method of the file system makes to another are not recorded.

    Args:
        files: The initial files, as text by path. Creating them is not recorded.

    Attributes:
        calls: Every call, in order.
        read_calls: The path of every read, of whatever kind, as the caller gave it.
        write_calls: The path and content of every write; for ``open_write`` recorded when the writer is closed.
    """

    def __init__(
        self,
        files: Mapping[str, str | bytes] | None = None,
        *,
        read_only: bool = False,
        mount_point: str | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self.calls: list[Call] = []
        self.read_calls: list[str] = []
        self.write_calls: list[tuple[str, str | bytes]] = []
        self._is_inside = True
        super().__init__(dict(files or {}), read_only=read_only, mount_point=mount_point, limits=limits)
        self._is_inside = False

    def store(self, path: str, content: bytes, mode: WriteMode) -> None:
        """Write a file, and record it as a write."""
        if not self._is_inside:  # a writer is closed
            self.write_calls.append((path, _as_text(content)))
        super().store(path, content, mode)

    def record(self, method: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        """Record a call."""
        self.calls.append(Call(method, arguments, options))
        if method in _READS:
            self.read_calls.append(arguments[0] if arguments else options["path"])
        elif method in _WRITES:
            path, content = (*arguments, *(options[name] for name in ("path", "content") if name in options))[:2]
            self.write_calls.append((path, content))

    def recorded(self, method: str, call: Callable[[], Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Return what *call* returns, and record it, unless another method of this object made the call."""
        if self._is_inside:
            return call()
        self.record(method, arguments, options)
        self._is_inside = True
        try:
            return call()
        finally:
            self._is_inside = False


def _as_text(content: bytes) -> str | bytes:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content


def _recording(name: str) -> Callable[..., Any]:
    method = getattr(InMemoryFilesystem, name)

    @functools.wraps(method)
    def recording(self: MockFilesystem, *arguments: Any, **options: Any) -> Any:
        return self.recorded(name, lambda: method(self, *arguments, **options), arguments, options)

    return recording


for _name in (*_READS, *_WRITES, *_OTHERS):
    setattr(MockFilesystem, _name, _recording(_name))
