"""Filters of paths: a file, or everything below a directory. It must never look at a tree."""

from collections.abc import Iterable

from agentfsd.domain_errors import invalid
from agentfsd.types import PathChange


def parse(paths: Iterable[bytes]) -> tuple[bytes, ...]:
    """Paths relative to the root as they are compared; Refusal for what leads out of it. None given: no filter."""
    return tuple(_plain(path) for path in paths)


def _plain(path: bytes) -> bytes:
    names = path.split(b"/")
    if path.startswith(b"/") or b".." in names or b"\0" in path:
        shown = path.decode("utf-8", "backslashreplace")
        raise invalid(f"{shown!r} is no path below the root", "name it relative to the root, without '..'", "bad-path")
    return b"/".join(name for name in names if name not in (b"", b"."))


def among(changes: list[PathChange], wanted: tuple[bytes, ...]) -> list[PathChange]:
    """The changes that a filter lets through; a rename counts by either of its names."""
    return [change for change in changes if touches(wanted, change.path, change.old_path)] if wanted else changes


def touches(wanted: tuple[bytes, ...], path: bytes, old_path: bytes = b"") -> bool:
    """Whether a path (or the one that it had before) is named by the filter, or lies below what is.

    What is below a renamed directory has moved with it, so naming that finds the directory.
    """
    if not wanted:
        return True
    names = (path, old_path) if old_path else (path,)
    moved = len(set(names)) > 1
    return any(is_below(name, want) or (moved and is_below(want, name)) for name in names for want in wanted)


def is_below(path: bytes, directory: bytes) -> bool:
    """Also when both are the same; b"" is the root."""
    return not directory or path == directory or path.startswith(directory + b"/")
