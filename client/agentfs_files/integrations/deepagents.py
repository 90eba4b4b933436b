"""A file system as a backend of deepagents: `create_deep_agent(backend=AgentFSBackend(filesystem))`.

Paths of the agent begin with a slash, which stands for the root of the file system. AgentFSSandbox also runs commands, in a
branch of agentfsd; its paths are those that commands see, beneath the mount point.
"""

import base64
import re
import threading
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import PurePosixPath
from typing import NamedTuple

from agentfs_client.extras import needed_for
from agentfs_files.backends.branch import BranchFilesystem
from agentfs_files.backends.in_memory import InMemoryFilesystem
from agentfs_files.filesystem.file_results import FileEntry
from agentfs_files.filesystem.file_results import GrepMatch as GrepLine
from agentfs_files.filesystem.filesystem_protocol import Filesystem
from agentfs_files.filesystem.size_limits import without_path_limits
from agentfs_files.integrations.branch_workspace import BranchWorkspace
from agentfs_files.tools.edit_tools import replaced
from agentfs_files.tools.handling import ToolRefused
from agentfs_files.tools.misses import explain_miss
from agentfs_files.tools.parameters import EditFileParams
from agentfs_files.tools.search_tools import fewest_places

with needed_for("this backend needs", "deepagents"):
    import deepagents  # noqa: F401 - the package, or a message that says what to install

try:
    from deepagents.backends.protocol import (
        FILE_NOT_FOUND,
        INVALID_PATH,
        IS_DIRECTORY,
        PERMISSION_DENIED,
        BackendProtocol,
        DeleteResult,
        EditResult,
        ExecuteResponse,
        FileData,
        FileDownloadResponse,
        FileInfo,
        FileOperationError,
        FileUploadResponse,
        GlobResult,
        GrepMatch,
        GrepResult,
        LsResult,
        ReadResult,
        SandboxBackendProtocol,
        WriteResult,
    )
    from deepagents.backends.utils import InvalidGlobPatternError, compile_grep_include_glob
except ImportError as exc:
    installed = f"this backend needs deepagents 0.7 or newer, and {version('deepagents')} is installed"
    raise ImportError(f"{installed}: pip install 'agentfsd[deepagents]'", name=exc.name, path=exc.path) from exc

_EXPECTED = (OSError, ValueError, RuntimeError)
_MOST_MATCHES = 10_000
_PREVIEW_BYTES = 512_000  # of a file that is shown as bytes
_OUTPUT_BYTES = 1 << 20
_SECONDS = 30 * 60
_OFFLOADED = frozenset(
    ("large_tool_results", "conversation_history", "blobs")
)  # where deepagents keeps what a context has no room for
_SHOWN_AS_BYTES = frozenset(
    (
        ".png", ".jpeg", ".jpg", ".webp", ".gif", ".heic", ".heif", ".mp4", ".mpeg", ".mov", ".avi", ".flv", ".mpg", ".webm",
        ".wmv", ".3gpp", ".mkv", ".wav", ".mp3", ".aiff", ".aac", ".ogg", ".flac", ".pdf", ".ppt", ".pptx",
    )
)  # fmt: skip  # what deepagents gives to models as images, sounds, videos and documents


class _Place(NamedTuple):
    """A path in a file system, and the agent's path of that file system's root; "" for ``/``."""

    filesystem: Filesystem
    path: str
    prefix: str

    def shown(self, path: str) -> str:
        """Return the agent's path of a path in the file system."""
        return f"{self.prefix}/{'' if path == '.' else path}"

    def beneath(self, path: str) -> str:
        """Return the path from this place to a file beneath it; of the file at this place, its own path."""
        return path[len(self.path) + 1 if self.path else 0 :] or path


