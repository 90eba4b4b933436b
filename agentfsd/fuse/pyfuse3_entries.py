"""Core's attributes as pyfuse3 wants them: node number and inode number apart, and how long both may be cached."""

import ctypes

from pyfuse3 import EntryAttributes

from agentfsd.core.inode import Attributes

# EntryAttributes has one setter for the node number and st_ino together, but a file keeps its st_ino when the kernel has
# forgotten it, and every branch has a node of its own. The node number is the first field of the C struct behind the object.
_NODE_OFFSET = object.__basicsize__


def _probe() -> None:
    entry = EntryAttributes()
    entry.st_ino = 0x1234_5678_9ABC
    if ctypes.c_uint64.from_address(id(entry) + _NODE_OFFSET).value != entry.st_ino:
        raise ImportError("this pyfuse3 lays EntryAttributes out in another way; agentfsd knows versions 3.4 and 3.5")


_probe()


def make(node_id: int, attributes: Attributes, entry_timeout_s: float, attr_timeout_s: float) -> EntryAttributes:
    """A reply to LOOKUP and its kind; for GETATTR the node number does not matter."""
    entry = EntryAttributes()
    (
        entry.st_ino, entry.st_mode, entry.st_nlink, entry.st_uid, entry.st_gid, entry.st_rdev, entry.st_size,
        entry.st_blocks, entry.st_atime_ns, entry.st_mtime_ns, entry.st_ctime_ns, _,
    ) = attributes  # fmt: skip
    ctypes.c_uint64.from_address(id(entry) + _NODE_OFFSET).value = node_id
    entry.entry_timeout = entry_timeout_s
    entry.attr_timeout = attr_timeout_s
    return entry


def missing(entry_timeout_s: float) -> EntryAttributes:
    """The reply that lets the kernel remember that there is no such name."""
    entry = EntryAttributes()
    entry.st_ino = 0
    entry.entry_timeout = entry_timeout_s
    return entry
