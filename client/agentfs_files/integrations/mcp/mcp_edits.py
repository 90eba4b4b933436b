"""Apply a model's edits to a text, and show the change as a git patch. Line endings stay as in the file."""

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence

from agentfs_files.integrations.mcp.mcp_refusal import McpRefused

_CRLF = "\r\n"
_INDENT = re.compile(r"[ \t]*")
_SHOWN = 200  # characters of a text that was not found


def apply(text: str, edits: Iterable[tuple[str, str]], path: str) -> str:
    """Apply edits, one after the other, and return the new text.

    Each edit replaces the first occurrence of its old text. If there is none, it replaces the first lines that differ from the
    old text only in white space at their ends.

    Raises:
        McpRefused: The file has no such lines either.
    """
    for number, (old, new) in enumerate(edits, 1):
        if not old:
            raise McpRefused(f"the oldText of edit {number} is empty; write_file writes a whole file")
        replaced = _replace_text(text, old, new)
        if replaced is None:
            replaced = _replace_lines(text, old, new)
        if replaced is None:
            shown = old if len(old) <= _SHOWN else f"{old[:_SHOWN]}…"
            raise McpRefused(f"{path} does not hold the oldText of edit {number}, so nothing was changed:\n{shown}")
        text = replaced
    return text


def _replace_text(text: str, old: str, new: str) -> str | None:
    plain = old.replace(_CRLF, "\n")
    for wanted in (plain, plain.replace("\n", _CRLF)):
        at = text.find(wanted)
        if at >= 0:
            return text[:at] + _with_ending(new, _ending_at(text, at)) + text[at + len(wanted) :]
    return None


def _replace_lines(text: str, old: str, new: str) -> str | None:
    lines = text.split("\n")
    wanted = [line.strip() for line in old.replace(_CRLF, "\n").split("\n")]
    if not any(wanted):
        return None
    stripped = [line.strip() for line in lines]
    for at in range(len(lines) - len(wanted) + 1):
        if stripped[at] == wanted[0] and stripped[at : at + len(wanted)] == wanted:
            ending = "\r" if lines[at].endswith("\r") else ""
            lines[at : at + len(wanted)] = [line + ending for line in _indented(new, old, lines[at])]
            return "\n".join(lines)
    return None


def _indented(new: str, old: str, line: str) -> Iterator[str]:
    """Yield the lines of *new*, indented by the difference between *old* and *line*, the line in the file."""
    before, after = _indent(old), _indent(line)
    for index, moved in enumerate(new.replace(_CRLF, "\n").split("\n")):
        if not moved.strip():
            yield ""
        elif index == 0:
            yield after + moved.lstrip(" \t")
        else:
            yield after + moved.removeprefix(before)


def _indent(line: str) -> str:
    match = _INDENT.match(line)
    return match[0] if match else ""


def _with_ending(text: str, ending: str) -> str:
    return text.replace(_CRLF, "\n").replace("\n", ending)


def _ending_at(text: str, at: int) -> str:
    """Return the line ending at a position: that of its line, or of the last line."""
    newline = text.find("\n", at)
    if newline < 0:
        newline = text.rfind("\n")
    return _CRLF if newline > 0 and text[newline - 1] == "\r" else "\n"


def patch(path: str, old: str, new: str) -> str:
    """Return the change from one text to the other as a git patch without carriage returns; "" if they are equal."""
    old_lines, new_lines = (text.replace(_CRLF, "\n").splitlines(keepends=True) for text in (old, new))
    if old_lines == new_lines:
        return ""
    return f"diff --git a/{path} b/{path}\n" + "".join(_hunks(path, old_lines, new_lines))


def _hunks(path: str, old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    for line in difflib.unified_diff(old, new, f"a/{path}", f"b/{path}"):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def fenced(text: str) -> str:
    """Return a text as a code block of Markdown, whatever it contains."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}diff\n{text}{fence}\n\n"
