"""The settings of a test class for its backend, and steps that many tests share."""

from agentfs_files.filesystem.filesystem_protocol import Filesystem
from agentfs_files.filesystem.size_limits import DEFAULT_LIMITS, Limits


class Settings:
    """Class attributes that a subclass may set."""

    limits: Limits = DEFAULT_LIMITS
    large_file_bytes: int = 4 << 20
    """How large the files of the tests of memory and of the largest reads are. 0 leaves those tests out: for a slow backend."""
    keeps_content_in_memory: bool = False
    """True for a backend whose files are in this process: what is written needs as much memory as it is long."""


def fill(fs: Filesystem, files: dict[str, str]) -> None:
    """Write *files*, given as text by path."""
    for path, content in files.items():
        fs.write(path, content)


def contents(fs: Filesystem) -> dict[str, str]:
    """Return the text of every file by path. Each must have no more lines than read() returns by default."""
    return {match.path: fs.read(match.path).content for match in fs.glob("**")}
