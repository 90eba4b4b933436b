"""What a merge has left to be decided in a branch: shown side by side on the branch's page, and decided there."""

import errno
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agentfs_client import wire
from agentfs_client.control import ControlClient
from agentfs_client.errors import AgentFSError
from agentfsd.domain_errors import Refusal, invalid
from agentfsd.web import conflict_view, marked_text
from agentfsd.web.display_text import path_of, plural, visible
from agentfsd.web.file_routes import MAX_IMAGE_BYTES, picture
from agentfsd.web.marked_text import TakenLines
from agentfsd.web.overlay_model import LiveOverlay
from agentfsd.web.page_rendering import Pages, answer
from agentfsd.web.query_params import QueryParams
from agentfsd.web.review_routes import branch_of, decoded, field

_CHANGED = "conflict-changed"


class ConflictRoutes:
    """The conflicts on the page that reviews a branch."""

    def __init__(self, pages: Pages, overlay: LiveOverlay) -> None:
        self._pages, self._overlay = pages, overlay

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/api/conflicts", self.list),
            Route("/api/conflicts/path", self.path),
            Route("/api/conflicts/image", self.image),
            Route("/api/conflicts/decide", self.decide, methods=["POST"]),
            Route("/api/conflicts/end", self.end, methods=["POST"]),
        ]

    def list(self, request: Request) -> Response:
        """Answer with the conflicts of ``branch``."""
        with self._overlay.client() as client:
            return answer(_listed(client.conflicts(QueryParams(request).text("branch"))))

    def path(self, request: Request) -> Response:
        """Answer with what clashes at the ``path`` of a conflict."""
        params = QueryParams(request)
        branch = params.text("branch")
        with self._overlay.client() as client:
            reply = client.conflicts(branch)
            conflict = conflict_view.conflict_of(reply, _bytes(params.path()))
            return answer(conflict_view.shown(client, branch, reply, conflict))

    def image(self, request: Request) -> Response:
        """Serve the ``side`` of a conflict about a picture."""
        params = QueryParams(request)
        side = params.text("side")
        if side not in ("base", "ours", "theirs"):
            raise ValueError(f"a conflict has no side {side[:40]!r}")
        with self._overlay.client() as client:
            found = conflict_view.read(client, params.text("branch"), _bytes(params.path()), side, MAX_IMAGE_BYTES)  # type: ignore[arg-type]
            return picture(found.data if found.kind == "file" and found.size == len(found.data) else b"")

    def decide(self, request: Request) -> Response:
        """Decide one ``path``, as the page showed it (``version``). ``how``: ours, theirs or marked; ``choices``: for each place
        that clashes; or ``text``: the whole file.

        Raises:
            Refusal: ``conflict-changed`` if it is not what the page showed any more.
        """
        self._check()
        path, how = _bytes(path_of(field(request, "path"))), field(request, "how", "")
        with self._overlay.client() as client:
            branch = branch_of(client, request)
            seen, content = field(request, "version"), None
            if not seen:
                raise ValueError("the form says no version")
            if how not in ("ours", "theirs", "marked"):
                how, content = "edited", _content(client, request, branch, path, seen)
            try:
                reply = client.resolve([path], how, branch.id, content=content, seen=seen, merge=_merge(request))  # type: ignore[arg-type]
            except AgentFSError as exc:
                if exc.code == _CHANGED:
                    raise _changed(path) from exc
                raise
        return answer(_listed(reply))

    def end(self, request: Request) -> Response:
        """Finish the merge of the branch, or take it back with ``abort``; with ``force`` also what was changed since."""
        self._check()
        is_abort = bool(field(request, "abort", ""))
        with self._overlay.client() as client:
            branch = branch_of(client, request)
            force = bool(field(request, "force", ""))
            reply = client.end_merge(branch.id, abort=is_abort, force=force, merge=_merge(request))
        what = f"merge of {', '.join(reply.sources)} into {reply.branch}"
        if reply.state in ("finished", "aborted"):
            self._pages.said.append(f"The {what} was {'finished' if reply.state == 'finished' else 'taken back'}.")
        return answer({**_listed(reply), "changed": [visible(_text(each.path_bytes)) for each in reply.changed]})

    def _check(self) -> None:
        if not self._pages.writable:
            raise HTTPException(403, "This page only looks; `agentfsd ui --write` offers to settle conflicts.")


def _merge(request: Request) -> int:
    """Return the number of the merge that the page showed; 0 if it does not say."""
    number = field(request, "merge", "0")
    if not number.isdecimal() or len(number) > 18:
        raise ValueError("merge is the number of a merge")
    return int(number)


def _content(client: ControlClient, request: Request, branch: wire.Branch, path: bytes, seen: str) -> bytes:
    """Return what the file gets: a text that was written in the page, or what was chosen in each place that clashes."""
    now = conflict_view.now_of(client, branch.id, path)
    if now.version != seen:
        raise _changed(path)
    text = field(request, "text", "") if "text" in request.state.form else None
    if not now.is_whole or (text is not None and conflict_view.editable(now) is None):
        raise invalid(f"{visible(_text(path))} is no file that can be edited here", "take one side, or mark it as it is")
    if text is not None:
        made = marked_text.written(text, ends=b"\r\n" in now.found.data)
        return made if now.found.data.endswith(b"\n") or not text else _as_it_ended(made, text)
    reply = client.conflicts(branch.id)
    parts = conflict_view.parts_of(client, branch.id, now, reply, conflict_view.conflict_of(reply, path))
    if parts is None:
        raise _changed(path)
    return marked_text.joined(parts, decoded(request, "choices", list[TakenLines]))


def _as_it_ended(made: bytes, text: str) -> bytes:
    """Leave out the line end that a text got which had none, and was sent without."""
    return made if text.endswith("\n") else made.removesuffix(b"\n").removesuffix(b"\r")


def _listed(reply: wire.ConflictsReply) -> dict[str, Any]:
    undecided = sum(not each.decided for each in reply.conflicts)
    rows = [
        {
            "key": conflict_view.path_key(each), "path": visible(_text(each.path_bytes)), "kind": each.kind,
            "message": each.message, "source": each.source, "decided": each.decided,
        }
        for each in reply.conflicts
    ]  # fmt: skip
    return {
        "branch": reply.branch, "state": reply.state, "sources": reply.sources, "merge": reply.merge,
        "conflicts": rows, "undecided": undecided,
        "said": f"{plural(undecided, 'conflict')} undecided" if undecided else "All conflicts are decided",
    }  # fmt: skip


def _changed(path: bytes) -> Refusal:
    message = f"{visible(_text(path))} was changed since this page showed it"
    return Refusal(errno.EBUSY, _CHANGED, message, "Nothing was decided. Load it again, look, and decide again.")


def _bytes(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")


def _text(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")
