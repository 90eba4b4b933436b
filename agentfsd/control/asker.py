"""What a handler knows of whoever asks, and how it tells that client how far it is."""

from dataclasses import dataclass

from agentfsd.control.line import Line
from agentfsd.types import Caller


@dataclass(frozen=True, slots=True)
class Asker:
    """The caller, the branch id it is bound to, the name of the branch that it means when it names none, and descriptors
    that came with the request (whoever takes one removes it). ``line`` is None on the control file."""

    caller: Caller
    bound_to: str | None
    branch: str
    descriptors: list[int]
    line: Line | None = None
    wants_progress: bool = False

    def progress(self, done: int, total: int, what: str) -> None:
        """*done* of *total* (0: nobody knows) of *what*. Cheap enough for every step; may be called in any thread."""
        if self.wants_progress and self.line is not None:
            self.line.progress(done, total, what)
