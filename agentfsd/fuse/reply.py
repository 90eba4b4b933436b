"""What handlers return; each session encodes it in its own form."""

from typing import NamedTuple

from agentfsd.core.inode import Attributes

LONG_S = 3600.0  # nothing changes it but requests here, and we notify the kernel of other changes
LOWER_S = 1.0  # the lower may change unnoticed, and its changes must show within a second
NOW_S = 0.0  # what depends on the caller


class CallContext(NamedTuple):
    """Who makes a request, as the kernel says.

    Attributes:
        pid: The thread id (FUSE calls it pid).
        umask: The caller's umask where the daemon applies it, else 0.
    """

    pid: int
    uid: int
    gid: int
    umask: int = 0


class LookupReply(NamedTuple):
    """The answer to LOOKUP and its kind; ``node_id`` 0 with no attributes: there is no such name."""

    node_id: int
    attributes: Attributes | None
    entry_s: float
    attr_s: float


class AttributesReply(NamedTuple):
    """The answer to GETATTR and SETATTR."""

    attributes: Attributes
    attr_s: float


class ListedName(NamedTuple):
    """One name of a listing; ``entry.node_id`` is 0 where the kernel takes number and type only."""

    name: bytes
    entry: LookupReply
    next: int


NOT_THERE = LookupReply(0, None, NOW_S, NOW_S)
NO_REPLY: list[bytes | memoryview] = []  # no answer is expected, or it is sent later
