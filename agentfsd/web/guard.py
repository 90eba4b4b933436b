"""Decides who may use the pages; no other place does. It knows no page.

The server prints an address with a token for the user who started it. The first request exchanges the token for a cookie, so the
token appears only in the first entry of the browser's history and is sent to no other site. Browsers send cookies to every port
of a host. Therefore the pages have a secret host name below localhost: a server that an agent runs on 127.0.0.1 never gets the
cookie. A request that changes something also needs a CSRF token, which only our own pages hold.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from typing import Literal
from urllib.parse import urlencode, urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agentfsd.web.display_text import query

MAX_FORM_BYTES = 1 << 20  # choosing single hunks of some thousands of files takes that
_OF_READERS = ("/api/viewed",)  # what a page may post that only looks: it changes no branch
_READING = ("GET", "HEAD")

_HEADERS = {
    "content-security-policy": (
        "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # with no-referrer, browsers would send no origin with our own forms
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


@dataclass
class Keys:
    """The secrets of a server.

    Attributes:
        host: The host of the pages: an address or a secret name.
        token: Admits anybody who has it.
        cookie: The value of the cookie that admits a browser.
        csrf: The value that our own forms hold.
        once: Tokens that admit once.
    """

    host: str = field(default_factory=lambda: f"{secrets.token_hex(8)}.localhost")
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    cookie: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    once: set[str] = field(default_factory=set)

    def new_once(self) -> str:
        """Make a token that admits once, for places that others can read, such as a browser's command line."""
        made = secrets.token_urlsafe(32)
        self.once.add(made)
        return made

    def admits(self, token: str) -> bool:
        """Return whether a token admits its holder. A token that admits once is used up."""
        if _same(token, self.token):
            return True
        for known in self.once:
            if _same(token, known):
                self.once.remove(known)
                return True
        return False


class Refused(Exception):
    """The guard refuses a request; ``args``: a sentence and a hint."""

    def __init__(self, status: int, message: str, hint: str) -> None:
        super().__init__(message, hint)
        self.status, self.message, self.hint = status, message, hint


Refuse = Callable[[Request, Refused], ASGIApp]  # makes the page of a refusal


