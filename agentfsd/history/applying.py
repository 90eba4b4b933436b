"""Applies the steps of a merge, or of paths that are taken back, to a scratch tree that a branch then takes over.

The branch may change meanwhile: the work is then repeated, at last without a pause.
"""

import errno
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TypeVar

from agentfsd.core import checked_out_refs, origin
from agentfsd.core.seen_names import SeenNames
from agentfsd.core.transplant import Transplant
from agentfsd.core.tree import Tree, join
from agentfsd.domain_errors import Refusal
from agentfsd.history.known_lower import KnownLower
from agentfsd.history.merge_records import MergeOutcome
from agentfsd.metadata.rows import OriginRow
from agentfsd.repositories import reading
from agentfsd.repositories.index_times import refreshed
from agentfsd.repositories.work_trees import work_tree_in

_T = TypeVar("_T")

_ATTEMPTS = 3  # the last one lets nobody change anything meanwhile


@dataclass(frozen=True, slots=True)
class Author:
    """The process that asked for a merge; its pid is 0 if unknown."""

    pid: int = 0
    command: str = ""


def until_taken(
    attempt: Callable[[], Generator[tuple[int, int, str], None, _T | None]], target: str, work: str
) -> Generator[tuple[int, int, str], None, _T]:
    """Repeat *attempt* until it returns a result: None means that the branch *target* has changed meanwhile.

    Raises:
        Refusal: ``target-moves`` if the branch changes too fast. *work*: what cannot be done then, such as "restored".
    """
    for number in range(_ATTEMPTS):
        result = yield from attempt() if number < _ATTEMPTS - 1 else _at_once(attempt())
        if result is not None:
            return result
    raise Refusal(errno.EBUSY, "target-moves", f"branch {target!r} changes faster than it can be {work}", "try again")


def _at_once(steps: Generator[tuple[int, int, str], None, _T]) -> Generator[tuple[int, int, str], None, _T]:
    """Run all steps without a pause, so that nothing else changes meanwhile."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        result: _T = end.value
        return result
    yield 0, 0, ""  # makes this a generator


def apply(
    tree: Tree, theirs: Tree, outcome: MergeOutcome, known: KnownLower | None = None
) -> Generator[tuple[int, int, str], None, None]:
    """Apply the steps: first those that add or change, then those that remove, since a directory is removed when it is empty.

    *known*: what a merge of the two has seen of the lower.
    """
    transplant = Transplant(tree)
    is_known, is_unchanged = (known.at, known.is_unchanged) if known is not None else (_never, _never)
    coming = sorted((step for step in outcome.steps if step.source is not None), key=lambda step: step.path)
    going = sorted((step for step in outcome.steps if step.source is None), key=lambda step: step.path, reverse=True)
    total, seen = len(coming) + len(going), SeenNames(theirs)
    for done, step in enumerate(coming):
        assert step.source is not None
        transplant.make_way(step.path, step.source)
        # first, as take() need not keep what the lower has there once more
        knows = is_known(tree, step.path)
        is_carried = knows or origin.carry(theirs, tree, step.path)
        transplant.take(step.path, step.source, content=step.content, look=step.look)
        if not is_carried or (knows and not is_unchanged(tree, step.path)):
            origin.carry(theirs, tree, step.path)
        parent, _, name = step.path.rpartition(b"/")
        if name == b"index" and parent:
            checked_out_refs.keep(tree, tree.walk(parent))
        yield done, total, "applying"
    for done, step in enumerate(going, len(coming)):
        knows = is_known(tree, step.path)
        transplant.remove(step.path, only_empty=True)
        if not (knows and is_unchanged(tree, step.path)):
            origin.carry(theirs, tree, step.path, gone=_gone(theirs, seen, step.path))
        yield done, total, "applying"


def _never(_: Tree, __: bytes) -> bool:
    return False


def _gone(theirs: Tree, seen: SeenNames, path: bytes) -> OriginRow | None:
    """Return the record of a path in a directory that *theirs* has removed or renamed; None if it is still there."""
    parent = path.rpartition(b"/")[0]
    return seen.row(path) if parent and not reading.has(theirs, parent) else None


def refresh_indexes(tree: Tree, outcome: MergeOutcome) -> Generator[tuple[int, int, str], None, None]:
    """Note in the index of each merge under way what the tree shows of its files now, so that `git merge --abort` trusts them."""
    for database in outcome.unfinished:
        work_tree = work_tree_in(tree, database, (step.path for step in outcome.steps))
        index = None if work_tree is None else (yield from refreshed(tree, database, work_tree))
        if index is not None:
            path = join(database, b"index")
            Transplant(tree).take(path, tree.walk(path), content=index)
