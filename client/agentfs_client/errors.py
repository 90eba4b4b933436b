"""What a client can catch: one class for each kind of refusal, all of them OSError with the daemon's own words."""

import errno

from agentfs_client.wire import Error


class AgentFSError(OSError):
    """A request was refused or could not be delivered. ``code`` is a stable word, ``hint`` says what would be right."""

    def __init__(self, number: int, code: str, message: str, hint: str = "") -> None:
        super().__init__(number, message)
        self.code = code
        self.message = message
        self.hint = hint


class NotFoundError(AgentFSError):
    """No such branch, snapshot, ref or process."""


class ExistsError(AgentFSError):
    """The name is taken."""


class NotAllowedError(AgentFSError, PermissionError):
    """The caller may not do that."""


class BusyError(AgentFSError):
    """Something is in use or holds changes."""


class InvalidRequestError(AgentFSError):
    """The request itself is wrong."""


class ProtocolError(AgentFSError):
    """Client and daemon do not speak the same version."""


class NotForwardedError(AgentFSError):
    """The daemon gives no real descriptor for this; through the mount the file can be had."""


class DaemonGoneError(AgentFSError, RuntimeError):
    """There is no daemon at the other end, or it went away: for a file system, the backend is out of reach."""


def gone(message: str, number: int) -> DaemonGoneError:
    """In the middle of a conversation."""
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
    """The exception that an error reply stands for."""
    kind = NotForwardedError if reply.code == NOT_FORWARDED else _KINDS.get(reply.errno, AgentFSError)
    return kind(reply.errno, reply.code, reply.message, reply.hint)
