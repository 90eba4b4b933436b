"""Real descriptors of a branch's files, where the daemon gives them, and what is done where it does not. It never asks for a path
that its caller has not checked."""

import os

from agentfs_client.errors import NOT_FORWARDED, AgentFSError, DaemonGoneError
from agentfs_client.question import NO_DESCRIPTORS
from agentfs_files.backends.host import HostFilesystem
from agentfs_files.backends.host_files import FileSource
from agentfs_files.filesystem.file_streams import Source
from agentfs_files.remote_files import RemoteFiles

_WORTH_BYTES = 1 << 20  # from here on asking for a descriptor saves two thirds of the time, and costs a tenth when there is none


def open_fd(files: RemoteFiles, mount: HostFilesystem | None, path: str, flags: int, permissions: int) -> int:
    """The content's own descriptor, else the one that *mount*, the branch as this process sees it, gives."""
    try:
        return files.open_fd(path, flags, permissions).fd
    except AgentFSError as exc:
        if mount is None or exc.code not in (NOT_FORWARDED, NO_DESCRIPTORS):
            raise
    return mount.descriptor(path, flags, permissions)


def open_source(files: RemoteFiles, path: str) -> Source:
    """A file over the socket; a large one by its descriptor, if that is to be had without changing the branch: of what the branch
    does not own, this shows the content of now."""
    source = files.open(path)
    if source.size < _WORTH_BYTES:
        return source
    try:
        better = FileSource(files.open_fd(path, os.O_RDONLY, no_copy=True).fd)
    except DaemonGoneError:
        raise
    except OSError:
        return source  # nothing is forwarded, or not without a copy; or the file has gone, and is still open here
    except BaseException:
        source.close()
        raise
    source.close()
    return better
