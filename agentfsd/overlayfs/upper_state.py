"""What is known of the upper directory of one run, from one takeover to the next. It is lost with the daemon."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from agentfs_host.descent import join
from agentfsd.overlayfs.upper_scan import Known


@dataclass(slots=True)
class UpperState:
    """What the last takeover of an upper directory knew.

    Attributes:
        known: The names that were there; None: nothing was taken over yet.
        files: Inode ids in the branch by inode number of the upper's file, if that file is the content object itself.
        directories: Inode ids in the branch by inode number of the upper's directory.
    """

    known: Known | None = None
    files: dict[int, int] = field(default_factory=dict)
    directories: dict[int, int] = field(default_factory=dict)

    def all_known(self) -> Iterator[tuple[bytes, Known]]:
        """Yield everything that is known, with its path."""
        todo = [(b"", self.known)] if self.known is not None else []
        while todo:
            path, known = todo.pop()
            yield path, known
            todo += [(join(path, name), each) for name, each in known.names.items()]
