"""A part of a file as a page shows it: lines of text, or bytes in hexadecimal. Only that part is held in memory."""

import codecs

import msgspec

from agentfsd.web.display_text import size, visible
from agentfsd.web.highlighting import Line, coloured
from agentfsd.web.viewed_trees import ViewedEntry, ViewedTree

PART_BYTES = 1 << 20
PART_LINES = 20_000  # more at once are too much for a browser
HEX_BYTES = 4 << 10
_PROBE_BYTES = 8 << 10
_STRAY_SHARE = 0.3  # of characters that are no UTF-8, above which it is no text


class FileView(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A part of a file.

    Attributes:
        lines: Lines of text; empty for a binary file.
        hex: Rows of (offset, bytes, characters); empty for text.
        next: The offset of the next part, in bytes; 0 at the end of the file.
        notes: Sentences about the file for the user.
    """

    name: str
    size_bytes: int
    mode: str = ""
    mtime_ns: int = 0
    offset: int = 0
    next: int = 0
    lines: list[Line] | None = None
    hex: list[tuple[str, str, str]] | None = None
    notes: list[str] = []


def view(tree: ViewedTree, path: str, offset: int) -> FileView:
    """Return the part of a file that begins at *offset*: 0, or the ``next`` of another part.

    Raises:
        FileNotFoundError: There is no such file.
        IsADirectoryError: It is a directory.
        PathEscapeError: The path leads out of the tree.
    """
    entry = tree.stat(path)
    shown = FileView(name=visible(path), size_bytes=entry.size_bytes, mtime_ns=entry.mtime_ns)
    shown.mode = f"{entry.mode & 0o7777:04o}" if entry.mode else ""
    if entry.kind != "file":
        shown.notes = [_no_file(entry)]
        return shown
    with tree.open(path) as content:
        shown.size_bytes, shown.offset = content.size, offset
        head = content.read(0, _PROBE_BYTES)
        if _is_binary(head):
            _show_bytes(shown, content.read(offset, HEX_BYTES))
        else:
            _show_text(shown, path, content.read(offset, PART_BYTES))
    if entry.is_link:
        shown.notes.insert(0, f"This name is a symlink to {visible(entry.target)}; what is shown is the file that it leads to.")
    return shown


def _no_file(entry: ViewedEntry) -> str:
    if entry.kind == "directory":
        return f"This is a symlink to the directory {visible(entry.target)}." if entry.is_link else "This is a directory."
    if entry.kind == "symlink":
        return f"This is a symlink to {visible(entry.target)}, which is nothing, or out of the tree. It is not followed."
    return "This is a device, a named pipe or a socket: there is nothing to read."


def _is_binary(head: bytes) -> bool:
    if b"\0" in head:
        return True
    text = codecs.getincrementaldecoder("utf-8")("surrogateescape").decode(head)
    return sum("\udc80" <= char <= "\udcff" for char in text) > len(text) * _STRAY_SHARE


def _show_bytes(shown: FileView, data: bytes) -> None:
    at = shown.offset
    shown.hex = [_row(at + start, data[start : start + 16]) for start in range(0, len(data), 16)]
    shown.next = at + len(data) if at + len(data) < shown.size_bytes else 0
    shown.notes.append("This is no text; its bytes are shown in hexadecimal.")
    if shown.next:
        shown.notes.append(f"Shown are {size(len(data))} of {size(shown.size_bytes)}.")


def _row(offset: int, data: bytes) -> tuple[str, str, str]:
    return f"{offset:08x}", data.hex(" "), "".join(chr(byte) if 32 <= byte < 127 else "." for byte in data)


def _show_text(shown: FileView, path: str, data: bytes) -> None:
    end = shown.offset + len(data)
    if end < shown.size_bytes or data.count(b"\n") > PART_LINES:
        data = data[: _cut(data)]
        shown.next = shown.offset + len(data)
        shown.notes.append(f"This is a large file; shown are {size(len(data))} of {size(shown.size_bytes)}.")
    text = data.decode("utf-8", "surrogateescape")
    if not text.isascii() and any("\udc80" <= char <= "\udcff" for char in text):
        shown.notes.append("Some bytes are no UTF-8; they are shown as \\xNN.")
        text = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    elif not shown.next:
        shown.notes.append("The last line ends without a newline.")
    shown.lines = coloured(path, [line.removesuffix("\r") for line in lines])


def _cut(data: bytes) -> int:
    """Cut the data after PART_LINES lines, or after the last complete line; without one, after the last complete character."""
    lines = data.split(b"\n", PART_LINES)
    if len(lines) > PART_LINES:
        return len(data) - len(lines[-1])
    newline = data.rfind(b"\n") + 1
    if newline:
        return newline
    end = len(data)
    while end > len(data) - 4 and end > 1 and data[end - 1] & 0xC0 == 0x80:
        end -= 1
    return end - 1 if end > 1 and data[end - 1] & 0x80 else end
