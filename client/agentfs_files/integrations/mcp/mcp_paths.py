"""Turn the path that a client gives into one that the file system takes: `~` is the home directory, and nothing outside passes."""

import os

from agentfs_files.filesystem.filesystem_errors import PathEscapeError
from agentfs_files.filesystem.filesystem_protocol import Filesystem
from agentfs_files.filesystem.virtual_paths import normalize


def locate(filesystem: Filesystem, path: str) -> str:
    """Return the path; one with a leading `~` in full. A directory of that name in the root is `./~`.

    Raises:
        PathEscapeError: The path is outside the workspace.
        ValueError: No file can have this path.
    """
    full = os.path.expanduser(path) if path == "~" or path.startswith("~/") else path
    try:
        normalize(full, _roots(filesystem))
    except PathEscapeError as exc:
        exc.filename = full
        raise
    return full


def _roots(filesystem: Filesystem) -> tuple[str, ...]:
    """Return the directories that absolute paths begin with. Over a socket the root is `/`, but a client knows the mount point."""
    if filesystem.mount_point is None:
        return (filesystem.root,)
    return (filesystem.mount_point,) if filesystem.root == "/" else (filesystem.mount_point, filesystem.root)
