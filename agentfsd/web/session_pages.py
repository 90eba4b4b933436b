"""Pages about a recorded session: ``ID.jsonl`` and ``ID.fs.zip``. The types named in the session are never imported."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agentfsd.domain_errors import invalid, not_found
from agentfsd.web.display_text import key, size, visible
from agentfsd.web.page_rendering import Pages
from agentfsd.web.query_params import QueryParams
from agentfsd.web.viewed_trees import ArchiveTree

SHOWN_ITEMS = 200  # of each slice
SHOWN_CHARACTERS = 100_000  # of each item
MAX_CHARACTERS = 8 << 20  # of all items: more at once is too much for a browser
MAX_LINE_BYTES = 128 << 20
MOST_WRONG = 20  # lines, after which nobody reads on
_SESSION, _ARCHIVE = ".jsonl", ".fs.zip"


@dataclass(frozen=True)
class Files:
    """The paths of a session's files. Either may be missing."""

    session: Path | None
    archive: Path | None


def find(given: str) -> Files:
    """Find both files of a session by the path of one. Raises Refusal if there is nothing to show."""
    path = Path(given)
    if not path.is_file():
        raise not_found("file", given, "name a session (ID.jsonl) or an archive (ID.fs.zip)")
    if path.name.endswith(_SESSION):
        archive = path.with_name(path.name.removesuffix(_SESSION) + _ARCHIVE)
        return Files(path, archive if archive.is_file() else None)
    if path.suffix != ".zip":
        raise invalid(f"{given} is neither a session nor an archive", "name a file that ends in .jsonl or .zip")
    session = path.with_name(path.name.removesuffix(_ARCHIVE) + _SESSION) if path.name.endswith(_ARCHIVE) else None
    return Files(session if session is not None and session.is_file() else None, path)


class _Slice(msgspec.Struct):
    type: str = ""
    items: list[Any] = []


class _Record(msgspec.Struct):
    """A line of the file as agentfs_files.session writes it. Other fields are ignored."""

    session_id: str = ""
    created_at: str = ""
    parent_session_id: str | None = None
    tags: dict[str, str] = {}
    slices: list[_Slice] = []


@dataclass(frozen=True)
class SliceShown:
    """One section of the session as a page shows it."""

    name: str
    module: str
    count: int
    items: list[str]


class SessionRoutes:
    """The pages about a session. Other routes serve the files of its archive."""

    def __init__(self, pages: Pages, files: Files, archive: ArchiveTree | None) -> None:
        self._pages, self._files, self._archive = pages, files, archive

    def routes(self) -> list[Route]:
        """Return the routes of the pages."""
        return [Route("/", self.session), Route("/files", self.tree)]

    def session(self, request: Request) -> Response:
        """Show the sections of the session."""
        records, wrong = _read(self._files.session) if self._files.session is not None else ([], [])
        room = [MAX_CHARACTERS]
        shown = [(record, [_shown(each, room) for each in record.slices]) for record in records]
        manifest = self._archive.meta() if self._archive is not None else None
        name = os.fspath((self._files.session or self._files.archive or Path()).name)
        return self._pages.page("session.html", request, name=name, sessions=shown, manifest=manifest, wrong=wrong)

    def tree(self, request: Request) -> Response:
        """Show the files of the session's archive."""
        if self._archive is None:
            raise invalid("no archive lies beside this session", "it was written without a file system")
        path = key(QueryParams(request).path(""))
        return self._pages.page("files.html", request, ref="", against="", path=path, branches=[], snapshots=[], is_live=False)


def _read(path: Path) -> tuple[list[_Record], list[str]]:
    """Read the records, and describe unreadable lines in sentences. Raises Refusal if no line is readable."""
    records: list[_Record] = []
    wrong: list[str] = []
    with path.open("rb") as lines:
        for number, line in enumerate(_cut(lines), 1):
            try:
                records += [_record(line)] if line.strip() else []
            except (ValueError, RecursionError) as exc:
                wrong.append(f"Line {number} is left out: {visible(str(exc))}.")
                if len(wrong) > MOST_WRONG:
                    break
    if wrong and not records:
        raise invalid(f"{path.name} is not a session: {wrong[0]}", "agentfs_files.session.dump_session_tree writes them")
    return records, wrong


def _cut(lines: BinaryIO) -> Iterator[bytes]:
    """Yield the lines. Of a line that is too long, only a part is yielded, which is still longer than the limit."""
    while line := lines.readline(MAX_LINE_BYTES + 1):
        rest = line
        while len(rest) > MAX_LINE_BYTES and not rest.endswith(b"\n"):
            rest = lines.readline(MAX_LINE_BYTES + 1)
        yield line


def _record(line: bytes) -> _Record:
    """Parse a line. Raises ValueError or RecursionError, in words, if it is no record."""
    if len(line) > MAX_LINE_BYTES:
        raise ValueError(f"it is longer than {size(MAX_LINE_BYTES)}")
    return msgspec.json.decode(line, type=_Record)


def _shown(part: _Slice, room: list[int]) -> SliceShown:
    """Format a section. *room*: the number of characters that still fit on the page; it is reduced."""
    module, _, name = part.type.rpartition(":")
    items = list[str]()
    for item in part.items[:SHOWN_ITEMS]:
        if room[0] <= 0:
            break
        items.append(_text(item))
        room[0] -= len(items[-1])
    return SliceShown(name or part.type, module, len(part.items), items)


def _text(item: Any) -> str:
    try:
        text = json.dumps(item, indent=2, ensure_ascii=False)
    except RecursionError:
        return "It is nested too deeply to be shown."
    left = len(text) - SHOWN_CHARACTERS
    return text if left <= 0 else f"{text[:SHOWN_CHARACTERS]}\n\u2026 ({left:,} more characters)"
