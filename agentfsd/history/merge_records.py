"""What a three-way merge is told (Rules), and what it answers: steps, conflicts and decisions. Records only.

They never know how a path is decided: path_merger.py does. A commit into the lower answers with the same conflicts.
"""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from agentfsd.core.copyup import WantedAttributes
from agentfsd.core.tree import Inode
from agentfsd.repositories.joined_history import Way

IGNORED = "ignored"  # the kind of a decision about a file that git ignores on both sides

Favor = Literal["", "ours", "theirs", "union"]


class Step(NamedTuple):
    """A change to make at *path* of our side.

    Attributes:
        path: The path.
        source: The inode that the path becomes; None removes the path.
        content: The content to write instead of the source's; None keeps the source's.
        look: The attributes to set instead of the source's; None keeps the source's.
    """

    path: bytes
    source: Inode | None
    content: bytes | None = None
    look: WantedAttributes | None = None


@dataclass(frozen=True, slots=True)
class PathConflict:
    """A conflict at one path.

    Attributes:
        kind: content, binary, add/add, modify/delete, rename/rename, rename/delete, rename/add, type, symlink, special or
            attributes, or undecided for a path that an earlier source
            of the same merge has left open.
        message: What is wrong, in words.
        excerpt: The first differing line of ours and of theirs; both are "" if there is none.
        source: The branch that was not merged because of the conflict.
        against: The branches whose changes it conflicts with.
    """

    path: bytes
    kind: str
    message: str
    excerpt: tuple[str, str] = ("", "")
    source: str = ""
    against: tuple[str, ...] = ()


class LeftOpen(NamedTuple):
    """A conflict that is left in the target. The arguments are those of LeftConflict.

    ``at``: the path in the common state, in ours and in theirs. ``by_git``: git has it as a conflict in its index, too.
    """

    path: bytes
    kind: str
    message: str
    at: tuple[bytes, bytes, bytes]
    marked: bool = False
    by_git: bool = False


class MergeDecision(NamedTuple):
    """A path that both sides changed, and whose change was taken. ``winner`` is "" if both were kept, as text."""

    path: bytes
    kind: str
    winner: str


@dataclass(slots=True)
class MergeOutcome:
    """The result of merge().

    Attributes:
        decided: The conflicts that ``Rules.favor`` decided.
        marked: The files with conflict markers.
        left: The conflicts that are left in the target, if ``Rules.leave``.
        unfinished: The git databases in which a merge is left under way. `git merge --abort` may take it back.
    """

    steps: list[Step] = field(default_factory=list)
    conflicts: list[PathConflict] = field(default_factory=list)
    decided: list[MergeDecision] = field(default_factory=list)
    marked: list[bytes] = field(default_factory=list)
    said: list[str] = field(default_factory=list)  # of histories: what was done, a sentence each
    left: list[LeftOpen] = field(default_factory=list)
    unfinished: list[bytes] = field(default_factory=list)

    @property
    def paths(self) -> list[bytes]:
        """The paths that change, or are left to be decided."""
        return list(dict.fromkeys([*(step.path for step in self.steps), *(left.path for left in self.left)]))


@dataclass(frozen=True, slots=True)
class Rules:
    """How to merge.

    Attributes:
        favor: The side that wins a conflict; "" for neither, union for both.
        whole_files: A file that both sides changed is a conflict, whichever lines they changed.
        markers: Write text conflicts into the files, between markers, instead of reporting them.
        leave: Leave all conflicts in the target, to be settled there. Texts get markers, with the common state between them;
            other paths stay as they are in the target.
        way: How to join git histories.
    """

    favor: Favor = ""
    whole_files: bool = False
    markers: bool = False
    leave: bool = False
    way: Way = "merge"
