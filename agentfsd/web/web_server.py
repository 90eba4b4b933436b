"""The server of the pages: it joins routes and guard, listens on loopback addresses only, starts and ends."""

import errno
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

import uvicorn
from starlette.applications import Starlette
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from agentfs_client.control import ControlClient
from agentfs_client.locate import Mount as Mounted
from agentfsd.domain_errors import Refusal, invalid
from agentfsd.web import session_pages
from agentfsd.web.cancel_on_disconnect import CancelOnDisconnect
from agentfsd.web.change_routes import ChangeRoutes
from agentfsd.web.conflict_routes import ConflictRoutes
from agentfsd.web.connection_limit import LimitedConnection
from agentfsd.web.file_routes import FileRoutes
from agentfsd.web.guard import Guard, Keys, is_loopback
from agentfsd.web.note_routes import NoteRoutes
from agentfsd.web.overlay_model import LiveOverlay
from agentfsd.web.page_rendering import HERE, Pages
from agentfsd.web.read_routes import ReadRoutes
from agentfsd.web.review_routes import ReviewRoutes
from agentfsd.web.viewed_files import ViewedFiles
from agentfsd.web.viewed_trees import ArchiveTree

_LINKS = (("/", "b", "Branches"), ("/compare", "c", "Compare"), ("/files", "f", "Files"), ("/history", "h", "History"),
          ("/live", "l", "Live"), ("/asks", "a", "Asks"))  # fmt: skip
_SESSION_LINKS = (("/", "s", "Session"), ("/files", "f", "Files"))
_END_WITHIN_S = 3
_MAX_CONNECTIONS = 200
_BACKLOG = 128
_PORTS_TRIED = 20


@dataclass(frozen=True)
class Site:
    """Pages behind their guard. ``ending`` is set when the server ends."""

    app: ASGIApp
    ending: threading.Event


def overlay_site(
    find: Callable[[], tuple[Mounted, ControlClient]], shown_at: str, keys: Keys, cookie_name: str, *, writable: bool
) -> Site:
    """Make the pages about the overlay of a running daemon. *find* connects to the daemon."""
    pages = Pages(keys, shown_at, _LINKS, writable)
    overlay, ending = LiveOverlay(find), threading.Event()
    routes: list[BaseRoute] = [*ReadRoutes(pages, overlay, ending).routes(), *FileRoutes(overlay).routes()]
    for each in (ReviewRoutes, ConflictRoutes, NoteRoutes):
        routes += each(pages, overlay).routes()
    routes += ViewedFiles(overlay.state_directory).routes()
    return _site(pages, [*routes, *ChangeRoutes(pages, overlay).routes()], cookie_name, ending)


def session_site(files: session_pages.Files, archive: ArchiveTree | None, keys: Keys, cookie_name: str) -> Site:
    """Make the pages about a recorded session and its *archive*. The caller closes the archive."""
    pages = Pages(keys, str(files.session or files.archive), _SESSION_LINKS)
    routes: list[BaseRoute] = [*session_pages.SessionRoutes(pages, files, archive).routes()]
    if archive is not None:
        routes += FileRoutes(_Only(archive)).routes()
    return _site(pages, routes, cookie_name, threading.Event())


class _Only:
    def __init__(self, tree: ArchiveTree) -> None:
        self._tree = tree

    def tree(self, ref: str) -> ArchiveTree:
        return self._tree


def _site(pages: Pages, routes: list[BaseRoute], cookie_name: str, ending: threading.Event) -> Site:
    static = Mount("/static", StaticFiles(directory=HERE / "static"), name="static")
    app = Starlette(routes=[*routes, static], exception_handlers=pages.handlers())
    return Site(Guard(CancelOnDisconnect(app), pages.keys, cookie_name, writable=pages.writable, refuse=pages.refuse), ending)


def listen(host: str | None, port: int) -> list[socket.socket]:
    """Open sockets that only this machine can reach.

    A name below localhost may mean 127.0.0.1 or ::1. Without *host*, we listen on both: another server could listen on the
    address that we leave free, and get our cookie.

    Args:
        host: A loopback address; None: 127.0.0.1 and ::1.
        port: The port; 0: a free one.

    Raises:
        Refusal: The host is no loopback address, or the port is taken.
    """
    if host is not None and not is_loopback(host):
        raise invalid(f"{host} is not this machine alone", "give --host 127.0.0.1, another address that begins with 127, or ::1")
    try:
        if host is not None:
            return [_bound("127.0.0.1" if host == "localhost" else host, port)]
        for _ in range(_PORTS_TRIED):
            first = _bound("127.0.0.1", port)
            try:
                return [first, _bound("::1", first.getsockname()[1])]
            except OSError as exc:
                if exc.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):  # this machine has no IPv6
                    return [first]
                first.close()
                if port:
                    raise
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    except (OSError, OverflowError) as exc:
        why = os.strerror(exc.errno) if isinstance(exc, OSError) and exc.errno else str(exc)
        which = f"port {port} of {host or 'localhost'}"
        raise Refusal(errno.EADDRINUSE, "no-port", f"{which} cannot be had: {why}", "leave --port out") from exc


def _bound(host: str, port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(_BACKLOG)  # from here on, no other server can take the port
    except BaseException:
        listening.close()
        raise
    return listening


def host_of(listening: socket.socket) -> str:
    """Return the address of a socket as in a URL."""
    host = listening.getsockname()[0]
    return f"[{host}]" if ":" in host else str(host)


def address(listening: list[socket.socket], host: str, token: str) -> str:
    """Return the address of the first page, with the token."""
    return f"http://{host}:{listening[0].getsockname()[1]}/?token={token}"


def cookie_name(listening: list[socket.socket]) -> str:
    """Name the cookie after the port: browsers send cookies to every port of a host, so two servers need two names."""
    return f"agentfsd-{listening[0].getsockname()[1]}"


def run(site: Site, listening: list[socket.socket]) -> None:
    """Serve until SIGINT, which raises KeyboardInterrupt, or SIGTERM, after which it returns."""
    config = uvicorn.Config(
        site.app, log_level="error", access_log=False, server_header=False, timeout_graceful_shutdown=_END_WITHIN_S,
        lifespan="off", ws="none", limit_concurrency=_MAX_CONNECTIONS, http=LimitedConnection,
    )  # fmt: skip
    server = _Server(config, site.ending)
    server.run(sockets=listening)
    if server.ended_by == signal.SIGINT:
        raise KeyboardInterrupt


class _Server(uvicorn.Server):
    """A server that ends the streams of events when it ends, and leaves it to the caller what a signal means."""

    def __init__(self, config: uvicorn.Config, ending: threading.Event) -> None:
        super().__init__(config)
        self._ending, self.ended_by = ending, 0

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.ended_by = sig
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL + 1)  # do not log the connections that end now
        self._ending.set()
        super().handle_exit(sig, frame)
