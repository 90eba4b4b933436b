"""Which version of each file of a branch a person has viewed on the pages, kept in a small file beside the daemon's state.

It is for one person: who opens the pages sees the marks of whoever did so before. If the file cannot be written, the marks last
as long as `agentfsd ui`.
"""

import contextlib
import os
import threading
from collections.abc import Callable

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agentfsd.web.page_rendering import answer
from agentfsd.web.query_params import QueryParams

PATH = "/api/viewed"
_NAME = "viewed.json"
_MOST_BRANCHES = 50  # those that were marked last
_MOST_MARKS = 5_000  # of a branch, those that were made last
_LONGEST = 8_192  # characters of a path or version

_Marks = dict[str, dict[str, str]]


class ViewedFiles:
    """The marks, by id of a branch and path of a file. *directory* returns where they are kept."""

    def __init__(self, directory: Callable[[], str]) -> None:
        self._directory = directory
        self._turn = threading.Lock()
        self._unkept: _Marks = {}

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [Route(PATH, self.read), Route(PATH, self.mark, methods=["POST"])]

    def read(self, request: Request) -> Response:
        """Answer with the versions that were viewed of the files of ``branch``, by key."""
        with self._turn:
            return answer(self._kept().get(QueryParams(request).text("branch"), {}))

    def mark(self, request: Request) -> Response:
        """Note that ``version`` of the file ``path`` of ``branch`` was viewed; "": that it was not."""
        form = request.state.form
        branch, path, version = (str(form.get(name, "")) for name in ("branch", "path", "version"))
        if not branch or not path or max(map(len, (branch, path, version))) > _LONGEST:
            raise ValueError("the form says no file of a branch")
        with self._turn:
            marks = self._kept()
            of_branch = marks.pop(branch, {})
            of_branch.pop(path, None)
            if version:
                of_branch[path] = version
            if of_branch:
                marks[branch] = dict(list(of_branch.items())[-_MOST_MARKS:])
            self._keep(dict(list(marks.items())[-_MOST_BRANCHES:]))
        return answer({})

    def _kept(self) -> _Marks:
        try:
            with open(os.path.join(self._directory(), _NAME), "rb") as file:
                return msgspec.json.decode(file.read(), type=_Marks)
        except OSError:
            return self._unkept
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return {}  # it is not worth an error

    def _keep(self, marks: _Marks) -> None:
        self._unkept, path = marks, os.path.join(self._directory(), _NAME)
        temporary = f"{path}.{os.getpid()}"
        with contextlib.suppress(OSError, UnicodeEncodeError):
            with open(temporary, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
                file.write(msgspec.json.encode(marks))
            os.replace(temporary, path)
