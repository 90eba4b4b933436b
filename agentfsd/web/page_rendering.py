"""Makes pages from templates, JSON answers, and error pages. It knows neither files nor a daemon."""

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2
import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from agentfs_client.errors import AgentFSError, DaemonGoneError
from agentfs_files.filesystem.filesystem_errors import ArchiveError
from agentfsd.domain_errors import Refusal
from agentfsd.review import branch_words
from agentfsd.web import display_text
from agentfsd.web.guard import Keys, Refused

HERE = Path(__file__).parent
_STATUS = {
    errno.ENOENT: 404, errno.ENOTDIR: 404, errno.EISDIR: 400, errno.EINVAL: 400, errno.EACCES: 403, errno.EPERM: 403,
    errno.EEXIST: 409, errno.EBUSY: 409, errno.EFBIG: 413,
}  # fmt: skip
_HTTP = {  # of what has no route
    404: ("There is no such page.", "The links at the top lead on."),
    405: ("This address is asked in another way.", "Use GET to read and POST to change."),
}


@dataclass
class Pages:
    """The pages of a server.

    Attributes:
        keys: The server's secrets.
        heading: The workspace or session, for the top of each page.
        links: The pages, as (address, letter, name).
        writable: The pages may change something.
        said: Sentences about what was done, for the next page.
    """

    keys: Keys
    heading: str
    links: tuple[tuple[str, str, str], ...]
    writable: bool = False
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._templates = jinja2.Environment(
            loader=jinja2.FileSystemLoader(HERE / "templates"), autoescape=True, undefined=jinja2.StrictUndefined,
            trim_blocks=True, lstrip_blocks=True,
        )  # fmt: skip
        self._templates.filters.update(
            ago=display_text.ago,
            clock=display_text.clock,
            size=display_text.size,
            key=display_text.key,
            visible=display_text.visible,
            kept=branch_words.kept,
        )
        self._templates.globals.update(plural=display_text.plural)

    def page(self, template: str, request: Request, /, status: int = 200, **context: Any) -> HTMLResponse:
        """Render a template as a page."""
        said = self.said[:]
        if template != "outside.html" and request.headers.get("sec-fetch-mode", "navigate") == "navigate":
            self.said.clear()  # kept where a stranger asks, and where a script renews a page
        text = self._templates.get_template(template).render(
            heading=self.heading, links=self.links, writable=self.writable, csrf=self.keys.csrf, said=said,
            here=request.url.path, **context,
        )  # fmt: skip
        return HTMLResponse(text, status)

    def refuse(self, request: Request, refused: Refused) -> Response:
        """Return the page for a request that the guard refused."""
        return self._refusal(request, refused.status, refused.message, refused.hint, inside=False)

    def handlers(self) -> dict[Any, Callable[[Request, Exception], Response]]:
        """Return the handlers of exceptions that pages raise."""
        return {OSError: self._failed, ValueError: self._failed, HTTPException: self._failed, Exception: self._broken}

    def _failed(self, request: Request, exc: Exception) -> Response:
        status, message, hint = in_words(exc)
        return self._refusal(request, status, message, hint)

    def _broken(self, request: Request, exc: Exception) -> Response:
        message = f"Something is wrong in agentfsd itself: {type(exc).__name__}: {exc}"
        return self._refusal(request, 500, message, "Please report it; the terminal shows more.")

    def _refusal(self, request: Request, status: int, message: str, hint: str, *, inside: bool = True) -> Response:
        """Answer with an error. *inside*: the guard has admitted the user."""
        if request.url.path.startswith("/api/"):
            return answer({"error": message, "hint": hint}, status)
        if request.url.path.startswith("/static/") and not inside:
            return Response(message, status, media_type="text/plain")
        return self.page("error.html" if inside else "outside.html", request, status, message=message, hint=hint)


def answer(value: Any, status: int = 200) -> Response:
    """Answer with JSON."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def in_words(exc: Exception) -> tuple[int, str, str]:
    """Return status, sentence and hint for an exception."""
    if isinstance(exc, HTTPException):
        message, hint = _HTTP.get(exc.status_code, (exc.detail, ""))
        return exc.status_code, message, hint
    if isinstance(exc, DaemonGoneError):
        return 503, _sentence(exc.message), exc.hint or "Is it being restarted? Load the page again."
    if isinstance(exc, AgentFSError | Refusal):
        return _STATUS.get(exc.errno or 0, 400), _sentence(exc.message), exc.hint
    if isinstance(exc, OSError):
        what = f"{display_text.visible(os.fsdecode(exc.filename))}: " if exc.filename else ""
        return _STATUS.get(exc.errno or 0, 400), _sentence(what + (exc.strerror or str(exc))), ""
    return (409 if isinstance(exc, ArchiveError) else 400), _sentence(display_text.visible(str(exc))), ""


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