class AgentFSBackend(BackendProtocol):
    """A file system as a backend of deepagents.

    Each method returns deepagents' own result records, and reports errors in them instead of raising. Only one call runs at a
    time, because file systems are not thread-safe.

    Args:
        filesystem: Any file system of this library.
        prefix: The agent's path of the root; "" for ``/``.

    Attributes:
        grep_exclude_dirs: Names of directories that grep() does not search, unless it is asked about one of them.
    """

    grep_exclude_dirs: tuple[str, ...] = (".git",)

    def __init__(self, filesystem: Filesystem, *, prefix: str = "") -> None:
        without_path_limits(filesystem)
        self.filesystem = filesystem
        self._prefix = prefix.rstrip("/")
        self._lock = threading.RLock()

    # -- paths

    def _place(self, path: str | None) -> _Place:
        """Find the file system of a path; None is the root.

        Raises:
            ValueError: *path* is not absolute, or not beneath the prefix.
        """
        shown = self._prefix or "/"
        if path is None:
            return _Place(self.filesystem, "", self._prefix)
        if not path.startswith("/"):
            raise ValueError(f"{path!r} is not an absolute path; all of them begin with {shown}")
        if path != self._prefix and not path.startswith(f"{self._prefix}/"):
            raise ValueError(f"{path} is not in the workspace {shown}")
        return _Place(self.filesystem, path[len(self._prefix) :].strip("/"), self._prefix)

    # -- looking

    def ls(self, path: str) -> LsResult:
        """List a directory."""
        try:
            with self._lock:
                place = self._place(path)
                found = place.filesystem.list(place.path)
        except _EXPECTED as exc:
            return LsResult(error=_said(path, exc))
        return LsResult(entries=[_info(place, entry) for entry in found])

    def read(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        """Read a text file, or part of it by lines; other files as base64."""
        try:
            with self._lock:
                return self._read(file_path, max(0, offset), max(0, limit))
        except _EXPECTED as exc:
            return ReadResult(error=_said(file_path, exc))

    def _read(self, shown: str, offset: int, limit: int) -> ReadResult:
        filesystem, path, _ = self._place(shown)
        if PurePosixPath(shown).suffix.lower() in _SHOWN_AS_BYTES:
            return _read_bytes(shown, filesystem, path)
        content = filesystem.read(path, offset=offset, limit=limit)
        data = FileData(content=content.content.replace("\r\n", "\n"), encoding="utf-8")
        if not content.total_lines:
            return ReadResult(file_data=data)
        if not limit:
            return ReadResult(file_data=data, no_lines_requested=True)
        if offset >= content.total_lines:
            return ReadResult(error=f"Line offset {offset} is beyond the end of {shown}, which has {content.total_lines} lines")
        end = min(offset + limit, content.total_lines)
        further = end if content.truncated else None
        return ReadResult(
            file_data=data, total_lines=content.total_lines, start_line=offset + 1, end_line=end, next_offset=further
        )  # fmt: skip

    def grep(self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None) -> GrepResult:
        """Search files for a literal text, line by line."""
        most = _MOST_MATCHES if max_count is None or glob is not None else max_count + 1
        try:
            place = self._place(path)
            includes = _including(glob)
            with self._lock:
                lines = self._grep(place, re.escape(pattern), glob.lstrip("/") if glob else None, most)
        except _EXPECTED as exc:
            return GrepResult(error=_said(path or "/", exc))
        matches = [
            GrepMatch(path=place.shown(match.path), line=match.line_number, text=match.line_content.removesuffix("\r"))
            for match in lines
            if includes(place.beneath(match.path))
        ]
        if max_count is not None and len(matches) > max_count:
            return GrepResult(matches=matches[:max_count], truncated=True)
        return GrepResult(matches=matches, truncated=len(lines) == most == _MOST_MATCHES)

    def _grep(self, place: _Place, expression: str, glob: str | None, most: int) -> list[GrepLine]:
        """Return the first *most* matching lines outside the excluded directories."""
        filesystem, base, _ = place
        names = {f"/{name}/" for name in self.grep_exclude_dirs}
        kept: list[str] = []
        left_out: list[str] = []
        for match in filesystem.glob("**", path=base):
            below = f"/{place.beneath(match.path)}"
            (left_out if any(name in below for name in names) else kept).append(match.path)
        by_name = glob if glob is None or "/" not in glob else None  # the rest of the pattern is tested on the matches
        lines: list[GrepLine] = []
        for where, pattern in [(where, by_name) for where in fewest_places(kept, left_out)] if left_out else [(base, glob)]:
            lines += filesystem.grep(expression, path=where, glob=pattern, max_matches=most - len(lines))
            if len(lines) >= most:
                break
        return lines

    def glob(self, pattern: str, path: str | None = None) -> GlobResult:
        """Find files by a pattern."""
        try:
            place = self._place(path)
            includes = _including(pattern)
            with self._lock:
                found = [match.path for match in place.filesystem.glob("**", path=place.path)]
        except _EXPECTED as exc:
            return GlobResult(error=_said(path or "/", exc))
        return GlobResult(
            matches=[FileInfo(path=place.shown(one), is_dir=False) for one in found if includes(place.beneath(one))]
        )  # fmt: skip

    # -- changing

    def write(self, file_path: str, content: str) -> WriteResult:
        """Write a text file."""
        try:
            with self._lock:
                filesystem, path, _ = self._place(file_path)
                filesystem.write(path, content)
        except _EXPECTED as exc:
            return WriteResult(error=_said(file_path, exc))
        return WriteResult(path=file_path)

    def edit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> EditResult:
        """Replace a text in a file."""
        try:
            with self._lock:
                filesystem, path, _ = self._place(file_path)
                return _edit(file_path, filesystem, EditFileParams(path, old_string, new_string, replace_all))
        except (ToolRefused, *_EXPECTED) as exc:
            return EditResult(error=_said(file_path, exc))

    def delete(self, file_path: str) -> DeleteResult:
        """Delete a file or directory."""
        try:
            with self._lock:
                filesystem, path, _ = self._place(file_path)
                filesystem.delete(path, recursive=True)
        except _EXPECTED as exc:
            return DeleteResult(error=_said(file_path, exc))
        return DeleteResult(path=file_path)

    # -- several files, as bytes

    def upload_files(self, files: Iterable[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Write several files, given as (path, content)."""
        return [FileUploadResponse(path=path, error=self._try(path, _upload, content)) for path, content in files]

    def download_files(self, paths: Iterable[str]) -> list[FileDownloadResponse]:
        """Return the content of several files."""
        return [self._download(path) for path in paths]

    def _download(self, path: str) -> FileDownloadResponse:
        parts: list[bytes] = []

        def read(filesystem: Filesystem, inside: str) -> None:
            with filesystem.open_read(inside) as reader:
                parts.append(reader.read())

        error = self._try(path, read)
        return FileDownloadResponse(path=path, content=None if error else parts[0], error=error)

    def _try(self, path: str, act: Callable[..., None], *arguments: bytes) -> FileOperationError | str | None:
        try:
            with self._lock:
                act(*self._place(path)[:2], *arguments)
        except FileNotFoundError:
            return FILE_NOT_FOUND
        except IsADirectoryError:
            return IS_DIRECTORY
        except (NotADirectoryError, ValueError):
            return INVALID_PATH
        except PermissionError:
            return PERMISSION_DENIED
        except (OSError, RuntimeError) as exc:
            return str(exc)
        return None


class AgentFSSandbox(AgentFSBackend, SandboxBackendProtocol):
    """A branch of agentfsd. `agentfsd run` runs commands in a private view with the branch at the mount point.

    Outside the mount point, commands can access what this process can.

    Args:
        filesystem: The branch.
        offloaded: A file system for results and messages that are too long for a context, which deepagents writes beneath
            ``/large_tool_results`` and the like. The agent's tools read them, and its commands and the branch do not have them.
            None: memory.
    """

    filesystem: BranchFilesystem

    def __init__(self, filesystem: BranchFilesystem, *, offloaded: Filesystem | None = None) -> None:
        super().__init__(filesystem, prefix=filesystem.root)
        self._workspace = BranchWorkspace(filesystem)
        self.offloaded = InMemoryFilesystem() if offloaded is None else offloaded
        without_path_limits(self.offloaded)

    def _place(self, path: str | None) -> _Place:
        if path is not None and path.startswith("/") and path.split("/")[1] in _OFFLOADED:
            return _Place(self.offloaded, path.strip("/"), "")
        return super()._place(path)

    def _read(self, shown: str, offset: int, limit: int) -> ReadResult:
        """Read like deepagents' own sandboxes, whose pages of text end without a newline."""
        result = super()._read(shown, offset, limit)
        data = result.file_data
        if data is not None and data["encoding"] == "utf-8" and result.total_lines:
            data["content"] = data["content"].removesuffix("\n")
        return result

    @property
    def id(self) -> str:
        """The id of the branch."""
        return self.filesystem.branch_id

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Run a shell command in the branch.

        Args:
            command: The command line for sh.
            timeout: Seconds until the command is killed; 0 for no limit. None: half an hour.
        """
        seconds = _SECONDS if timeout is None else timeout or None
        done = self._workspace.run(["sh", "-c", command], timeout_s=seconds, joined=True)
        if done.has_timed_out:
            return ExecuteResponse(f"{_text(done.output)}\n[killed after {seconds} seconds]", exit_code=done.exit_code)
        return ExecuteResponse(_text(done.output), exit_code=done.exit_code, truncated=len(done.output) > _OUTPUT_BYTES)


def _info(place: _Place, entry: FileEntry) -> FileInfo:
    info = FileInfo(path=place.shown(entry.path), is_dir=entry.is_directory)
    if entry.size_bytes is not None:
        info["size"] = entry.size_bytes
    return info


def _read_bytes(shown: str, filesystem: Filesystem, path: str) -> ReadResult:
    size = filesystem.stat(path).size_bytes
    if size > _PREVIEW_BYTES:
        return ReadResult(error=f"File '{shown}': Binary file exceeds maximum preview size of {_PREVIEW_BYTES} bytes")
    content = base64.b64encode(filesystem.read_bytes(path).content).decode()
    return ReadResult(file_data=FileData(content=content, encoding="base64"))


def _upload(filesystem: Filesystem, path: str, content: bytes) -> None:
    with filesystem.open_write(path) as writer:
        writer.write(content)


def _edit(shown: str, filesystem: Filesystem, params: EditFileParams) -> EditResult:
    text = filesystem.read_bytes(params.path).content.decode()
    plain, old = (part.replace("\r\n", "\n") for part in (text, params.old_string))
    if not old:
        return EditResult(error="old_string is empty; give the exact text to replace")
    count = plain.count(old)
    if not count:
        return EditResult(error=f"String not found: {explain_miss(plain, old, shown)}")
    if count > 1 and not params.replace_all:
        return EditResult(error=f"old_string is in {shown} multiple times ({count}); add lines around it, or set replace_all")
    edited = replaced(text, params, shown)
    filesystem.write(params.path, edited.text)
    return EditResult(path=shown, occurrences=edited.count)


def _text(output: bytes) -> str:
    return output[:_OUTPUT_BYTES].decode("utf-8", "replace")


def _including(pattern: str | None) -> Callable[[str], bool]:
    """Return a test for deepagents' patterns.

    A pattern without a slash matches names at any depth, and hidden names only if it begins with a dot.
    """
    if pattern is None:
        return lambda path: True
    try:
        includes: Callable[[str], bool] = compile_grep_include_glob(pattern)
    except InvalidGlobPatternError as exc:
        raise ValueError(str(exc)) from exc
    return includes


def _said(path: str, exc: Exception) -> str:
    if isinstance(exc, FileNotFoundError):
        return f"File '{path}' not found"
    if isinstance(exc, UnicodeDecodeError):
        return f"File '{path}' is not UTF-8 text; download_files returns its bytes"
    if isinstance(exc, OSError) and exc.strerror:
        return f"'{path}': {exc.strerror}"
    return str(exc)
