"""The caller of a request, as its handler sees it, and the reporting of progress."""

from dataclasses import dataclass

from agentfsd.control.peer import Peer
from agentfsd.control.progress_channel import ProgressChannel
from agentfsd.core.permissions import Credentials
from agentfsd.core.rule_checks import RuledCaller
from agentfsd.core.rule_set import ASK, HIDE
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
        ruled: The rules by path that hold for the caller; None: there are none.
    """

    peer: Peer
    bound_to: str | None
    branch: str
    channel: ProgressChannel | None = None
    wants_progress: bool = False
    ruled: RuledCaller | None = None

    @property
    def caller(self) -> Caller:
        """The caller's process, user and group."""
        return self.peer.caller

    def credentials(self) -> Credentials:
        """Return what the caller may do with files. Refusal once the process has ended."""
        found = self.peer.credentials()
        return found if self.ruled is None else found._replace(ruled=self.ruled)

    def creator(self) -> Credentials:
        """Return the same for making a file: with the umask that the process has now."""
        found = self.peer.creator()
        return found if self.ruled is None else found._replace(ruled=self.ruled)

    def hides(self, *paths: bytes) -> bool:
        """Return whether a rule hides one of these paths from the caller."""
        rules = self.ruled.rules if self.ruled is not None else None
        return rules is not None and any(rules.verdict_of_path(path) == HIDE for path in paths if path)

    def keeps_back(self, *paths: bytes) -> bool:
        """Return whether a rule keeps the content of one of these paths from the caller."""
        rules = self.ruled.rules if self.ruled is not None else None
        return rules is not None and any(rules.verdict_of_path(path) >= ASK for path in paths if path)

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
