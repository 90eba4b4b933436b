"""The page that reviews a branch: what it changed, all on one page, and what becomes of it: commit, merge, take back.

Reading is in GET. What changes something is in POST, whose form the guard has checked; each can be asked first what it would do.
"""

from collections.abc import Container
from typing import Literal, TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agentfs_client import wire
from agentfs_client.control import ControlClient
from agentfs_client.errors import NotFoundError
from agentfsd.domain_errors import invalid, not_found
from agentfsd.review.hunks import Picks
from agentfsd.web.branch_board import last_run
from agentfsd.web.diff_rows import change_rows, in_words
from agentfsd.web.display_text import in_repository, key, visible
from agentfsd.web.overlay_model import LiveOverlay
from agentfsd.web.page_rendering import Pages, answer
from agentfsd.web.query_params import QueryParams
from agentfsd.web.review_outcome import committed, merged, taken_back
from agentfsd.web.reviewed_files import Chosen, SeenFile, check_seen, list_version, picks_of, reviewed, whole_rows

MAX_TOGETHER = 50  # files that are asked for at once
_SIDES: dict[str, Literal["", "ours", "theirs"]] = {"": "", "leave": "", "ours": "ours", "theirs": "theirs"}
_WAYS = ("", "merge", "force")
_T = TypeVar("_T")


class ReviewRoutes:
    """The page that reviews a branch."""

    def __init__(self, pages: Pages, overlay: LiveOverlay) -> None:
        self._pages, self._overlay = pages, overlay

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/review", self.page),
            Route("/api/review", self.changes),
            Route("/api/review/counts", self.counts),
            Route("/api/review/files", self.files),
            Route("/api/review/whole", self.whole),
            Route("/api/review/commit", self.commit, methods=["POST"]),
            Route("/api/review/merge", self.merge, methods=["POST"]),
            Route("/api/review/take-back", self.take_back, methods=["POST"]),
        ]

    # -- what it shows

    def page(self, request: Request) -> Response:
        """Show a branch: ``branch``, its name or id. The page asks for the rest."""
        ref = QueryParams(request).text("branch")
        with self._overlay.client() as client:
            branches = client.list_branches(count=False)
            refs = {each.name for each in branches} | {snapshot.name for snapshot in client.list_snapshots()}
            branch = next((each for each in branches if ref in (each.name, each.id)), None)
            if branch is None:
                raise not_found("branch", ref, "it was deleted, or never there; the first page lists those there are")
            runs = client.list_runs(branch.id, each_command=True)
        others = [(each.name, each.id) for each in branches if each.id != branch.id]
        since = branch.base if branch.base in refs else ""
        run = last_run(runs, branch)
        return self._pages.page("review.html", request, branch=branch, others=others, since=since, run=run)

    def changes(self, request: Request) -> Response:
        """Answer with the list of what the branch changed since it was made, and the commits that were made with git."""
        with self._overlay.client() as client:
            found = client.changes(QueryParams(request).text("branch"), own=True)
        git = [in_repository(one.path_bytes, one.sentence) for one in found.repositories]
        version = list_version(found)
        return answer({"changes": change_rows(found.changes), "git": git, "what": in_words(found.changes), "version": version})

    def counts(self, request: Request) -> Response:
        """Answer with the added and removed lines of each file, by key."""
        with self._overlay.client() as client:
            patches = client.patches(QueryParams(request).text("branch"), stat_only=True, own=True, internal=False)
        paths = [(patch.path_bytes.decode("utf-8", "surrogateescape"), patch) for patch in patches if not patch.is_binary]
        return answer({key(path): (patch.added, patch.removed) for path, patch in paths})

    def files(self, request: Request) -> Response:
        """Answer with the hunks of each ``path``; with ``open=1`` also of files that are folded otherwise."""
        params = QueryParams(request)
        paths = params.texts("path")
        if len(paths) > MAX_TOGETHER:
            raise ValueError(f"at most {MAX_TOGETHER} files can be asked for at once")
        with self._overlay.client() as client:
            return answer(reviewed(client, params.text("branch"), paths, is_open=bool(params.text("open", ""))))

    def whole(self, request: Request) -> Response:
        """Answer with all lines of a file."""
        params = QueryParams(request)
        with self._overlay.client() as client:
            return answer(whole_rows(client, params.text("branch"), params.path()))

    # -- what it does. The form says the branch by its id: another one may have its name by now

    def commit(self, request: Request) -> Response:
        """Commit what was chosen, or everything; ``dry`` only asks what that would do. ``way``: what decides conflicts.
        ``hooks``: also files that programs of the user would run.
        """
        self._check()
        way, is_dry = _way(request, _WAYS), bool(field(request, "dry", ""))
        with self._overlay.client() as client:
            branch = branch_of(client, request)
            picks = _picks(client, request, branch)
            result = client.commit(
                branch.id, picks.paths, picked=picks.files, dry_run=is_dry, merge=way == "merge", force=way == "force",
                hooks=bool(field(request, "hooks", "")),
            )  # fmt: skip
        return answer(committed(result, branch.name, is_dry=is_dry, way=way))

    def merge(self, request: Request) -> Response:
        """Merge what was chosen, or everything, into the branch ``into``. ``way``: ours or theirs wins where both
        changed; leave: the conflicts are left in it, to be decided there. ``hooks``: as for a commit.
        """
        self._check()
        way, is_dry, into = _way(request, _SIDES), bool(field(request, "dry", "")), field(request, "into")
        if not into:
            raise ValueError("the form says no into")
        with self._overlay.client() as client:
            branch = branch_of(client, request)
            picks = _picks(client, request, branch)
            result = client.merge(
                [branch.id], into, favor=_SIDES[way], dry_run=is_dry, paths=picks.paths, picked=picks.files,
                hooks=bool(field(request, "hooks", "")), conflicts=way == "leave",
            )  # fmt: skip
        return answer(merged(result, branch.name, is_dry=is_dry, way=way))

    def take_back(self, request: Request) -> Response:
        """Give the branch what it was made from, in what was chosen."""
        self._check()
        with self._overlay.client() as client:
            branch = branch_of(client, request)
            picks = _picks(client, request, branch)
            if not picks.paths:
                raise invalid("nothing was chosen", "choose hunks; `Discard` on the first page takes back everything")
            is_dry = bool(field(request, "dry", ""))
            if not is_dry:
                client.restore(None, branch.id, picks.paths, picked=picks.reversed().files)
        return answer(taken_back(branch.name, len(set(picks.paths)), is_dry=is_dry))

    def _check(self) -> None:
        if not self._pages.writable:
            raise HTTPException(403, "This page only looks; `agentfsd ui --write` offers to commit, merge and take back.")


