"""ls and read_file: show one directory, or a window of one file."""

from agentfs_files.filesystem.file_results import FileEntry
from agentfs_files.filesystem.filesystem_protocol import Filesystem
from agentfs_files.tools.context import ToolResult
from agentfs_files.tools.handling import ToolRefused
from agentfs_files.tools.lines import Line, NotTextError, Window, window
from agentfs_files.tools.parameters import LsParams, ReadFileParams
from agentfs_files.tools.result_text import count, fitting, numbered
from agentfs_files.tools.tool_limits import ToolLimits
from agentfs_files.tools.tool_results import LsResult, ReadFileResult


def ls(params: LsParams, filesystem: Filesystem, limits: ToolLimits) -> ToolResult[LsResult]:
    stat = filesystem.stat(params.path)
    if not stat.is_directory:
        raise ToolRefused(f"{stat.path} is a file of {count(stat.size_bytes, 'byte')}, not a directory. read_file shows it.")
    entries = sorted(filesystem.list(params.path), key=lambda entry: (not entry.is_directory, entry.name))
    shown, _ = fitting(map(_entry_line, entries[: limits.entries]), limits.result_characters)
    result = LsResult(stat.path, tuple(entries[: len(shown)]), len(entries))
    if not entries:
        return ToolResult(f"{stat.path} is empty.", result)
    if len(shown) < len(entries):
        shown.append(f"[{len(shown):,} of {count(len(entries), 'entry', 'entries')}; glob with a pattern shows others]")
    return ToolResult("\n".join(shown), result)


def _entry_line(entry: FileEntry) -> str:
    if entry.is_directory:
        return f"{entry.name}/"
    if not entry.is_file:
        return f"{entry.name}  (neither file nor directory)"
    return entry.name if entry.size_bytes is None else f"{entry.name}  {count(entry.size_bytes, 'byte')}"


def read_file(params: ReadFileParams, filesystem: Filesystem, limits: ToolLimits) -> ToolResult[ReadFileResult]:
    most = min(params.limit or limits.read_lines, limits.read_lines)
    try:
        read = window(filesystem, params.path, [(params.offset + 1, params.offset + most)], limits.line_characters)
    except NotTextError as exc:
        raise ToolRefused(
            f"{exc}. read_file shows UTF-8 text alone; take another file, or a program that knows this format."
        ) from exc
    if params.offset and params.offset >= read.total:
        raise ToolRefused(f"{read.path} has {count(read.total, 'line')}; offset={params.offset} is behind its end.")
    shown, _ = fitting(map(_line, read.lines), limits.result_characters)
    lines = read.lines[: len(shown)]
    end = params.offset + len(lines)
    more = end < read.total
    result = ReadFileResult(
        "".join(line.text + line.ending for line in lines), read.path, more, params.offset, read.total, end if more else None,
        tuple(line.number for line in lines if line.cut),
    )  # fmt: skip
    return ToolResult("\n".join(shown + _notes(result, read, len(lines))), result)


def _line(line: Line) -> str:
    return numbered(line.number, line.text) + (" … [cut]" if line.cut else "")


def _notes(result: ReadFileResult, read: Window, shown: int) -> list[str]:
    if not read.total:
        return [f"[{read.path} is empty]"]
    notes = []
    if result.offset or result.truncated:
        go_on = f"; continue with offset={result.next_offset}" if result.truncated else ""
        notes.append(f"[lines {result.offset + 1}-{result.offset + shown} of {read.total:,}{go_on}]")
    if result.cut_lines:
        numbers = ", ".join(map(str, result.cut_lines[:10])) + (", …" if len(result.cut_lines) > 10 else "")
        notes.append(f"[cut, being too long to show whole: {'line' if len(result.cut_lines) == 1 else 'lines'} {numbers}]")
    if not result.truncated and not read.lines[-1].cut and not read.lines[-1].ending:
        notes.append("[no newline at the end of the file]")
    return notes
