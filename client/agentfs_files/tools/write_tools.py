"""write_file and rm."""

from agentfs_files.filesystem.filesystem_protocol import Filesystem
from agentfs_files.tools.context import ToolResult
from agentfs_files.tools.handling import ToolRefused
from agentfs_files.tools.parameters import RmParams, WriteFileParams
from agentfs_files.tools.result_text import count
from agentfs_files.tools.tool_limits import ToolLimits
from agentfs_files.tools.tool_results import RmResult, WriteFileResult


def write_file(params: WriteFileParams, filesystem: Filesystem, limits: ToolLimits) -> ToolResult[WriteFileResult]:
    check_length(params.content, limits)
    created = not filesystem.exists(params.path)
    written = filesystem.write(params.path, params.content, mode=params.mode)
    result = WriteFileResult(written.path, written.bytes_written, params.mode, created)
    done = "Created" if created else "Added to" if params.mode == "append" else "Replaced"
    return ToolResult(f"{done} {written.path}: {count(written.bytes_written, 'byte')} written.", result)


def check_length(text: str, limits: ToolLimits) -> None:
    if len(text) > limits.write_characters:
        raise ToolRefused(
            f"The text has {len(text):,} characters; one call takes {limits.write_characters:,}. Write the first part with "
            "write_file, and each further one with write_file and mode=append."
        )


def rm(params: RmParams, filesystem: Filesystem, limits: ToolLimits) -> ToolResult[RmResult]:
    where = _path_of(params.path, filesystem)
    if where in ("", "."):
        raise ToolRefused("The root of the workspace cannot be removed; name something inside it.")
    try:
        filesystem.delete(where)  # also a symlink to a directory, of which stat() says that it is a directory
        return ToolResult(f"Removed {where}.", RmResult(where, 1))
    except IsADirectoryError:
        files = len(filesystem.glob("**/*", path=where))
    if not params.recursive:
        raise ToolRefused(
            f"{where} is a directory with {count(files, 'file')} in it. recursive=true removes it with all of them."
        )
    filesystem.delete(where, recursive=True)
    return ToolResult(f"Removed the directory {where} with {count(files, 'file')} in it.", RmResult(where, files))


def _path_of(path: str, filesystem: Filesystem) -> str:
    try:
        return filesystem.stat(path).path
    except FileNotFoundError:  # or a symlink that leads nowhere
        return path
