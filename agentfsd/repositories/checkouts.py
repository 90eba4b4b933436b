"""Working files of a merge of histories. If both sides have a file as they committed it, it becomes what git's merge made of it.

If a side has uncommitted changes in a file, the plain merge of files decides about it.
"""

import hashlib
import stat
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from agentfsd.core import inode_stat
from agentfsd.core.copyup import WantedAttributes
from agentfsd.core.inode import NO_LOWER, LowerIdentity
from agentfsd.core.transplant import attributes_of
from agentfsd.core.tree import Inode, Tree, join
from agentfsd.core.tree_diff import EntryPair
from agentfsd.core.whole_contents import content_of
from agentfsd.repositories import reading
from agentfsd.repositories.commits import Difference, Entry
from agentfsd.repositories.joined_history import Joined

HASHED_BYTES = 1 << 26  # larger files are taken to be changed: the event loop does not hash them


class CheckoutDecision(NamedTuple):
    """What to do with a working file of our side.

    Attributes:
        path: The path.
        stays: Our file stays as it is.
        source: The inode that the path becomes, unless it stays; None removes the path.
        content: The content to write instead of the source's.
        look: The attributes to set instead of the source's.
        found: What the lower had there before our file was read, if our side is the lower.
    """

    path: bytes
    stays: bool
    source: Inode | None = None
    content: bytes | None = None
    look: WantedAttributes | None = None
    found: LowerIdentity = NO_LOWER


class TrackedFiles:
    """The files that one repository tracks, in the two trees of a merge.

    Args:
        ours: Our tree.
        theirs: The other side's tree.
        mine: What our side changed, by path.
        his: What the other side changed, by path.
        work_tree: The directory that holds the tracked files.
        like: A file of the repository. A file that neither side has gets its owner.
    """

    def __init__(
        self, ours: Tree, theirs: Tree, mine: Mapping[bytes, EntryPair], his: Mapping[bytes, EntryPair], work_tree: bytes,
        like: Inode,
    ) -> None:  # fmt: skip
        self._ours, self._theirs, self._mine, self._his, self._work_tree = ours, theirs, mine, his, work_tree
        self._like = like

    def decide(self, joined: Joined) -> Iterator[CheckoutDecision | None]:
        """Decide about each file by git's result. Yields None for a file that is left to the plain merge."""
        for name in sorted(joined.to_ours.keys() | joined.to_theirs.keys()):
            yield self._decide(name, joined)

    def as_committed(self, joined: Joined) -> Iterator[bytes | None]:
        """The paths where the two commits differ and each side has what it committed; None at the steps in between.

        Only where git has found conflicts: the result of *joined* is our commit then.
        """
        for name, difference in joined.to_theirs.items():
            path = join(self._work_tree, name)
            ours, theirs = reading.at(self._ours, path), reading.at(self._theirs, path)
            yield path if is_as(ours, difference.new) and is_as(theirs, difference.old) else None

    def _decide(self, name: bytes, joined: Joined) -> CheckoutDecision | None:
        path = join(self._work_tree, name)
        mine, his = path in self._mine, path in self._his
        from_ours, from_theirs = joined.to_ours.get(name), joined.to_theirs.get(name)
        if from_ours is None and not his:
            return None  # ours is the result already
        if from_theirs is None and his and not mine:
            return None  # they have the result: the plain merge takes it over
        result, one, two = _entries(from_ours, from_theirs)
        ours, theirs = reading.at(self._ours, path), reading.at(self._theirs, path)
        found = ours.lower if ours is not None else NO_LOWER
        theirs_as_committed = is_as(theirs, two)
        if not (is_as(ours, one) and (theirs_as_committed or not his)):  # theirs may show a file that only the lower has got
            return None
        went = (his and self._his[path].new is None) or name in joined.renamed_twice or joined.switched
        if not result.oid and ours is not None and not went:
            return None  # only their commit lacks it: that nobody there removed the file, they may never have had it
        if result == one:
            return CheckoutDecision(path, True)
        if not result.oid or (result == two and theirs_as_committed):
            return CheckoutDecision(path, False, theirs if result.oid else None, found=found)
        like = ours or theirs
        if like is None:  # git has put a new file of one side into the directory to which the other side moved all others
            moved = self._same_elsewhere(result, joined)
            if moved is not None:
                return CheckoutDecision(path, False, moved, found=found)
            like = self._like
        if result.oid not in joined.contents or not (like.is_file and result.mode.startswith(b"100")):
            return None
        return CheckoutDecision(path, False, like, joined.contents[result.oid], _look(like, result), found)

    def _same_elsewhere(self, entry: Entry, joined: Joined) -> Inode | None:
        """Find a file with the content and mode of *entry* that a side has at a path where the result has none."""
        for tree, differences in ((self._theirs, joined.to_theirs), (self._ours, joined.to_ours)):
            for name, difference in differences.items():
                if difference.old == entry and not difference.new.oid:
                    inode = reading.at(tree, join(self._work_tree, name))
                    if is_as(inode, entry):
                        return inode
        return None


def _entries(from_ours: Difference | None, from_theirs: Difference | None) -> tuple[Entry, Entry, Entry]:
    """Return the entries of the result, ours and theirs. A side without a difference has the result's entry."""
    known = from_ours or from_theirs
    assert known is not None
    result = known.new
    return result, from_ours.old if from_ours else result, from_theirs.old if from_theirs else result


def is_as(inode: Inode | None, entry: Entry) -> bool:
    """Return whether a file has the type, executable bit and content of a commit's entry. Files above HASHED_BYTES never do."""
    if inode is None or not entry.oid:
        return inode is None and not entry.oid
    if stat.S_ISLNK(inode.mode):
        return entry.mode == b"120000" and _blob_id(inode.tree.readlink(inode), entry) == entry.oid
    if not inode.is_file or not entry.mode.startswith(b"100") or bool(inode.mode & 0o100) != (entry.mode == b"100755"):
        return False
    if inode_stat.data_stat(inode).st_size > HASHED_BYTES:
        return False
    return _blob_id(content_of(inode), entry) == entry.oid


def _blob_id(data: bytes, entry: Entry) -> bytes:
    made = hashlib.sha256() if len(entry.oid) == 64 else hashlib.sha1(usedforsecurity=False)
    made.update(b"blob %d\0" % len(data) + data)
    return made.hexdigest().encode()


def _look(like: Inode, entry: Entry) -> WantedAttributes:
    """Return the attributes for a file with new content: the executable bit of the entry, everything else of *like*."""
    look = attributes_of(like)
    mode = look.mode | (look.mode & 0o444) >> 2 if entry.mode == b"100755" else look.mode & ~0o111
    return look._replace(mode=mode)
