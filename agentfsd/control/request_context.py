"""The caller of a request, as its handler sees it, and the reporting of progress."""

from dataclasses import dataclass

from agentfsd.control.peer import Peer
from agentfsd.control.progress_channel import ProgressChannel
from agentfsd.types import Caller


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The context of one request.

    Attributes:
        peer: The caller.
        bound_to: The id of the branch that the caller is bound to; None: it is bound to none.
        branch: The name of the branch that the caller means when its request names none.
        channel: The way back to the client; None on the control file.
        wants_progress: The client asked for progress.
    """

    peer: Peer
    bound_to: str | None
    branch: str
    channel: ProgressChannel | None = None
    wants_progress: bool = False

    @property
    def caller(self) -> Caller:
        """The caller's process, user and group."""
        return self.peer.caller

    @property
    def descriptors(self) -> list[int]:
        """The descriptors that came with the request. A handler that takes one removes it from the list."""
        return self.peer.descriptors

    def progress(self, done: int, total: int, what: str) -> None:
        """Report that *done* of *total* (0 if unknown) steps of *what* are done.

        This is cheap, and may be called in any thread.
        """
        if self.wants_progress and self.channel is not None:
            self.channel.progress(done, total, what)
