"""What the source of a merge has changed since a base. It can be read while git works on the source before it."""

from collections.abc import Generator, Iterator

from agentfsd.core import tree_diff
from agentfsd.core.tree import Parts, Tree
from agentfsd.core.tree_diff import EntryPair
from agentfsd.history.paths import touches

Progress = tuple[int, int, str]

_STEP = 50  # changes between two looks of the event loop at other work


class SourceChanges:
    """The changes of one source, by path.

    Args:
        parts: The parts of the overlay.
        base: The state from which the source and the target started.
        theirs: The source. Neither tree may change meanwhile.
        wanted: The only paths that count; empty for all.

    Attributes:
        steps: Reads the changes, in steps that may be run at any time before read() or in it.
    """

    def __init__(self, parts: Parts, base: Tree, theirs: Tree, wanted: tuple[bytes, ...] = ()) -> None:
        self.base, self.theirs = base, theirs
        self._found: dict[bytes, EntryPair] = {}
        self.steps = self._reading(parts, wanted)

    def read(self) -> Generator[Progress, None, dict[bytes, EntryPair]]:
        """Run the steps that are left, and return the changes. The dictionary is the caller's. Call it once."""
        yield from self.steps
        return self._found

    def _reading(self, parts: Parts, wanted: tuple[bytes, ...]) -> Iterator[Progress]:
        for pair in tree_diff.pairs_in_steps(parts, self.base, self.theirs):
            if pair is not None and touches(wanted, pair.path) and not tree_diff.only_lower_moved(pair):
                self._found[pair.path] = pair
            if pair is None or len(self._found) % _STEP == 0:
                yield len(self._found), 0, "changes"
