"""What a handler knows of whoever asks, and how it tells that client how far it is."""

from dataclasses import dataclass

from agentfsd.control.peer import Peer
from agentfsd.control.progress_channel import ProgressChannel
from agentfsd.types import Caller


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The one who asks, the branch id it is bound to, and the name of the branch that it means when it names none. ``channel`` is
    None on the control file."""

    peer: Peer
    bound_to: str | None
    branch: str
    channel: ProgressChannel | None = None
    wants_progress: bool = False

    @property
    def caller(self) -> Caller:
        return self.peer.caller

    @property
    def descriptors(self) -> list[int]:
        """That came with the request; whoever takes one removes it."""
        return self.peer.descriptors

    def progress(self, done: int, total: int, what: str) -> None:
        """*done* of *total* (0: nobody knows) of *what*. Cheap enough for every step; may be called in any thread."""
        if self.wants_progress and self.channel is not None:
            self.channel.progress(done, total, what)
