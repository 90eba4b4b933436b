"""The files of refs and of their logs: what becomes of our logs, and what stands in the way of a file that comes.

Like fitting.py, this module changes nothing.
"""

from collections.abc import Container, Iterator

from agentfsd.core.tree import Tree, join
from agentfsd.repositories import logs_of_refs, reading
from agentfsd.repositories.fitted_changes import Sides
from agentfsd.repositories.git_database_paths import kind_of
from agentfsd.repositories.joined_history import Joined, MovedRef
from agentfsd.repositories.reading import GitDatabase
from agentfsd.repositories.ref_names import directories_above

_STASH, _STASHES = b"refs/stash", b"logs/refs/stash"


class LogJoiner:
    """Joins the logs of one repository.

    Args:
        sides: The base and both trees.
        databases: The repository in each of them.
        joined: What becomes of the refs.
    """

    def __init__(self, sides: Sides, databases: tuple[GitDatabase, GitDatabase, GitDatabase], joined: Joined) -> None:
        self._sides, self._joined = sides, joined
        self._base, self._ours, self._theirs = databases

    def join(self, inside: set[bytes]) -> Iterator[tuple[bytes, bytes | None, bytes | None]]:
        """Yield logs: the place in the database, our content, and what it becomes; None for no log.

        Args:
            inside: The paths in the database that the other side changed.
        """
        joined, sources = self._joined, dict[bytes, list[bytes]]()
        moved = {b"logs/" + name: found for name, found in joined.refs.items()}
        if joined.now != joined.was:
            why = joined.refs[self._ours.branch].why if self._ours.branch in joined.refs else "merge"
            moved[b"logs/HEAD"] = MovedRef(joined.was, joined.now, why)
        for name, place in joined.kept.items():
            sources.setdefault(b"logs/" + place, []).append(b"logs/" + name)
        apart = {b"logs/" + name for name in joined.kept}
        names = ({name for name in inside if kind_of(name) == "log"} - apart) | moved.keys() | sources.keys()
        if self._theirs.refs.get(_STASH, b"") not in (b"", self._base.refs.get(_STASH), self._ours.refs.get(_STASH)):
            names.add(_STASHES)  # of a stash there may be no more than the ref
        for name in sorted(names):
            yield name, *self._join_log(name, moved.get(name), sources.get(name, []))

    def _join_log(
        self, name: bytes, moved: MovedRef | None, sources: list[bytes]
    ) -> tuple[bytes | None, bytes | None]:  # fmt: skip
        """Return our log, and what it becomes. *sources*: the names of their logs that go into this one: of refs kept here."""
        ours, theirs = self._log_of(self._sides.ours, name), self._log_of(self._sides.theirs, name)
        if moved is not None and not moved.new:
            return ours, None
        base = self._sides.base.text(join(self._ours.path, name))
        if name == _STASHES:
            return ours, self._join_stashes(base, ours, theirs, moved, self._joined.who)
        entry = self._entry(name, moved, self._joined.who) if moved is not None else b""
        made = logs_of_refs.join(base, ours, theirs, b"" if sources else entry)
        for source in sources:
            made = logs_of_refs.join(None, made, self._log_of(self._sides.theirs, source), entry, under=moved is None)
        return ours, made

    def _log_of(self, tree: Tree, name: bytes) -> bytes | None:
        return reading.text(tree, join(self._ours.path, name), reading.REFS_BYTES)

    def _entry(self, log: bytes, moved: MovedRef, who: bytes) -> bytes:
        """Return the line about a ref that moves; b"" for one that becomes symbolic: a line has object ids."""
        if moved.new.startswith(b"ref: "):
            return b""
        old = self._ours.resolve(log.removeprefix(b"logs/")) if moved.old.startswith(b"ref: ") else moved.old
        return logs_of_refs.entry(moved._replace(old=old), who)

    def _join_stashes(
        self, base: bytes | None, ours: bytes | None, theirs: bytes | None, moved: MovedRef | None, who: bytes
    ) -> bytes | None:  # fmt: skip
        """Join the lists of stashes. The newest one of a side gets a line if `git reflog expire` has left nothing but its ref."""
        mine, his = self._ours.refs.get(_STASH, b""), self._theirs.refs.get(_STASH, b"")
        newest, other, log = (mine, his, theirs) if moved is None else (his, mine, ours)
        if moved is None and his == self._base.refs.get(_STASH):
            other = b""  # they have changed nothing about it
        dropped = moved is None and logs_of_refs.has(base, other) and not logs_of_refs.has(ours, other)
        first, last = (logs_of_refs.entry(MovedRef(b"", tip, "a stash"), who) if tip else b"" for tip in (other, newest))
        first = b"" if dropped or logs_of_refs.has(log, other) else first
        return logs_of_refs.join(base, ours, theirs, last, under=True, first=first)


def in_the_way(tree: Tree, path: bytes, gone: Container[bytes]) -> bytes:
    """Return a file that is where a directory above *path* has to be, or below *path* itself; b"" if there is none.

    Args:
        tree: Our side.
        path: The path of a ref or a log that is to be written.
        gone: The paths of files that are removed.
    """
    for above in directories_above(path):
        inode = reading.at(tree, above)
        if inode is None or not inode.is_dir:
            return above if inode is not None and above not in gone else b""
    todo = [path]
    while todo:
        directory = todo.pop()
        node = reading.at(tree, directory)
        for name in tree.names(node) if node is not None and node.is_dir else ():
            below = join(directory, name)
            inode = reading.at(tree, below)
            if inode is not None and inode.is_dir:
                todo.append(below)
            elif below not in gone:
                return below
    return b""
