"""A file system as a backend of deepagents: `create_deep_agent(backend=AgentFSBackend(filesystem))`.

Paths of the agent begin with a slash, which stands for the root of the file system. AgentFSSandbox also runs commands, in a
branch of agentfsd; its paths are those that commands see, beneath the mount point.
"""

import base64
import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable
from pathlib import PurePosixPath

from agentfs_client.extras import needed_for
from agentfs_files.backends.branch import BranchFilesystem
from agentfs_files.filesystem.file_results import FileEntry
from agentfs_files.filesystem.filesystem_protocol import Filesystem
from agentfs_files.integrations.branch_commands import run_in_branch
from agentfs_files.tools.edit_tools import replaced
from agentfs_files.tools.handling import ToolRefused
from agentfs_files.tools.misses import explain_miss
from agentfs_files.tools.parameters import EditFileParams

with needed_for("this backend needs", "deepagents"):
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

_EXPECTED = (OSError, ValueError, RuntimeError)
_MOST_MATCHES = 10_000
_PREVIEW_BYTES = 512_000  # of a file that is shown as bytes
_OUTPUT_BYTES = 1 << 20
_SECONDS = 30 * 60
_TIMED_OUT = 124  # timeout(1)
_SHOWN_AS_BYTES = frozenset(
    (
        ".png", ".jpeg", ".jpg", ".webp", ".gif", ".heic", ".heif", ".mp4", ".mpeg", ".mov", ".avi", ".flv", ".mpg", ".webm",
        ".wmv", ".3gpp", ".mkv", ".wav", ".mp3", ".aiff", ".aac", ".ogg", ".flac", ".pdf", ".ppt", ".pptx",
    )
)  # fmt: skip  # what deepagents gives to models as images, sounds, videos and documents


