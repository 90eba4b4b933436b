"""Which changed paths are git's own files: those of a database, bare ones too, but not its settings and hooks."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from agentfsd.core.tree import Tree, join
from agentfsd.repositories.git_database_paths import Finder, Member, kind_of
from agentfsd.repositories.reading import has

_T = TypeVar("_T")


class GitInternals:
    """Tells git's own files among the paths that differ between two trees."""

    def __init__(self, old: Tree, new: Tree) -> None:
        self._finder = Finder(lambda path: has(new, path) or has(old, path))
        self._members: dict[bytes, Member | None] = {}

    def hold(self, path: bytes, is_directory: bool = False) -> bool:
        """Return whether a path is git's own.

        Args:
            path: The path.
            is_directory: It may itself be the directory of a bare repository.
        """
        parent, _, name = path.rpartition(b"/")
        member = self._member(parent) if parent else None
        if member is not None:
            return kind_of(join(member.inside, name)) != "settings"
        return name == b".git" or (is_directory and self._member(path) is not None)

    def without(self, changes: Iterable[_T], path_of: Callable[[_T], bytes]) -> list[_T]:
        """Return the changes whose path is not git's own."""
        listed = list(changes)
        directories = {path_of(change).rpartition(b"/")[0] for change in listed}
        return [change for change in listed if not self.hold(path := path_of(change), path in directories)]

    def _member(self, directory: bytes) -> Member | None:
        if directory not in self._members:
            self._members[directory] = self._finder.member(directory)
        return self._members[directory]
