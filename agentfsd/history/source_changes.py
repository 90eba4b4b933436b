"""What one side of a merge has changed since a base. That of a source can be read while git works on the source before it."""

from collections.abc import Generator, Iterator

from agentfsd.core import tree_diff
from agentfsd.core.tree import Parts, Tree
from agentfsd.core.tree_diff import EntryPair
from agentfsd.history.paths import touches

Progress = tuple[int, int, str]

_STEP = 50  # changes between two looks of the event loop at other work


def reading(
    parts: Parts, base: Tree, side: Tree, found: dict[bytes, EntryPair], wanted: tuple[bytes, ...] = (),
    unseen: list[bytes] | None = None,
) -> Iterator[Progress]:  # fmt: skip
    """Read in steps what *side* has changed since *base*, each directory before its content, into *found*.

    *wanted*: the only paths that count; empty for all. *unseen*: as for tree_diff.pairs_in_steps().
    """
    for pair in tree_diff.pairs_in_steps(parts, base, side, unseen=unseen):
        if pair is not None and touches(wanted, pair.path) and not tree_diff.only_lower_moved(pair):
            found[pair.path] = pair
        if pair is None or len(found) % _STEP == 0:
            yield len(found), 0, "changes"


class SourceChanges:
    """The changes of one source, by path.

    Args:
        parts: The parts of the overlay.
        base: The state from which the source and the target started.
        theirs: The source. Neither tree may change meanwhile.
        wanted: The only paths that count; empty for all.

    Attributes:
        steps: Reads the changes, in steps that may be run at any time before read() or in it.
        found: What they have found until now.
    """

    def __init__(self, parts: Parts, base: Tree, theirs: Tree, wanted: tuple[bytes, ...] = ()) -> None:
        self.base, self.theirs = base, theirs
        self.found: dict[bytes, EntryPair] = {}
        self.steps = reading(parts, base, theirs, self.found, wanted)

    def read(self) -> Generator[Progress, None, dict[bytes, EntryPair]]:
        """Run the steps that are left, and return the changes. The dictionary is the caller's. Call it once."""
        yield from self.steps
        return self.found
