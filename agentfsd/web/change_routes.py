"""Restore, discard and undo, each after a page that shows what would change, and answers. Only with `agentfsd ui --write`."""

import errno
from typing import Literal

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from agentfs_client.errors import NotFoundError
from agentfs_files.filesystem.virtual_paths import normalize
from agentfsd.domain_errors import Refusal, not_found
from agentfsd.web.diff_rows import change_rows, in_words
from agentfsd.web.display_text import key, path_of, visible
from agentfsd.web.overlay_model import LiveOverlay
from agentfsd.web.page_rendering import Pages
from agentfsd.web.query_params import MOST_DIGITS, QueryParams

SHOWN_CHANGES = 30
ANSWERS: dict[str, tuple[bool, Literal["once", "session", "rule"], str]] = {  # by what a button says in the form
    "allow": (True, "once", "Allowed once"), "allow-session": (True, "session", "Allowed for the session"),
    "allow-rule": (True, "rule", "Allowed by a rule"), "deny": (False, "once", "Denied once"),
    "deny-session": (False, "session", "Denied for the session"), "deny-rule": (False, "rule", "Denied by a rule"),
}  # fmt: skip


class ChangeRoutes:
    """The pages that change something. The guard has checked the form of each POST."""

    def __init__(self, pages: Pages, overlay: LiveOverlay) -> None:
        self._pages, self._overlay = pages, overlay

    def routes(self) -> list[Route]:
        """Return the routes of the pages."""
        return [
            Route("/restore", self.ask_restore, methods=["GET"]),
            Route("/restore", self.restore, methods=["POST"]),
            Route("/discard", self.ask_discard, methods=["GET"]),
            Route("/discard", self.discard, methods=["POST"]),
            Route("/asks", self.asks, methods=["GET"]),
            Route("/asks", self.answer, methods=["POST"]),
            Route("/undo", self.ask_undo, methods=["GET"]),
            Route("/undo", self.undo, methods=["POST"]),
        ]

    def ask_restore(self, request: Request) -> Response:
        """Show what restoring would change.

        Parameters of the address: ``ref``, the snapshot; ``branch``, by default the snapshot's; ``path``, to restore only that
        file or directory.
        """
        self._check()
        params = QueryParams(request)
        ref, path = params.text("ref"), params.path("")
        branches, _ = self._overlay.refs()
        with self._overlay.client() as client:
            snapshot = client.show_snapshot(ref)
            names = [branch.name for branch in branches]
            branch = client.show_branch(params.text("branch", snapshot.branch if snapshot.branch in names else "main"))
            changes = client.diff(snapshot.id, branch.id, [path] if path else [])
        return self._pages.page(
            "restore.html", request, snapshot=snapshot, branch=branch.name, branch_id=branch.id, names=names, path=key(path),
            shown_path=visible(path), what=in_words(changes), changes=change_rows(changes[:SHOWN_CHANGES]),
            more=max(0, len(changes) - SHOWN_CHANGES),
        )  # fmt: skip

    def restore(self, request: Request) -> Response:
        """Restore what the page showed, in the branch that it showed: another branch may have the name by now."""
        ref, branch_id, branch = _field(request, "ref"), _field(request, "id"), _field(request, "branch")
        path = normalize(path_of(_field(request, "path")))
        with self._overlay.client() as client:
            try:
                message = client.restore(ref, branch_id, [path] if path else [])
            except NotFoundError as exc:
                raise not_found("branch or snapshot", branch, "it went after the page was made; nothing was restored") from exc
        self._pages.said.append(f"{message[:1].upper()}{message[1:]}." if message else f"{branch} was restored.")
        return RedirectResponse(f"/compare?a=&b={key(branch)}", 303)

    def ask_discard(self, request: Request) -> Response:
        """Show what discarding a branch would delete."""
        self._check()
        with self._overlay.client() as client:
            branch = client.show_branch(QueryParams(request).text("branch"))
            changes = client.changes(branch.id).changes
        return self._pages.page(
            "discard.html", request, branch=branch, what=in_words(changes), changes=change_rows(changes[:SHOWN_CHANGES]),
            more=max(0, len(changes) - SHOWN_CHANGES),
        )  # fmt: skip

    def discard(self, request: Request) -> Response:
        """Discard the branch that the page showed, by its id: another branch may have the name by now."""
        branch_id, name = _field(request, "id"), _field(request, "branch")
        with self._overlay.client() as client:
            try:
                client.discard(branch_id)
            except NotFoundError as exc:
                raise not_found("branch", name, "it went after the page was made; nothing was discarded") from exc
        self._pages.said.append(f"{name} was discarded.")
        return RedirectResponse("/", 303)

    def asks(self, request: Request) -> Response:
        """Show the processes that wait for permission; with buttons if the pages may change something."""
        with self._overlay.client() as client:
            waiting = client.list_asks()
        return self._pages.page("asks.html", request, asks=waiting, answers=ANSWERS)

    def answer(self, request: Request) -> Response:
        """Answer the process that the page showed."""
        number, choice = _field(request, "id"), _field(request, "answer")
        if choice not in ANSWERS or not number.isdecimal() or len(number) > MOST_DIGITS:
            raise ValueError("the form has no such answer")
        allow, lasts, words = ANSWERS[choice]
        with self._overlay.client() as client:
            question = client.answer_ask(int(number), allow=allow, lasts=lasts)
        self._pages.said.append(f"{words}: {question.command} wants to {question.what} {visible(question.path)}.")
        return RedirectResponse("/asks", 303)

    def ask_undo(self, request: Request) -> Response:
        """Show the operation that would be undone. ``branch``: where to go back to."""
        self._check()
        back = QueryParams(request).text("branch", "")
        with self._overlay.client() as client:
            entries = client.undoable()
        return self._pages.page("undo.html", request, entries=entries, back=back)

    def undo(self, request: Request) -> Response:
        """Undo the operation that the page showed.

        Raises:
            Refusal: It is no longer the last operation.
        """
        offered = _field(request, "snapshot")
        with self._overlay.client() as client:
            last = next(iter(client.undoable()), None)
            if last is None or last.snapshot != offered:
                what = f"the last is the {last.kind} of {last.branch}" if last is not None else "nothing is left that could be"
                raise Refusal(errno.EBUSY, "not-last", f"that is no longer the last: {what}", "Nothing was undone.")
            undone = client.undo()
            back = request.state.form.get("back", "")
            is_there = bool(back) and any(branch.name == back for branch in client.list_branches(count=False))
        self._pages.said.append(f"Undone: {undone.kind} of {undone.branch}.")
        return RedirectResponse(f"/review?branch={key(back)}" if is_there else "/", 303)

    def _check(self) -> None:
        if not self._pages.writable:
            raise HTTPException(403, "This page only looks; `agentfsd ui --write` offers to commit, merge, restore and discard.")


def _field(request: Request, name: str) -> str:
    value: str | None = request.state.form.get(name)
    if value is None:
        raise ValueError(f"the form says no {name}")
    return value
