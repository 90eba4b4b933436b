"""Get real descriptors of a branch's files if the daemon gives them out, else fall back. Callers must have checked every path."""

import os

from agentfs_client.errors import NOT_FORWARDED, AgentFSError, DaemonGoneError
from agentfs_client.question import NO_DESCRIPTORS
from agentfs_files.backends.host import HostFilesystem
from agentfs_files.backends.host_files import FileSource
from agentfs_files.filesystem.file_streams import Source
from agentfs_files.remote_files import RemoteFiles

_WORTH_BYTES = 1 << 20  # bytes; for larger files a descriptor saves two thirds of the time, and asking in vain costs a tenth


def open_fd(files: RemoteFiles, mount: HostFilesystem | None, path: str, flags: int, permissions: int) -> int:
    """Return a descriptor of the content itself; else one of *mount*, the branch as this process sees it."""
    try:
        return files.open_fd(path, flags, permissions).fd
    except AgentFSError as exc:
        if mount is None or exc.code not in (NOT_FORWARDED, NO_DESCRIPTORS):
            raise
    return mount.descriptor(path, flags, permissions)


def open_source(files: RemoteFiles, path: str) -> Source:
    """Open a file over the socket; a large one by its descriptor, if that does not change the branch. A file that the branch does
    not own then shows its present content.
    """
    source = files.open(path)
    if source.size < _WORTH_BYTES:
        return source
    try:
        better = FileSource(files.open_fd(path, os.O_RDONLY, no_copy=True).fd)
    except DaemonGoneError:
        raise
    except OSError:
        return source  # no descriptor, or only after a copy; or the file was deleted, but is still open here
    except BaseException:
        source.close()
        raise
    source.close()
    return better