class Guard:
    """ASGI middleware around all pages. It puts the form of a POST into ``request.state.form``."""

    def __init__(self, app: ASGIApp, keys: Keys, cookie_name: str, *, writable: bool, refuse: Refuse) -> None:
        self._app, self._keys, self._cookie_name, self._writable, self._refuse = app, keys, cookie_name, writable, refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)  # start and end of the server; websockets have no route
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name for name, _ in message["headers"]}
                added = [(name.encode(), value.encode()) for name, value in _HEADERS.items() if name.encode() not in present]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        try:
            app = await self._admit(scope, receive)
        except Refused as exc:
            app = self._refuse(Request(scope), exc)
        await app(scope, receive, guarded)

    async def _admit(self, scope: Scope, receive: Receive) -> ASGIApp:
        """Return the application that answers the request.

        Raises:
            Refused: The request is not admitted.
        """
        headers = Headers(scope=scope)
        is_home = _host(headers, self._keys.host) == self._keys.host
        _check_site(headers, scope["method"])
        given = query(scope["query_string"])
        token = next((value for name, value in given if name == "token"), None)
        if token is not None and scope["method"] in _READING and self._keys.admits(token):
            rest = [pair for pair in given if pair[0] != "token"]
            return self._enter(scope["path"], rest) if is_home else self._lead_home(scope["path"], rest, headers)
        how = self._identified(headers, is_home=is_home)
        if how is None:
            raise Refused(
                403,
                "This page is only for the user who started it.",
                "Open the address that `agentfsd ui` printed, with its token.",
            )
        if scope["method"] == "POST":
            await self._check_change(scope, receive, headers, how)
        elif scope["method"] not in _READING:
            raise Refused(405, f"{scope['method']} is not understood here.", "Use GET to read and POST to change.")
        return self._app

    def _enter(self, path: str, rest: list[tuple[str, str]]) -> ASGIApp:
        """Redirect to the same page, with the cookie instead of the token."""
        response = RedirectResponse(_place(path, rest), 303)
        # lax: a click on the address in a web-based terminal comes from another site
        response.set_cookie(self._cookie_name, self._keys.cookie, httponly=True, samesite="lax", path="/")
        return response

    def _lead_home(self, path: str, rest: list[tuple[str, str]], headers: Headers) -> ASGIApp:
        """Redirect to the same page on the secret host. The port stays, as it may be a tunnel's."""
        port = urlsplit(f"//{headers['host']}").port
        home = self._keys.host + (f":{port}" if port else "")
        return RedirectResponse(f"http://{home}{_place(path, [('token', self._keys.new_once()), *rest])}", 303)

    def _identified(self, headers: Headers, *, is_home: bool) -> Literal["cookie", "bearer"] | None:
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and _same(bearer.strip(), self._keys.token):
            return "bearer"
        for line in headers.getlist("cookie") if is_home else ():
            try:
                cookie = SimpleCookie(line).get(self._cookie_name)
            except CookieError:
                continue
            if cookie is not None and _same(cookie.value, self._keys.cookie):
                return "cookie"
        return None

    async def _check_change(self, scope: Scope, receive: Receive, headers: Headers, how: str) -> None:
        if not self._writable and scope["path"] not in _OF_READERS:
            raise Refused(403, "This page only looks.", "`agentfsd ui --write` offers to commit, merge, restore and discard.")
        if how != "cookie" or headers.get("origin", "").lower() != f"http://{headers['host']}".lower():
            raise Refused(403, "That did not come from one of these pages.", "Go back to the page and use its button.")
        form = dict(query(await _body(receive)))
        if not _same(form.get("csrf", ""), self._keys.csrf):
            raise Refused(
                403,
                "That form comes from another server, or from an earlier run of this one.",
                "Load the page again and use its button.",
            )
        scope.setdefault("state", {})["form"] = form


def _place(path: str, parameters: list[tuple[str, str]]) -> str:
    place = "/" + path.lstrip("/")  # an address with two slashes would name another host
    return place + ("?" + urlencode(parameters, errors="surrogateescape") if parameters else "")


def _same(given: str, known: str) -> bool:
    return secrets.compare_digest(given.encode("utf-8", "surrogateescape"), known.encode())


def is_loopback(host: str) -> bool:
    """Say whether a host can only mean this machine. Other names can be made to lead here too (DNS rebinding)."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _host(headers: Headers, home: str) -> str:
    """Return the host that the browser used, in brackets for IPv6.

    Raises:
        Refused: It is a name that others can make lead to this machine.
    """
    given = headers.getlist("host")
    try:
        parts = urlsplit(f"//{given[0]}") if len(given) == 1 else urlsplit("")
        host = parts.hostname
        _ = parts.port  # raises ValueError for a bad port
    except ValueError:
        host = None
    if host is None or not (host == home or is_loopback(host)) or "@" in given[0] or "/" in given[0]:
        raise Refused(
            400, "This server answers only to its own name and to names of this machine.", "Use the address that it printed."
        )
    return f"[{host}]" if ":" in host else host


def _check_site(headers: Headers, method: str) -> None:
    """Let other sites, and other servers of this machine, link here and do nothing else."""
    site, mode = headers.get("sec-fetch-site", "none"), headers.get("sec-fetch-mode", "navigate")
    if site not in ("none", "same-origin") and (mode != "navigate" or method not in _READING):
        raise Refused(403, "Another page asked for this.", "Open it here.")


async def _body(receive: Receive) -> bytes:
    parts = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused(400, "The form is incomplete.", "Send it again.")
        parts += message.get("body", b"")
        if len(parts) > MAX_FORM_BYTES:
            raise Refused(413, "The form is too long.", f"At most {MAX_FORM_BYTES} bytes are read.")
        if not message.get("more_body"):
            return bytes(parts)
