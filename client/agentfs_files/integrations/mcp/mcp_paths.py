"""Turn the path that a client gives into one that the file system takes: `~` is the home directory; nothing outside passes."""

import os
import unicodedata

from agentfs_files.filesystem.filesystem_errors import PathEscapeError
from agentfs_files.filesystem.filesystem_protocol import Filesystem
from agentfs_files.filesystem.virtual_paths import join, normalize
from agentfs_files.integrations.mcp.mcp_refusal import McpRefused


def locate(filesystem: Filesystem, path: str) -> str:
    """Return the path; one with a leading `~` in full. A directory of that name in the root is `./~`.

    Raises:
        PathEscapeError: The path is outside the workspace.
        McpRefused: Several names are equal to one in it.
        ValueError: No file can have this path.
    """
    full = os.path.expanduser(path) if path == "~" or path.startswith("~/") else path
    try:
        where = normalize(full, _roots(filesystem))
    except PathEscapeError as exc:
        exc.filename = full
        raise
    return full if full.isascii() or filesystem.exists(full) else _as_spelt(filesystem, where, full)


def _as_spelt(filesystem: Filesystem, where: str, given: str) -> str:
    """Return a path whose names are written as they are on disk, where those are equal in Unicode. Models compose characters
    anew, and would not find a file, or make a second one that looks the same.
    """
    above = ""
    for name in where.split("/"):
        path = join(above, name)
        if not name.isascii() and not filesystem.exists(path):
            same = _equivalent(filesystem, above, name)
            if len(same) > 1:
                raise McpRefused(f"{given} can be any of {len(same)} files, whose names differ in how characters are composed")
            path = join(above, *same) if same else path
        above = path
    return given if above == where else above


def _equivalent(filesystem: Filesystem, directory: str, name: str) -> list[str]:
    try:
        entries = filesystem.list(directory or ".")
    except OSError:
        return []
    composed = unicodedata.normalize("NFC", name)
    return [entry.name for entry in entries if unicodedata.normalize("NFC", entry.name) == composed]


def _roots(filesystem: Filesystem) -> tuple[str, ...]:
    """Return what absolute paths begin with. Over a socket the root is `/`, but a client knows the mount point."""
    if filesystem.mount_point is None:
        return (filesystem.root,)
    return (filesystem.mount_point,) if filesystem.root == "/" else (filesystem.mount_point, filesystem.root)
