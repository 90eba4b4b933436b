"""The operations on real descriptors, over the socket only, and on how the daemon forwards them.

This module knows no transport, and neither opens nor closes a descriptor.
"""

import os
from dataclasses import dataclass
from typing import Literal

from agentfs_client import wire
from agentfs_client.question import Question, ask, ask_for_descriptor, no_result, operation


@dataclass(frozen=True, slots=True)
class OpenedFd:
    """A real descriptor, close-on-exec and at offset 0. The caller closes it.

    ``source`` is explained in wire.FdReply. ``file`` is the file as the branch shows it; its inode number and times differ from
    those of ``fd``.
    """

    fd: int
    source: Literal["own", "lower", "snapshot"]
    file: wire.FileInfo


@dataclass(frozen=True, slots=True)
class OpenedView:
    """A detached mount of one branch, the user namespace to enter before attaching it, if it needs one, and a detached mount of
    the home directory, if the request named it. The caller closes all.
    """

    reply: wire.ViewReply
    mount: int
    user_namespace: int | None = None
    home: int | None = None


class DescriptorOperations:
    """What a client asks for real descriptors, and for a mount of a branch.

    Raises:
        AgentFSError: every method raises it if the daemon refuses the request.
    """

    @operation
    def open_fd(
        self, path: str | bytes, flags: int, *, branch: str | None = None, permissions: int = 0o666,
        require_reflink: bool = False, no_copy: bool = False,
    ) -> Question[OpenedFd]:  # fmt: skip
        """Have the daemon open a path relative to a branch's root, as os.open() does. Later use of the descriptor bypasses the
        daemon.

        *branch* may be any ref; a snapshot can only be opened for reading. See wire.FdOpen.
        """
        request = wire.FdOpen(
            branch=branch, raw_path=os.fsencode(path), flags=flags & ~os.O_CLOEXEC, permissions=permissions,
            require_reflink=require_reflink, no_copy=no_copy,
        )  # fmt: skip
        return ask_for_descriptor(request, wire.FdReply, _opened)

    @operation
    def dup_fd(self, fd: int, *, require_reflink: bool = False, no_copy: bool = False) -> Question[OpenedFd]:
        """Return a real descriptor for the file that *fd* is open on. *fd* may belong to the mount or be a real descriptor. See
        wire.FdDup.
        """
        request = wire.FdDup(require_reflink=require_reflink, no_copy=no_copy)
        return ask_for_descriptor(request, wire.FdReply, _opened, descriptors=[fd])

    @operation
    def sync_fd(self, fd: int, *, data_only: bool = False) -> Question[None]:
        """Sync a real descriptor as fsync(2) does, and also the file's name and attributes. With *data_only*, do as
        fdatasync(2).
        """
        return ask(wire.FdSync(data_only=data_only), wire.Done, no_result, descriptors=[fd])

    @operation
    def interpose(self) -> Question[wire.InterposeReply]:
        """Return how the daemon forwards real descriptors, and whether it can."""
        return ask(wire.InterposeGet(), wire.InterposeReply)

    @operation
    def set_interpose(self, name: str, value: str) -> Question[wire.InterposeReply]:
        """Change one setting (see wire.InterposeReply) and return all of them."""
        return ask(wire.InterposeSet(name=name, value=value), wire.InterposeReply)

    @operation
    def open_view(self, branch: str, io: str = "auto", *, home: str = "") -> Question[OpenedView]:
        """Return a detached mount of a branch, to attach in the caller's own namespace. It counts as in use during this
        conversation. *home*: the path of the home directory, to get a mount with the branch's changes to it, too.
        """
        return Question(wire.ViewOpen(branch=branch, io=io, home=home), wire.ViewReply, _view, brings_descriptors=3)

    @operation
    def leave_views(self) -> Question[None]:
        """Say that the runs for which this conversation has opened views have ended."""
        return ask(wire.ViewLeave(), wire.Done, no_result)


def _opened(reply: wire.FdReply, fd: int) -> OpenedFd:
    return OpenedFd(fd, reply.source, reply.file)


def _view(reply: wire.ViewReply, mount: int, *others: int) -> OpenedView:
    home = others[-1] if reply.has_home else None
    namespaces = others[:-1] if reply.has_home else others
    return OpenedView(reply, mount, namespaces[0] if namespaces else None, home)
