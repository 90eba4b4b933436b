"""What the request decoders of one native connection share, besides its services: buffers, waiters, files kept open.

A decoder takes (native connection, node id, caller, the request's body) and returns the parts of its reply: None for an empty
one, NO_REPLY where none is sent now, or a coroutine for what has to wait.
"""

import errno
import struct
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any

import trio

from agentfsd.core.file_locks import Waiter
from agentfsd.core.tree import Inode
from agentfsd.fuse.connection import Connection
from agentfsd.fuse.handlers.file_handles import file_of
from agentfsd.fuse.native import fuse_protocol as fuse
from agentfsd.fuse.native.passthrough import PassthroughFiles
from agentfsd.fuse.reply import CallContext

Parts = list[bytes | memoryview] | None
Reply = Parts | Coroutine[Any, Any, Parts]

READ_BYTES = 1 << 20
REPEATED = 1 << 63  # in the number of a request that the kernel sends again
_IDLE_FILES = 256  # of files that the kernel reads without opening them


class NativeConnection:
    """State of one connection.

    Attributes:
        services: What handlers get.
        zero: The kernel opens files without asking us (zero-message): reads and writes come by node.
        answer_later: Answers a request that had to wait, by its number; the code is an errno, 0 for success.
        unique: The number of the request that is being handled.
        former_ends: Where appends went whose answers the kernel may not have, by number of the request: see data_requests.py.
        waiting: Lock requests that wait, by the number of the request.
        asking: What stops a request that waits for a person's answer, likewise.
        requested: Handles of the daemon before, by the number of the request that opened them.
        passthrough: Files that the kernel reads and writes itself; None where that is not asked for.
        page_view: The buffer of all reads. A reply that is not sent at once needs a copy.
        idle: Files that are open for reads by node, the one used last at the end.
    """

    def __init__(
        self, services: Connection, answer_later: Callable[[int, int], None], fuse_fd: int, io: str, *, long_setxattr: bool
    ) -> None:
        self.services, self.answer_later = services, answer_later
        self.zero = io == "zero-message"
        self.unique = 0
        self.former_ends: dict[int, int] = {}
        self.requested: dict[int, int] = {}
        self.waiting: dict[int, Waiter] = {}
        self.asking: dict[int, trio.CancelScope] = {}
        self.passthrough = PassthroughFiles(fuse_fd) if io == "passthrough" else None
        self.setxattr_in: struct.Struct = fuse.SETXATTR_IN if long_setxattr else fuse.SETXATTR_IN_SHORT
        self.page_view = memoryview(bytearray(READ_BYTES))
        self.idle: OrderedDict[Inode, None] = OrderedDict()

    def file(self, node_id: int, number: int, ctx: CallContext, *, writes: bool = False) -> Inode | None:
        """Return the file that a request about data is for; None for one in ``.agentfs``.

        Where opens are not sent to us, the rules by path are applied here.
        """
        if not self.zero:
            return file_of(self.services, number)
        inode = self.services.access.file(node_id, ctx)
        if self.services.guard.rules.active:
            self.services.guard.check_open(ctx, inode, writes=writes)
        idle = self.idle
        if inode in idle:
            idle.move_to_end(inode)
        else:
            idle[inode] = None
            if len(idle) > _IDLE_FILES:
                oldest, _ = idle.popitem(last=False)
                if not oldest.opens and not oldest.anonymous:
                    oldest.release_files()
        return inode

    def regular(self, node_id: int, number: int, ctx: CallContext, *, writes: bool = False) -> Inode:
        """Return the same; OSError (EINVAL) where it is no regular file."""
        inode = self.file(node_id, number, ctx, writes=writes)
        if inode is None:
            raise OSError(errno.EINVAL, "no regular file")
        return inode


Decoder = Callable[[NativeConnection, int, CallContext, memoryview], Reply]


def nothing(native: NativeConnection, node_id: int, ctx: CallContext, body: memoryview) -> Reply:
    """Answer a request that we do not support on this connection: the kernel does not send it again."""
    raise not_here()


def not_here() -> OSError:
    """Return the error by which the kernel learns not to send a request again."""
    return OSError(errno.ENOSYS, "not spoken here")
