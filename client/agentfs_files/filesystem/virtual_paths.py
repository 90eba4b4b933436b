"""Normalise paths that callers give into paths from the root: names and single slashes; "" is the root."""

import errno
import os
from collections.abc import Iterable

from agentfs_files.filesystem.filesystem_errors import PathEscapeError
from agentfs_files.filesystem.size_limits import Limits

_NAME_BYTES = 255  # NAME_MAX of Linux


def normalize(path: str, prefixes: Iterable[str] = ("/",)) -> str:
    """Return *path* relative to the root.

    An absolute path is relative to the first of *prefixes* that contains it. ``..`` removes the name before it.

    Raises:
        PathEscapeError: the path leads above its start, or an absolute path lies beneath no prefix.
        ValueError: the path holds a zero byte.
    """
    given = os.fspath(path)
    if "\0" in given:
        raise ValueError(f"the path {given!r} holds a zero byte, which no file name can")
    if not given.isascii():
        _encode(given)
    names: list[str] = []
    for name in given.split("/"):
        if name == ".." and not names:
            raise escapes(given)
        if name == "..":
            names.pop()
        elif name not in ("", "."):
            names.append(name)
    return _below(given, names, prefixes) if given.startswith("/") else "/".join(names)


def _encode(path: str) -> bytes:
    try:
        return path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise ValueError(f"the path {path!r} holds half of a surrogate pair, which no file name can") from None


def _below(given: str, names: list[str], prefixes: Iterable[str]) -> str:
    if not names:
        return ""  # many callers use "/" for the root of the workspace
    for prefix in prefixes:
        above = [name for name in prefix.split("/") if name]
        if names[: len(above)] == above:
            return "/".join(names[len(above) :])
    raise escapes(given)


def escapes(path: str) -> PathEscapeError:
    return PathEscapeError(errno.EACCES, "the path escapes root; name one inside the workspace", path)


def check_new(path: str, limits: Limits) -> None:
    """Raise ValueError if a normalised path is too deep, or has too long names, to be created."""
    names = path.split("/")
    if len(names) > limits.max_path_depth:
        raise ValueError(f"Path depth exceeds limit of {limits.max_path_depth} segments: {path!r} has {len(names)}")
    for name in names:
        if len(name) > limits.max_segment_length:
            raise ValueError(f"Path segment exceeds limit of {limits.max_segment_length} characters: {name!r} has {len(name)}")
        if len(name) > _NAME_BYTES // 4 and len(_encode(name)) > _NAME_BYTES:
            raise ValueError(f"Path segment exceeds limit of {_NAME_BYTES} bytes: {name!r} has {len(_encode(name))}")


def parent_of(path: str) -> str:
    return path.rpartition("/")[0]


def name_of(path: str) -> str:
    return path.rpartition("/")[2]


def join(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory and name else directory or name


def refusal(number: int, path: str) -> OSError:
    """Return the standard exception for an errno, with the path as the caller knows it."""
    return OSError(number, os.strerror(number), path or ".")
