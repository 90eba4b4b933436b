"""Filters of paths: a file, or everything below a directory. It must never look at a tree."""

from collections.abc import Iterable

from agentfsd.domain_errors import invalid
from agentfsd.types import PathChange


def shown(path: bytes) -> str:
    """Return a path as messages name it: bytes that are not UTF-8 are escaped."""
    return path.decode("utf-8", "backslashreplace")


def parse(paths: Iterable[bytes]) -> tuple[bytes, ...]:
    """Return a filter: the paths, relative to the root, in normal form. No paths make no filter.

    Raises:
        Refusal: ``bad-path`` for a path that may lead out of the root.
    """
    return tuple(_plain(path) for path in paths)


def _plain(path: bytes) -> bytes:
    names = path.split(b"/")
    if path.startswith(b"/") or b".." in names or b"\0" in path:
        raise invalid(f"{shown(path)!r} is not a path below the root", "name it relative to the root, without '..'", "bad-path")
    return b"/".join(name for name in names if name not in (b"", b"."))


def among(changes: list[PathChange], wanted: tuple[bytes, ...]) -> list[PathChange]:
    """Return the changes that a filter selects. It selects a rename by either of its names."""
    return [change for change in changes if touches(wanted, change.path, change.old_path)] if wanted else changes


def touches(wanted: tuple[bytes, ...], path: bytes, old_path: bytes = b"") -> bool:
    """Tell whether a filter names *path* or *old_path*, the name before a rename, or a directory above one of them.

    A filter that names a path below a renamed directory selects the directory, because the path has moved with it.
    """
    if not wanted:
        return True
    names = (path, old_path) if old_path else (path,)
    moved = len(set(names)) > 1
    return any(is_below(name, want) or (moved and is_below(want, name)) for name in names for want in wanted)


def is_below(path: bytes, directory: bytes) -> bool:
    """Tell whether *path* is *directory* or below it; b"" is the root."""
    return not directory or path == directory or path.startswith(directory + b"/")


def directories_above(path: bytes) -> Iterable[bytes]:
    """Return every directory above *path*, from the top down, without the root."""
    parts = path.split(b"/")
    return (b"/".join(parts[:depth]) for depth in range(1, len(parts)))
