"""Tools that return the content of files."""

import base64
import mimetypes
from pathlib import PurePosixPath
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from agentfs_files.filesystem.filesystem_protocol import ByteReader
from agentfs_files.integrations.mcp.mcp_failures import EXPECTED, sentence
from agentfs_files.integrations.mcp.mcp_refusal import McpRefused
from agentfs_files.integrations.mcp.mcp_tool import CUT_AT_BYTES, McpTool, Text, Workspace

FilePath = Annotated[str, Meta(description="A file: an absolute path, or one relative to the root of the workspace.")]

_SHOWN_AS: dict[str, tuple[Literal["image", "audio"], str]] = {
    ".png": ("image", "image/png"),
    ".jpg": ("image", "image/jpeg"),
    ".jpeg": ("image", "image/jpeg"),
    ".gif": ("image", "image/gif"),
    ".webp": ("image", "image/webp"),
    ".bmp": ("image", "image/bmp"),
    ".svg": ("image", "image/svg+xml"),
    ".mp3": ("audio", "audio/mpeg"),
    ".wav": ("audio", "audio/wav"),
    ".ogg": ("audio", "audio/ogg"),
    ".flac": ("audio", "audio/flac"),
}
_UNKNOWN_TYPE = "application/octet-stream"
_BLOCK_BYTES = 1 << 16


class ReadTextFile(McpTool, frozen=True):
    """Read a text file: all of it, its first lines (head), or its last lines (tail) without the newline at the end. Bytes that
    are not UTF-8 appear as U+FFFD; binary files are refused.
    """

    name: ClassVar[str] = "read_text_file"
    title: ClassVar[str] = "Read a text file"

    path: FilePath
    tail: Annotated[int, Meta(ge=0, description="Only so many lines at the end.")] | None = None
    head: Annotated[int, Meta(ge=0, description="Only so many lines at the beginning.")] | None = None

    def run(self, workspace: Workspace) -> Text:
        if self.head and self.tail:
            raise McpRefused("head and tail cannot both be given: ask for the first lines or for the last ones")
        return Text(_text(workspace, self.path, self.head or 0, self.tail or 0))


class ReadFile(ReadTextFile, frozen=True):
    """Read a text file. This is the old name of read_text_file; use that instead."""

    name: ClassVar[str] = "read_file"
    title: ClassVar[str] = "Read a text file (older name)"


class ReadMultipleFiles(McpTool, frozen=True):
    """Read several text files at once. Each content follows its path and a colon; lines of three hyphens separate the files. If a
    file cannot be read, the reason replaces its content.
    """

    name: ClassVar[str] = "read_multiple_files"
    title: ClassVar[str] = "Read several text files"

    paths: Annotated[list[FilePath], Meta(min_length=1)]

    def run(self, workspace: Workspace) -> Text:
        room = CUT_AT_BYTES
        parts = []
        for path in self.paths:
            part = self._part(workspace, path) if room > 0 else f"{path}: Error - the files before it are as much as fits"
            room -= len(part)
            parts.append(part)
        return Text("\n---\n".join(parts))

    def _part(self, workspace: Workspace, path: str) -> str:
        try:
            return f"{path}:\n{_text(workspace, workspace.locate(path), 0, 0)}\n"
        except (McpRefused, *EXPECTED) as exc:
            return f"{path}: Error - {sentence(exc, path, workspace.root)}"


class Contents(msgspec.Struct, frozen=True, rename="camel"):
    """The content of a file as an embedded resource."""

    uri: str
    mime_type: str
    blob: str


class Block(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One block of content. An image or sound has ``data`` in base64, any other file is a ``resource``."""

    type: Literal["image", "audio", "resource"]
    data: str | msgspec.UnsetType = msgspec.UNSET
    mime_type: str | msgspec.UnsetType = msgspec.UNSET
    resource: Contents | msgspec.UnsetType = msgspec.UNSET


class MediaResult(msgspec.Struct, frozen=True):
    """The result of read_media_file."""

    content: list[Block]


class ReadMediaFile(McpTool, frozen=True):
    """Read a file of any kind: images and sounds as such, others as an embedded resource; always in base64, with the type."""

    name: ClassVar[str] = "read_media_file"
    title: ClassVar[str] = "Read an image, a sound or another binary file"
    result: ClassVar[type[MediaResult]] = MediaResult

    path: FilePath

    def run(self, workspace: Workspace) -> MediaResult:
        content = workspace.filesystem.read_bytes(self.path)
        data = base64.b64encode(content.content).decode()
        location = PurePosixPath(workspace.absolute(content.path))
        if location.suffix.lower() in _SHOWN_AS:
            kind, mime_type = _SHOWN_AS[location.suffix.lower()]
            return MediaResult([Block(kind, data, mime_type)])
        contents = Contents(location.as_uri(), mimetypes.guess_type(location.name)[0] or _UNKNOWN_TYPE, data)
        return MediaResult([Block("resource", resource=contents)])


def _text(workspace: Workspace, path: str, head: int, tail: int) -> str:
    with workspace.filesystem.open_read(path) as reader:
        content = _last_lines(reader, tail) if tail else _first_lines(reader, head) if head else _all(reader)
    if b"\0" in content:
        raise McpRefused(f"{path} is binary, not text; read_media_file returns such files")
    return content.decode("utf-8", "replace")


def _all(reader: ByteReader) -> bytes:
    if reader.size > CUT_AT_BYTES:
        raise _too_much(reader.path, reader.size)
    return reader.read()


def _first_lines(reader: ByteReader, lines: int) -> bytes:
    chunks, size, seen = [], 0, 0
    for chunk in reader:
        chunks.append(chunk)
        size, seen = size + len(chunk), seen + chunk.count(b"\n")
        if seen >= lines:
            break
        _check_room(reader, size)
    return b"\n".join(b"".join(chunks).removesuffix(b"\n").split(b"\n")[:lines])


def _last_lines(reader: ByteReader, lines: int) -> bytes:
    blocks: list[bytes] = []
    start, seen = reader.size, 0
    while start > 0 and seen < lines:
        end, start = start, max(0, start - _BLOCK_BYTES)
        reader.seek(start)
        block = reader.read(end - start)
        seen += block.count(b"\n") - (not blocks and block.endswith(b"\n"))
        blocks.append(block)
        _check_room(reader, reader.size - start)
    return b"\n".join(b"".join(reversed(blocks)).removesuffix(b"\n").split(b"\n")[-lines:])


def _check_room(reader: ByteReader, size: int) -> None:
    if size > CUT_AT_BYTES:
        raise _too_much(reader.path, size)


def _too_much(path: str, size: int) -> McpRefused:
    return McpRefused(f"{path}: {size} bytes are more than is returned at once; head or tail shows a part, grep finds lines")
