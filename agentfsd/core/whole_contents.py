"""The whole content of a file of a tree, in memory. It never knows what the content is for."""

import os

from agentfsd.core.copyup import content_fd
from agentfsd.core.tree import Inode


def content_of(inode: Inode) -> bytes:
    """Return the whole content of a file."""
    fd = content_fd(inode)
    with open(fd, "rb", buffering=0) as file:
        os.lseek(fd, 0, os.SEEK_SET)
        return file.readall() or b""