class AgentFSBackend(BackendProtocol):
    """A file system as a backend of deepagents.

    Each method returns deepagents' own result records, and reports errors in them instead of raising. Only one call runs at a
    time, because file systems are not thread-safe.

    Args:
        filesystem: Any file system of this library.
        prefix: The agent's path of the root; "" for ``/``.
    """

    def __init__(self, filesystem: Filesystem, *, prefix: str = "") -> None:
        self.filesystem = filesystem
        self._prefix = prefix.rstrip("/")
        self._lock = threading.RLock()

    # -- paths

    def _inside(self, path: str | None) -> str:
        """Return the path from the root. Raises ValueError if *path* is not absolute or not beneath the prefix."""
        shown = self._prefix or "/"
        if path is None:
            return ""
        if not path.startswith("/"):
            raise ValueError(f"{path!r} is not an absolute path; all of them begin with {shown}")
        if path != self._prefix and not path.startswith(f"{self._prefix}/"):
            raise ValueError(f"{path} is not in the workspace {shown}")
        return path[len(self._prefix) :].strip("/")

    def _outside(self, path: str) -> str:
        return f"{self._prefix}/{'' if path == '.' else path}"

    # -- looking

    def ls(self, path: str) -> LsResult:
        """List a directory."""
        try:
            with self._lock:
                found = self.filesystem.list(self._inside(path))
        except _EXPECTED as exc:
            return LsResult(error=_said(path, exc))
        return LsResult(entries=[self._info(entry) for entry in found])

    def _info(self, entry: FileEntry) -> FileInfo:
        info = FileInfo(path=self._outside(entry.path), is_dir=entry.is_directory)
        if entry.size_bytes is not None:
            info["size"] = entry.size_bytes
        return info

    def read(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        """Read a text file, or part of it by lines; other files as base64."""
        try:
            with self._lock:
                return self._read(file_path, max(0, offset), max(0, limit))
        except _EXPECTED as exc:
            return ReadResult(error=_said(file_path, exc))

    def _read(self, shown: str, offset: int, limit: int) -> ReadResult:
        path = self._inside(shown)
        if PurePosixPath(shown).suffix.lower() in _SHOWN_AS_BYTES:
            return self._read_bytes(shown, path)
        content = self.filesystem.read(path, offset=offset, limit=limit)
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

    def _read_bytes(self, shown: str, path: str) -> ReadResult:
        size = self.filesystem.stat(path).size_bytes
        if size > _PREVIEW_BYTES:
            return ReadResult(error=f"File '{shown}': Binary file exceeds maximum preview size of {_PREVIEW_BYTES} bytes")
        content = base64.b64encode(self.filesystem.read_bytes(path).content).decode()
        return ReadResult(file_data=FileData(content=content, encoding="base64"))

    def grep(self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None) -> GrepResult:
        """Search files for a literal text, line by line."""
        most = _MOST_MATCHES if max_count is None or glob is not None else max_count + 1
        try:
            base = self._inside(path)
            includes = _including(glob)
            wanted = glob.lstrip("/") if glob else None
            with self._lock:
                lines = self.filesystem.grep(re.escape(pattern), path=base, glob=wanted, max_matches=most)
        except _EXPECTED as exc:
            return GrepResult(error=_said(path or "/", exc))
        skip = len(base) + 1 if base else 0
        matches = [
            GrepMatch(path=self._outside(match.path), line=match.line_number, text=match.line_content.removesuffix("\r"))
            for match in lines
            if includes(match.path[skip:] or match.path)
        ]
        if max_count is not None and len(matches) > max_count:
            return GrepResult(matches=matches[:max_count], truncated=True)
        return GrepResult(matches=matches, truncated=len(lines) == most == _MOST_MATCHES)

    def glob(self, pattern: str, path: str | None = None) -> GlobResult:
        """Find files by a pattern."""
        try:
            base = self._inside(path)
            includes = _including(pattern)
            with self._lock:
                found = [match.path for match in self.filesystem.glob("**", path=base)]
        except _EXPECTED as exc:
            return GlobResult(error=_said(path or "/", exc))
        skip = len(base) + 1 if base else 0
        return GlobResult(matches=[FileInfo(path=self._outside(one), is_dir=False) for one in found if includes(one[skip:])])

    # -- changing

    def write(self, file_path: str, content: str) -> WriteResult:
        """Write a text file."""
        try:
            with self._lock:
                self.filesystem.write(self._inside(file_path), content)
        except _EXPECTED as exc:
            return WriteResult(error=_said(file_path, exc))
        return WriteResult(path=file_path)

    def edit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> EditResult:
        """Replace a text in a file."""
        try:
            with self._lock:
                return self._edit(file_path, EditFileParams(self._inside(file_path), old_string, new_string, replace_all))
        except (ToolRefused, *_EXPECTED) as exc:
            return EditResult(error=_said(file_path, exc))

    def _edit(self, shown: str, params: EditFileParams) -> EditResult:
        text = self.filesystem.read_bytes(params.path).content.decode()
        plain, old = (part.replace("\r\n", "\n") for part in (text, params.old_string))
        if not old:
            return EditResult(error="old_string is empty; give the exact text to replace")
        count = plain.count(old)
        if not count:
            return EditResult(error=f"String not found: {explain_miss(plain, old, shown)}")
        if count > 1 and not params.replace_all:
            return EditResult(error=f"old_string is in {shown} multiple times ({count}); add lines around it, or set replace_all")
        edited = replaced(text, params, shown)
        self.filesystem.write(params.path, edited.text)
        return EditResult(path=shown, occurrences=edited.count)

    def delete(self, file_path: str) -> DeleteResult:
        """Delete a file or directory."""
        try:
            with self._lock:
                self.filesystem.delete(self._inside(file_path), recursive=True)
        except _EXPECTED as exc:
            return DeleteResult(error=_said(file_path, exc))
        return DeleteResult(path=file_path)

    # -- several files, as bytes

    def upload_files(self, files: Iterable[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Write several files, given as (path, content)."""
        return [FileUploadResponse(path=path, error=self._try(path, self._upload, content)) for path, content in files]

    def _upload(self, path: str, content: bytes) -> None:
        with self.filesystem.open_write(path) as writer:
            writer.write(content)

    def download_files(self, paths: Iterable[str]) -> list[FileDownloadResponse]:
        """Return the content of several files."""
        return [self._download(path) for path in paths]

    def _download(self, path: str) -> FileDownloadResponse:
        parts: list[bytes] = []

        def read(inside: str) -> None:
            with self.filesystem.open_read(inside) as reader:
                parts.append(reader.read())

        error = self._try(path, read)
        return FileDownloadResponse(path=path, content=None if error else parts[0], error=error)

    def _try(self, path: str, act: Callable[..., None], *arguments: bytes) -> FileOperationError | str | None:
        try:
            with self._lock:
                act(self._inside(path), *arguments)
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
    """

    filesystem: BranchFilesystem

    def __init__(self, filesystem: BranchFilesystem) -> None:
        super().__init__(filesystem, prefix=filesystem.root)

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
        with subprocess.Popen(
            run_in_branch(self.filesystem, ["sh", "-c", command]), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, cwd=self.filesystem.root, start_new_session=True,
        ) as process:  # fmt: skip
            try:
                output, _ = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                output, _ = process.communicate()
                return ExecuteResponse(f"{_text(output)}\n[killed after {seconds} seconds]", exit_code=_TIMED_OUT)
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        return ExecuteResponse(_text(output), exit_code=process.returncode, truncated=len(output) > _OUTPUT_BYTES)


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
