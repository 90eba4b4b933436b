"""Reads and checks the parameters of an address. It never answers."""

from starlette.requests import Request

from agentfs_files.filesystem.virtual_paths import normalize
from agentfsd.web.display_text import query

MOST_DIGITS = 18  # of a number: the daemon takes 64 bits


class QueryParams:
    """The parameters of a request. It raises ValueError with a sentence if one is missing or makes no sense."""

    def __init__(self, request: Request) -> None:
        self._pairs = query(request.scope["query_string"])
        self._given = dict(self._pairs)

    def text(self, name: str, default: str | None = None) -> str:
        """Return a parameter's text."""
        value = self._given.get(name, default)
        if value is None:
            raise ValueError(f"the address says no {name}=")
        return value

    def texts(self, name: str) -> list[str]:
        """Return every value of a parameter."""
        return [value for each, value in self._pairs if each == name]

    def has(self, name: str) -> bool:
        """Return whether a parameter is given."""
        return name in self._given

    def path(self, default: str | None = None) -> str:
        """Return the path from the root. PathEscapeError if it leads out of the root."""
        return normalize(self.text("path", default))

    def number(self, name: str, default: int) -> int:
        """Return a parameter's number."""
        text = self._given.get(name, str(default))
        if not text.isascii() or not text.isdecimal() or len(text) > MOST_DIGITS:
            raise ValueError(f"{name}= takes a number from 0 on, and not {text[:40]!r}")
        return int(text)
