"""Remembers what the lower had at each path before a plan read it. A commit replaces nothing that has changed since.

Git joins histories for many milliseconds after their refs were read. Somebody may commit in the real directory meanwhile.
"""

import stat
from collections.abc import Iterable, Iterator

from agentfsd.core import hard_links, origin
from agentfsd.core.inode import NO_LOWER, LowerIdentity
from agentfsd.core.tree import Inode, Tree, join
from agentfsd.core.tree_diff import EntryPair
from agentfsd.history.lower_drift import in_lower
from agentfsd.lower.commit_plan import ABSENT, Identity
from agentfsd.repositories.git_database_paths import UNDER_WAY, Finder

_DIRECTORIES = (b"refs", b"logs", b"worktrees")
_READ_ONLY = (b"HEAD", b"packed-refs", b"shallow", b"config", *UNDER_WAY)  # a plan depends on them even if it leaves them
_LOCKS = (b"HEAD.lock", b"index.lock", b"packed-refs.lock", b"config.lock", b"shallow.lock")


class LowerAsRead:
    """The identities of the lower's files, taken before their contents are read. *tree*: the branch's tree."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._known: dict[bytes, LowerIdentity] = {}
        self._databases: set[bytes] = set()

    def note_pair(self, pair: EntryPair) -> None:
        """Remember what the lower had when the two trees were compared."""
        self._known[pair.path] = in_lower(pair)

    def note_file(self, path: bytes, found: LowerIdentity) -> None:
        """Remember what the lower had at a path, unless that is known already."""
        self._known.setdefault(path, found)

    def note_links(self, inodes: Iterable[Inode]) -> None:
        """Remember what the lower has now at the names that the branch stores of files with hard links."""
        for inode in inodes:
            for path in hard_links.stored(self._tree, inode.id):
                self._known.setdefault(path, origin.now_in_lower(self._tree, path))

    def note_databases(self, paths: Iterable[bytes], finder: Finder) -> Iterator[None]:
        """Remember refs, logs, HEAD, index and settings of the git databases that contain *paths*. Yields at each step.

        Call this before any of them is read.
        """
        for done, path in enumerate(paths):
            member = finder.member(path) if path else None
            if member is not None and member.inside and member.database not in self._databases:
                self._databases.add(member.database)
                yield from self._note_directory(member.database, _DIRECTORIES)
            if done % 50 == 0:
                yield

    def _note_directory(self, top: bytes, wanted: Iterable[bytes]) -> Iterator[None]:
        todo = [top]
        while todo:
            directory = todo.pop()
            try:
                entries = self._tree.lower.readdir(directory)
            except OSError:  # the lower has none, or somebody removed it since its parent was listed
                continue
            for entry in entries:
                path = join(directory, entry.name)
                self._known.setdefault(path, origin.now_in_lower(self._tree, path))
                if entry.type == stat.S_IFDIR and (directory != top or entry.name in wanted):
                    todo.append(path)
            yield

    def identity(self, path: bytes) -> LowerIdentity:
        """Return what the lower had at *path* when the plan read it. What no plan reads is looked at now."""
        known = self._known.get(path)
        if known is not None:
            return known
        return NO_LOWER if self._was_listed(path) else origin.now_in_lower(self._tree, path)

    def _was_listed(self, path: bytes) -> bool:
        """Tell whether the path lies in a directory of which every entry was remembered."""
        parent = path.rpartition(b"/")[0]
        return any(
            parent == database or (parent + b"/").startswith(tuple(join(database, name) + b"/" for name in _DIRECTORIES))
            for database in self._databases
        )

    def conditions(self, written: Iterable[bytes]) -> dict[bytes, Identity]:
        """Return what else must still be so when the plan is carried out, by path.

        These are the files that the plan depends on without writing them, and the locks of git, which must not be there.

        Args:
            written: The paths that the plan writes.
        """
        paths = set(written)
        found = dict[bytes, Identity]()
        for database in self._databases:
            inside = {path[len(database) + 1 :] for path in paths if path.startswith(database + b"/")}
            if not inside:
                continue
            locks = [*_LOCKS, *(name + b".lock" for name in inside if name.startswith((b"refs/", b"worktrees/")))]
            found |= {join(database, name): ABSENT for name in locks}
            for name in set(_READ_ONLY) - inside:
                found[join(database, name)] = as_told(self.identity(join(database, name)))
        return found


def as_told(identity: LowerIdentity) -> Identity:
    """Return the identity as the commit writer takes it."""
    return ABSENT if identity == NO_LOWER else Identity(identity.ino, identity.size, identity.mtime_ns, identity.ctime_ns)
