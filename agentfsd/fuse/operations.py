"""All handlers of one connection, whichever session drives them."""

from agentfsd.fuse.files import FileHandlers
from agentfsd.fuse.names import NameHandlers


class Operations(NameHandlers, FileHandlers):
    """What a request means is core's business; handlers find the branch and the inode, and say what may be cached."""
