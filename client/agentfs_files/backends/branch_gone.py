"""Raise DaemonGoneError for a branch's open files when the daemon ends, over the mount as well as over the socket."""

import errno
from collections.abc import Callable
from typing import TypeVar

from agentfs_client.errors import AgentFSError, DaemonGoneError
from agentfs_files.filesystem.file_streams import Sink, Source

UNREACHED = (errno.ENOTCONN, errno.ESTALE)  # errors of a dead mount: the request did not reach the daemon
_BROKEN = (errno.ECONNABORTED, errno.ENODEV)  # the daemon died during the request

_T = TypeVar("_T")


def is_gone(exc: OSError) -> bool:
    return isinstance(exc, DaemonGoneError) or exc.errno in (*UNREACHED, *_BROKEN)


def gone(hint: str) -> DaemonGoneError:
    return DaemonGoneError(errno.ENOTCONN, "daemon-gone", "the daemon has gone", hint)


class SafeSource:
    """A source that raises DaemonGoneError if its daemon ends."""

    def __init__(self, source: Source) -> None:
        self._source = source

    @property
    def size(self) -> int:
        return self._source.size

    def read(self, size: int) -> bytes:
        return _while_there(lambda: self._source.read(size))

    def seek(self, position: int) -> None:
        self._source.seek(position)

    def close(self) -> None:
        self._source.close()


class SafeSink:
    """A sink that raises DaemonGoneError if its daemon ends. Content that was not committed is lost then."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, data: bytes) -> None:
        _while_there(lambda: self._sink.write(data))

    def commit(self) -> None:
        _while_there(self._sink.commit)

    def discard(self) -> None:
        _while_there(self._sink.discard)


def _while_there(act: Callable[[], _T]) -> _T:
    try:
        return act()
    except OSError as exc:
        if isinstance(exc, AgentFSError) or not is_gone(exc):
            raise
        raise gone("open the file again once it is there") from exc
