"""What handlers answer, before either session puts it into its own form."""

from typing import NamedTuple

from agentfsd.core.inode import Attributes

LONG_S = 3600.0  # what only the kernel and our own notifications change
LOWER_S = 1.0  # the lower may change under us, and must show within a second
NOW_S = 0.0  # what depends on the caller


class CallContext(NamedTuple):
    """Whose request it is, as the kernel says: thread, user, group, and the umask where we apply it (else 0)."""

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
NO_REPLY: list[bytes | memoryview] = []  # nobody waits for an answer, or it comes later
