"""What a join of two histories is told (Manner), and what it answers (Joined). Records only: joining.py does the work.

They never hold a tree of the overlay: repository_fitter.py makes changes of files out of them.
"""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from agentfsd.repositories.commits import Clash, Difference, Entry
from agentfsd.repositories.packing import Pack

REAL_DIRECTORY = "the real directory"  # stands in the place of a branch's name
Way = Literal["merge", "rebase", "squash", "beside"]


@dataclass(frozen=True, slots=True)
class Manner:
    """How to join two histories.

    Attributes:
        names: The names of the two branches of the overlay, ours first.
        way: merge, rebase, squash or beside.
        favor: The side that wins a conflict, as for files; "" for neither.
        markers: Write conflict markers instead of reporting conflicts.
        whole_files: A file that both sides changed is a conflict, whichever lines they changed.
        with_base: Put the common state between the markers, too.
        only_forward: Histories that have diverged are a conflict.
    """

    names: tuple[str, str] = ("ours", "theirs")
    way: Way = "merge"
    favor: str = ""
    markers: bool = False
    whole_files: bool = False
    with_base: bool = False
    only_forward: bool = False


class MovedRef(NamedTuple):
    """A ref that changes. ``new`` is b"" for a ref that is removed. ``why`` goes into the ref's log."""

    old: bytes
    new: bytes
    why: str


@dataclass(slots=True)
class Joined:
    """The result of a join, for our side.

    Attributes:
        kept: The names under which refs of theirs are kept beside ours, by their own names.
        was: The commit that HEAD resolves to before the join.
        now: The commit that HEAD resolves to afterwards.
        to_ours: The differences between our commit and the result, by path.
        to_theirs: The differences between their commit and the result, by path.
        stages: The unmerged entries for the index, by path and stage; only if conflict markers were asked for.
        settled: The conflicts that a favoured side decided, or that are left as unmerged entries.
        renamed_twice: The paths among these of files to which each side gave a name of its own. The favoured one's is left.
        theirs: The commit that is being merged, if there are unmerged entries.
        said: Sentences for people about what was done.
        parted: The two histories have no common ancestor. They stay separate, so git has no merge of the working files.
        linked: The results for linked worktrees, by their directory in the database.
        switched: HEAD of our side leads to another branch afterwards: committed files that this one lacks go.
        unmerged: The paths with conflicts in our index. There is no index then.
        unstaged: What our side had staged and the index has no longer, by path.
        pack: A pack that replaces many loose objects of the other side; None for none.
    """

    refs: dict[bytes, MovedRef] = field(default_factory=dict)
    kept: dict[bytes, bytes] = field(default_factory=dict)
    head: bytes = b""
    was: bytes = b""
    now: bytes = b""
    tree: bytes = b""
    to_ours: dict[bytes, Difference] = field(default_factory=dict)
    to_theirs: dict[bytes, Difference] = field(default_factory=dict)
    clashes: list[Clash] = field(default_factory=list)
    stages: dict[bytes, dict[int, Entry]] = field(default_factory=dict)
    settled: list[Clash] = field(default_factory=list)
    renamed_twice: set[bytes] = field(default_factory=set)
    theirs: bytes = b""
    said: list[str] = field(default_factory=list)
    who: bytes = b"agentfsd <agentfsd@localhost>"
    index: bytes | None = None
    parted: bool = False
    switched: bool = False
    unmerged: list[bytes] = field(default_factory=list)
    unstaged: dict[bytes, Entry] = field(default_factory=dict)
    made: dict[bytes, bytes] = field(default_factory=dict)
    contents: dict[bytes, bytes] = field(default_factory=dict)
    pack: Pack | None = None
    linked: dict[bytes, "Joined"] = field(default_factory=dict)
