"""What a merge of git databases is given, and what it decides: a list of changes, and conflicts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from agentfsd.core.copyup import WantedAttributes
from agentfsd.core.inode import LowerIdentity
from agentfsd.core.tree import Inode, Tree
from agentfsd.core.tree_diff import EntryPair
from agentfsd.repositories.before import Before
from agentfsd.repositories.commits import Clash

Changes = Mapping[bytes, EntryPair]
Progress = tuple[int, int, str]


class Fit(NamedTuple):
    """A change to make at a path of our side.

    Attributes:
        path: The path.
        source: The inode that the path becomes; None removes the path.
        content: The content to write instead of the source's; None keeps the source's.
        look: The attributes to set instead of the source's; None keeps the source's.
        found: For a working file, what the lower had there before it was read, if our side is the lower; None for other files.
    """

    path: bytes
    source: Inode | None
    content: bytes | None = None
    look: WantedAttributes | None = None
    found: LowerIdentity | None = None


@dataclass(slots=True)
class Fitted:
    """The result of fit().

    Attributes:
        decided: The paths that the plain merge of files must skip.
        committed: The paths of files that differ between the two commits, and that the merged commit has.
        fits: The changes to make.
        clashes: The conflicts.
        settled: The conflicts of files that a favoured side decided, or that conflict markers were left for.
        said: One sentence for each thing that was done.
        unfinished: The databases in which a merge of git is left under way, with conflict markers.
    """

    decided: set[bytes] = field(default_factory=set)
    committed: set[bytes] = field(default_factory=set)
    fits: list[Fit] = field(default_factory=list)
    clashes: list[Clash] = field(default_factory=list)
    settled: list[Clash] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    unfinished: list[bytes] = field(default_factory=list)


class Sides(NamedTuple):
    """The three inputs of a merge."""

    base: Before
    ours: Tree
    theirs: Tree
