"""Serve files: the specification's /api/filesystem/meta, tree and file, and what the page of a file needs.

File content is sent as plain text or as an attachment, so a browser never executes it.
"""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from agentfs_files.filesystem.virtual_paths import name_of
from agentfsd.web.display_text import key, visible
from agentfsd.web.file_view import view
from agentfsd.web.page_rendering import answer
from agentfsd.web.query_params import QueryParams
from agentfsd.web.viewed_trees import ViewedContent, ViewedEntry, ViewedTrees

MAX_FOUND = 500
MAX_IMAGE_BYTES = 32 << 20
_CHUNK_BYTES = 256 << 10
_IMAGES = (  # no SVG, which can hold scripts
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"), (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8[79]a"), "image/gif"), (re.compile(rb"RIFF....WEBP", re.DOTALL), "image/webp"),
    (re.compile(rb"....ftypavif", re.DOTALL), "image/avif"), (re.compile(rb"BM"), "image/bmp"),
    (re.compile(rb"\x00\x00\x01\x00"), "image/x-icon"),
)  # fmt: skip
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


class FileRoutes:
    """Serves files of the viewed trees."""

    def __init__(self, trees: ViewedTrees) -> None:
        self._trees = trees

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/api/filesystem/meta", self.meta),
            Route("/api/filesystem/tree", self.tree),
            Route("/api/filesystem/file", self.file),
            Route("/api/find", self.find),
            Route("/api/image", self.image),
            Route("/api/view", self.view),
        ]

    def meta(self, request: Request) -> Response:
        """Answer with the tree's manifest."""
        with self._trees.tree(QueryParams(request).text("ref", "")) as tree:
            return answer(tree.meta())

    def tree(self, request: Request) -> Response:
        """List every file, as the specification wants it, or with ``path`` one directory.

        The rows of a directory are (key of the name, name for people or "" if that is the key, kind, size in bytes or -1).
        """
        params = QueryParams(request)
        with self._trees.tree(params.text("ref", "")) as tree:
            if not params.has("path"):
                files = sorted(tree.files())
                return answer([{"path": visible(path), "size_bytes": size_bytes} for path, size_bytes in files])
            path = params.path()
            return answer({"path": visible(path), "entries": [_row(entry) for entry in tree.list(path, quickly=True)]})

    def find(self, request: Request) -> Response:
        """List the first MAX_FOUND files whose path contains ``q``, in upper or lower case."""
        params = QueryParams(request)
        wanted = params.text("q").lower()
        matches: list[tuple[str, str]] = []
        with self._trees.tree(params.text("ref", "")) as tree:
            for path, _ in tree.files():
                if wanted in visible(path).lower():
                    matches.append((key(path), visible(path)))
                    if len(matches) > MAX_FOUND:
                        break
        return answer({"found": sorted(matches[:MAX_FOUND]), "more": len(matches) > MAX_FOUND})

    def view(self, request: Request) -> Response:
        """Answer with a part of a file's content."""
        params = QueryParams(request)
        with self._trees.tree(params.text("ref", "")) as tree:
            return answer(msgspec.to_builtins(view(tree, params.path(), params.number("offset", 0))))

    def image(self, request: Request) -> Response:
        """Serve a picture. Its content decides, not its name; ValueError for anything else."""
        params = QueryParams(request)
        with self._trees.tree(params.text("ref", "")) as tree, tree.open(params.path()) as content:
            return picture(content.read(0, content.size) if content.size <= MAX_IMAGE_BYTES else b"")

    def file(self, request: Request) -> Response:
        """Serve a file's content, whole or a ``Range``; with ``download=1`` always as an attachment."""
        params = QueryParams(request)
        path = params.path()
        with ExitStack() as stack:
            tree = stack.enter_context(self._trees.tree(params.text("ref", "")))
            content = stack.enter_context(tree.open(path))
            begin, end = _range(request.headers.get("range"), content.size)
            headers = {"accept-ranges": "bytes", "content-length": str(max(0, end - begin))}
            if begin >= content.size > 0:
                return Response(status_code=416, headers={"content-range": f"bytes */{content.size}"})
            is_part = (begin, end) != (0, content.size)
            if is_part:
                headers["content-range"] = f"bytes {begin}-{end - 1}/{content.size}"
            is_text = _is_text(content.read(0, 4096))
            if not is_text or params.text("download", ""):
                headers["content-disposition"] = f"attachment; filename*=UTF-8''{quote(visible(name_of(path)), safe='')}"
            kind = "text/plain" if is_text else "application/octet-stream"
            return _Streamed(stack.pop_all(), _chunks(content, begin, end), 206 if is_part else 200, headers, kind)


def picture(data: bytes) -> Response:
    """Serve a picture; ValueError for anything else."""
    kind = next((kind for magic, kind in _IMAGES if magic.match(data)), None)
    if kind is None:
        raise ValueError(f"this is no picture of at most {MAX_IMAGE_BYTES >> 20} MiB")
    return Response(data, 200, {"content-security-policy": "default-src 'none'; sandbox"}, kind)


def _row(entry: ViewedEntry) -> tuple[str, str, str, int]:
    quoted, shown = key(entry.name), visible(entry.name)
    kind = {"file": "f", "directory": "d", "symlink": "l", "other": "o"}[entry.kind]
    return quoted, "" if quoted == shown else shown, kind + "l" * entry.is_link, entry.size_bytes


def _is_text(head: bytes) -> bool:
    try:
        head.decode()
    except UnicodeDecodeError as exc:
        return b"\0" not in head and exc.start > len(head) - 4 and len(head) == 4096  # the head ends within a character
    return b"\0" not in head


def _range(header: str | None, size: int) -> tuple[int, int]:
    """Return begin and end of the requested range; those of the whole file if the header makes no sense."""
    match = _RANGE.fullmatch(header.replace(" ", "")) if header else None
    if match is None or match.groups() == ("", "") or len(match[0]) > 40:
        return 0, size
    first, last = match.groups()
    if not first:
        return max(0, size - int(last)), size
    end = min(size, int(last) + 1) if last else size
    return (int(first), end) if not last or int(last) >= int(first) else (0, size)


def _chunks(content: ViewedContent, begin: int, end: int) -> Iterator[bytes]:
    """Read the content in chunks. If the file shrinks meanwhile, zeros fill the length that the headers promised."""
    while begin < end:
        size = min(_CHUNK_BYTES, end - begin)
        yield content.read(begin, size).ljust(size, b"\0")
        begin += size


class _Streamed(StreamingResponse):
    """A response that closes its file at the end, also when the browser disconnects."""

    def __init__(self, open_ones: ExitStack, body: Iterator[bytes], status: int, headers: dict[str, str], kind: str) -> None:
        super().__init__(body, status, headers, kind)
        self._open_ones = open_ones

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._open_ones:
            await super().__call__(scope, receive, send)
