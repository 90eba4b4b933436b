"""The pages that show an overlay: branches, files, comparison, history, events. They never change anything."""

import threading
from collections.abc import AsyncIterator

import anyio
import anyio.to_thread
import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from agentfs_client import wire
from agentfs_client.async_control import AsyncControlClient
from agentfs_client.control import ControlClient
from agentfs_client.errors import AgentFSError, NotFoundError
from agentfs_files.remote_files import RemoteFiles
from agentfsd.web.diff_rows import WHOLE_FILE, change_rows, file_diff
from agentfsd.web.display_text import in_repository, key, plural, visible
from agentfsd.web.file_routes import MAX_IMAGE_BYTES, picture
from agentfsd.web.overlay_model import MAX_COUNTED, LiveOverlay
from agentfsd.web.page_rendering import Pages, answer, in_words
from agentfsd.web.query_params import QueryParams

MAX_TOGETHER = 50  # changed files of a directory that are shown at once
_LOOK_EVERY_S = 0.5  # between looks whether the server ends
_OLD_SNAPSHOTS = 20  # in which a picture is looked for that every branch has changed
_QUIET_S = 15.0  # after this time without an event, send a line, which fails if the browser has gone


class ReadRoutes:
    """The pages that only read. *ending* is set when the server ends."""

    def __init__(self, pages: Pages, overlay: LiveOverlay, ending: threading.Event) -> None:
        self._pages, self._overlay, self._ending = pages, overlay, ending

    def routes(self) -> list[Route]:
        """Return the routes of the pages."""
        return [
            Route("/", self.branches),
            Route("/files", self.files),
            Route("/compare", self.compare),
            Route("/history", self.history),
            Route("/live", self.live),
            Route("/api/pulse", self.pulse),
            Route("/api/changed", self.changed),
            Route("/api/changes", self.changes),
            Route("/api/counts", self.counts),
            Route("/api/diff", self.diff),
            Route("/api/events", self.events),
            Route("/api/lower-image", self.lower_image),
        ]

    def branches(self, request: Request) -> Response:
        """Show the branches. A browser that opens the page gets at once what is known at once; its script asks for the rest."""
        pulse, rows = self._overlay.branches(quickly=request.headers.get("sec-fetch-mode") == "navigate")
        return self._pages.page("branches.html", request, rows=rows, pulse=pulse)

    def files(self, request: Request) -> Response:
        """Show the files of a branch or snapshot."""
        params = QueryParams(request)
        branches, snapshots = self._overlay.refs()
        ref = params.text("ref", "main")
        return self._pages.page(
            "files.html", request, ref=ref, against=params.text("against", ""), path=key(params.path("")), branches=branches,
            snapshots=snapshots, is_live=True,
        )  # fmt: skip

    def compare(self, request: Request) -> Response:
        """Show the comparison of two states: two parameters ``ref`` (the first page's form), or ``a`` and ``b``.

        An empty ``a`` means the real directory.
        """
        params = QueryParams(request)
        chosen = params.texts("ref")
        if len(chosen) >= 2:
            return RedirectResponse(f"/compare?a={key(chosen[0])}&b={key(chosen[1])}", 303)
        branches, snapshots = self._overlay.refs()
        b = params.text("b", chosen[0] if chosen else _most_telling(branches))
        a, branch_names = params.text("a", ""), [branch.name for branch in branches]
        is_snapshot = any(a in (snapshot.id, snapshot.name) for snapshot in snapshots) and a not in branch_names
        return self._pages.page(
            "compare.html", request, a=a, b=b, branches=branches, snapshots=snapshots, branch_names=branch_names,
            restorable=self._pages.writable and is_snapshot and b in branch_names,
        )  # fmt: skip

    def history(self, request: Request) -> Response:
        """Show the history of all branches, or of ``branch`` and the snapshots that led to it."""
        chosen = QueryParams(request).text("branch", "")
        rows = self._overlay.history(chosen)
        lanes = max(max((at for segment in row.place.segments for at in segment[::2]), default=0) for row in rows) + 1
        has_snapshots = any(row.snapshot is not None for row in rows)
        return self._pages.page(
            "history.html", request, rows=rows, lanes=lanes, has_snapshots=has_snapshots, chosen=chosen,
            branches=self._overlay.refs()[0],
        )  # fmt: skip

    def live(self, request: Request) -> Response:
        """Show events as they happen."""
        return self._pages.page(
            "live.html", request, branch=QueryParams(request).text("branch", ""), branches=self._overlay.refs()[0]
        )

    def pulse(self, request: Request) -> Response:
        """Answer with a text that is another one when processes or runs have come or gone. It costs a millisecond."""
        return answer({"pulse": self._overlay.pulse()})

    def changed(self, request: Request) -> Response:
        """Answer with the number of changes and lines of a branch, and the time of the last one; null if there is none.

        The first page asks about the branches that it shows, any of which may have gone: that is no error.
        """
        try:
            return answer(self._overlay.changed(QueryParams(request).text("ref")))
        except NotFoundError:
            return answer(None)

    def changes(self, request: Request) -> Response:
        """Answer with the list of changes between two states."""
        params = QueryParams(request)
        with self._overlay.client() as client:
            found = client.changes(params.text("b"), params.text("a", "") or None)
        git = [in_repository(one.path_bytes, one.sentence) for one in found.repositories]
        return answer({"changes": change_rows(found.changes), "git": git, "counted": len(found.changes) <= MAX_COUNTED})

    def counts(self, request: Request) -> Response:
        """Answer with the added and removed lines of each file, by key."""
        params = QueryParams(request)
        with self._overlay.client() as client:
            patches = client.patches(params.text("b"), params.text("a", "") or None, stat_only=True, internal=False)
        return answer({key(_path(patch)): (patch.added, patch.removed) for patch in patches if not patch.is_binary})

    def diff(self, request: Request) -> Response:
        """Answer with the difference of one file, or of the changed files of a small directory."""
        params = QueryParams(request)
        lines, path = WHOLE_FILE if params.text("whole", "") else 3, params.path()
        b, a = params.text("b"), params.text("a", "") or None
        with self._overlay.client() as client:
            if not _is_file(client, b, path) and len(changes := client.diff(b, a, [path])) > MAX_TOGETHER:
                raise ValueError(f"{plural(len(changes), 'change')} in it; choose one of them")
            patches = client.patches(b, a, [path], context_lines=lines)
        exact = [patch for patch in patches if _path(patch) == path]
        return answer([file_diff(patch) for patch in exact or patches])

    def lower_image(self, request: Request) -> Response:
        """Serve a picture as the real directory has it: from a branch or a snapshot that shows the real directory there.

        Raises:
            ValueError: It is no picture, or every branch has changed it, and no snapshot is older.
        """
        path = QueryParams(request).path()
        with self._overlay.client() as client:
            names = [branch.name for branch in client.list_branches(count=False)]
            names += [snapshot.id for snapshot in client.list_snapshots()[:_OLD_SNAPSHOTS]]
            same = next((name for name in names if not client.diff(name, None, [path])), None)
        if same is None:
            raise ValueError("every branch has changed it, and no snapshot is older")
        with self._overlay.tree(same) as tree, tree.open(path) as content:
            return picture(content.read(0, content.size) if content.size <= MAX_IMAGE_BYTES else b"")

    async def events(self, request: Request) -> Response:
        """Send the events of branches as server-sent events."""
        branch = QueryParams(request).text("branch", "") or None
        socket = await anyio.to_thread.run_sync(self._overlay.socket)
        return StreamingResponse(self._stream(socket, branch), media_type="text/event-stream")

    async def _stream(self, socket: str | None, branch: str | None) -> AsyncIterator[bytes]:
        """Send the branch's events; the last one, ``gone``, says why no more follow."""
        if socket is None:
            yield _gone("The daemon sends events over its socket only, which cannot be reached from here.", is_final=True)
            return
        try:
            async with await AsyncControlClient.connect(socket) as daemon, daemon.events(branch) as events:
                yield b"event: begun\ndata: {}\n\n"
                quiet_s = 0.0
                while not self._ending.is_set():
                    event: wire.Event | None = None
                    with anyio.move_on_after(_LOOK_EVERY_S) as waiting:
                        event = await anext(events, None)
                    if event is not None:
                        quiet_s = 0.0
                        yield b"data: " + msgspec.json.encode(_told(event)) + b"\n\n"
                    elif not waiting.cancelled_caught:
                        yield _gone("The branch was deleted.", is_final=True)
                        return
                    elif (quiet_s := quiet_s + _LOOK_EVERY_S) >= _QUIET_S:
                        quiet_s = 0.0
                        yield b": quiet\n\n"
            yield _gone("`agentfsd ui` was ended.")
        except AgentFSError as exc:
            _, message, hint = in_words(exc)
            yield _gone(f"{message} {hint}".strip(), is_final=isinstance(exc, NotFoundError))


def _most_telling(branches: list[wire.Branch]) -> str:
    """Return the newest branch that holds changes."""
    return max(branches, key=lambda branch: (branch.changed > 0, branch.created_ns)).name


def _is_file(client: ControlClient, ref: str, path: str) -> bool:
    try:
        return RemoteFiles(client, ref).stat(path, follow=False).kind != "directory"
    except OSError:
        return False  # deleted there


def _path(patch: wire.FilePatch) -> str:
    return patch.path_bytes.decode("utf-8", "surrogateescape")


def _gone(sentence: str, *, is_final: bool = False) -> bytes:
    """Say that no more events follow. *is_final*: it makes no sense to ask again."""
    return b"event: gone\ndata: " + msgspec.json.encode({"error": sentence, "final": is_final}) + b"\n\n"


def _told(event: wire.Event) -> dict[str, object]:
    path, was = (each.decode("utf-8", "surrogateescape") for each in (event.path_bytes, event.old_path_bytes))
    return {
        "kind": event.kind, "branch": event.branch, "time_ms": event.time_ns // 10**6, "path": visible(path), "key": key(path),
        "was": visible(was), "is_dir": event.is_dir, "pid": event.pid, "name": visible(event.name), "count": event.count,
    }  # fmt: skip
