"""The exceptions of the client: one class for each kind of refusal. All are OSErrors with the daemon's message."""

import errno

from agentfs_client.wire import Error


class AgentFSError(OSError):
    """The daemon refused a request, or the client could not deliver it. ``code`` is a stable word for programs, ``hint`` suggests
    a remedy.
    """

    def __init__(self, number: int, code: str, message: str, hint: str = "") -> None:
        super().__init__(number, message)
        self.code = code
        self.message = message
        self.hint = hint
        if hint:
            self.add_note(f"hint: {hint}")  # a traceback shows it


class NotFoundError(AgentFSError):
    """No such branch, snapshot, ref or process."""


class ExistsError(AgentFSError):
    """A branch or snapshot with this name exists."""


class NotAllowedError(AgentFSError, PermissionError):
    """The caller does not have the permission."""


class BusyError(AgentFSError):
    """The object is in use, or it holds changes."""


class InvalidRequestError(AgentFSError):
    """The request is not valid."""


class ProtocolError(AgentFSError):
    """Client and daemon speak different versions of the protocol."""


class NotForwardedError(AgentFSError):
    """The daemon gives out no real descriptor for this file. The file can be opened through the mount."""


class DaemonGoneError(AgentFSError, RuntimeError):
    """No daemon answers, or it ended. For a file system this means that the backend cannot be reached."""


def gone(message: str, number: int) -> DaemonGoneError:
    """Return the exception for a daemon that disappears during a conversation."""
    hint = "`agentfsd status` shows whether it is back; what was asked of it last may have been done all the same"
    return DaemonGoneError(number, "daemon-gone", message, hint)


NOT_FORWARDED = "not-forwarded"
_KINDS: dict[int, type[AgentFSError]] = {
    errno.ENOENT: NotFoundError,
    errno.ESRCH: NotFoundError,
    errno.EEXIST: ExistsError,
    errno.EPERM: NotAllowedError,
    errno.EACCES: NotAllowedError,
    errno.EBUSY: BusyError,
    errno.EINVAL: InvalidRequestError,
    errno.EMSGSIZE: InvalidRequestError,
    errno.EPROTO: ProtocolError,
}


def from_reply(reply: Error) -> AgentFSError:
    """Return the exception for an error reply."""
    kind = NotForwardedError if reply.code == NOT_FORWARDED else _KINDS.get(reply.errno, AgentFSError)
    return kind(reply.errno, reply.code, reply.message, reply.hint)
