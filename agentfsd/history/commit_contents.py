"""Sources of the contents that a commit writes. The writing thread opens them. They must never know a path of a branch."""

import os
from typing import NamedTuple

from agentfsd.types import Backstore, Lower


class ObjectContent(NamedTuple):
    """The content of an object of the backstore. ``size`` is in bytes."""

    backstore: Backstore
    number: int
    size: int

    def open(self) -> int:
        content = self.backstore.open(self.number)
        try:
            return os.dup(content.fileno())
        finally:
            content.close()


class LowerContent(NamedTuple):
    """The content of a file of the lower."""

    lower: Lower
    path: bytes
    size: int

    def open(self) -> int:
        return self.lower.open(self.path)


class BytesContent:
    """A content in memory."""

    def __init__(self, data: bytes) -> None:
        self._data, self.size = data, len(data)

    def open(self) -> int:
        fd = os.memfd_create("merged")
        os.write(fd, self._data)
        os.lseek(fd, 0, os.SEEK_SET)
        return fd
