"""Brings what a branch has committed into the state that it is compared with: its frozen base knows nothing of that.

Without this, what the branch has committed and then taken back would look as if it had never been changed.
"""

from collections.abc import Iterator

from agentfsd.core import origin
from agentfsd.core.inode import NO_LOWER
from agentfsd.core.seen_names import SeenNames
from agentfsd.core.transplant import Transplant
from agentfsd.core.tree import Inode, Tree
from agentfsd.history.kept_bases import KeptBase
from agentfsd.metadata.rows import OriginRow
from agentfsd.repositories.reading import at

Progress = tuple[int, int, str]


def add(before: Tree, theirs: Tree, now: Tree) -> Iterator[Progress]:
    """Add what a branch has committed, as far as it is known.

    Args:
        before: The state that the branch was made from, over its base. It may be written.
        theirs: The branch, over the same base.
        now: The state that it was made from, over the real directory as it is now, or another base.
    """
    transplant, rows = Transplant(before), SeenNames(theirs).rows()
    gone = list[bytes]()
    for done, path in enumerate(sorted(rows)):
        row, was = rows[path], at(before, path)
        identity = origin.identity_of(row)
        if was is not None and (was.id or was.lower == identity):
            continue
        if identity == NO_LOWER:
            gone += [path] if was is not None else []
        else:
            _take(transplant, path, row, (was, at(theirs, path), at(now, path)))
        yield done, len(rows), "what was committed"
    for path in reversed(gone):
        transplant.remove(path, only_empty=True)


def _take(
    transplant: Transplant, path: bytes, row: OriginRow, versions: tuple[Inode | None, Inode | None, Inode | None]
) -> None:  # fmt: skip
    """Take what a commit left at a path. *versions*: the path in the state before, in the branch, and in the state of now."""
    was, mine, now = versions
    if now is not None and not now.id and now.lower == origin.identity_of(row):
        transplant.take(path, now)
        return
    like = mine if mine is not None and mine.is_file else was
    if like is None or not like.is_file:
        return
    if row.base or not row.lower_size:
        content = KeptBase(like.tree, row.base).read() if row.base else b""
        transplant.take(path, like, content=content)