def branch_of(client: ControlClient, request: Request) -> wire.Branch:
    """Return the branch that a form is about, by its id.

    Raises:
        Refusal: It has gone.
    """
    given = field(request, "branch")
    if not given:
        raise ValueError("the form says no branch")  # the daemon would take main
    try:
        return client.show_branch(given)
    except NotFoundError as exc:
        name = visible(field(request, "name", "that"))
        raise not_found("branch", name, "it went after the page was made; nothing was changed") from exc


def _way(request: Request, known: Container[str]) -> str:
    """Return what the form says decides conflicts."""
    way = field(request, "way", "")
    if way not in known:
        raise invalid(f"conflicts cannot be decided by {visible(way)!r}", "load the page again")
    return way


def _picks(client: ControlClient, request: Request, branch: wire.Branch) -> Picks:
    """Return what the form says was chosen; no paths if it says ``all``, of which the page has shown ``version`` and ``seen``."""
    if field(request, "all", ""):
        check_seen(client, branch, field(request, "version"), decoded(request, "seen", list[SeenFile]))
        return Picks([], [])
    picks = picks_of(client, branch.id, decoded(request, "picks", list[Chosen]))
    if not picks.paths:
        raise invalid("nothing was chosen", "choose hunks with their boxes first")
    return picks


def field(request: Request, name: str, default: str | None = None) -> str:
    """Return a field of a form; ValueError if it is missing and there is no *default*."""
    value: str | None = request.state.form.get(name, default)
    if value is None:
        raise ValueError(f"the form says no {name}")
    return value


def decoded(request: Request, name: str, kind: type[_T]) -> _T:
    """Return a field of a form that holds JSON.

    Raises:
        Refusal: ``invalid`` if it holds something else.
    """
    try:
        return msgspec.json.decode(field(request, name).encode("utf-8", "surrogateescape"), type=kind)
    except (msgspec.MsgspecError, UnicodeError) as exc:
        raise invalid(f"what the form says in {name} makes no sense", "load the page again") from exc
