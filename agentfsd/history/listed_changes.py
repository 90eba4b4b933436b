"""What a merge or a commit changes, as `diff` lists it: a renamed file is one change, and git's own files are apart.

It decides nothing: the caller knows which paths change.
"""

from collections.abc import Collection, Generator
from typing import NamedTuple

from agentfsd.core import tree_changes
from agentfsd.core.content_comparison import ComparisonResults, NeverSame
from agentfsd.core.named_paths import NamedPaths
from agentfsd.core.tree import Parts, Tree
from agentfsd.repositories.git_internals import GitInternals
from agentfsd.types import PathChange

_READ_PATHS = 500  # with more paths no content is read: that they change is known, and only their letter could be another


class ListedChanges(NamedTuple):
    """Changes, sorted by path. ``internals`` are those of git's own files."""

    changes: list[PathChange]
    internals: list[PathChange]


def list_changes(
    parts: Parts, old: Tree, new: Tree, touched: Collection[bytes]
) -> Generator[tuple[int, int, str], None, ListedChanges]:  # fmt: skip
    """List the changes from *old* to *new* at some paths, in steps that yield (done, total, what).

    Args:
        parts: The parts of the overlay.
        old: The tree before. Neither tree may change meanwhile.
        new: The tree after.
        touched: The paths that the merge or commit changes.
    """
    verdicts = ComparisonResults() if len(touched) <= _READ_PATHS else NeverSame()
    found = yield from tree_changes.between_in_steps(parts, old, new, verdicts, named=NamedPaths(touched))
    return parted([change for change in found if change.path in touched or change.old_path in touched], old, new)


def parted(changes: list[PathChange], old: Tree, new: Tree) -> ListedChanges:
    """Part the changes from *old* to *new* into those of git's own files and the others."""
    shown = GitInternals(old, new).without(changes, lambda change: change.path)
    known = {change.path for change in shown}
    return ListedChanges(shown, [change for change in changes if change.path not in known])
