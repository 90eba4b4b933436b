"""Finds the directory of files that a git database tracks. It reads settings and ``.git`` files, and never an index.

Source: gitrepository-layout(5), git-config(1) for core.worktree.
"""

import os
from collections.abc import Iterable, Iterator

from agentfsd.core.tree import Tree, join
from agentfsd.repositories import git_config, reading
from agentfsd.repositories.git_database_paths import work_tree_of

_POINTER_BYTES = 1 << 13  # a larger ``.git`` file names no directory


def work_tree_in(tree: Tree, database: bytes, paths: Iterable[bytes] = ()) -> bytes | None:
    """Return the directory of the workspace that holds the files tracked by a database; None if it cannot be determined.

    Args:
        tree: The tree.
        database: The path of the database.
        paths: Paths beside or above which a ``.git`` file may lead to the database.
    """
    work_tree = work_tree_of(database)
    if work_tree is not None:
        return work_tree
    named = git_config.values(reading.settings(tree, database), b"core").get(b"worktree", b"")
    if named and not named.startswith(b"/"):
        path = os.path.normpath(join(database, named))
        return None if path.startswith(b"..") else path if path != b"." else b""
    if named:
        return next((place for place in ends(named) if leads_to(tree, place, database)), None)
    return next((place for place in _directories_above([database, *paths]) if leads_to(tree, place, database)), None)


def leads_to(tree: Tree, directory: bytes, database: bytes) -> bool:
    """Return whether *directory* has a ``.git`` file that names *database*.

    Of an absolute path only the end counts: the workspace may have been at another place when git wrote it.
    """
    pointer = reading.text(tree, join(directory, b".git"), _POINTER_BYTES) or b""
    word, _, target = pointer.strip().partition(b"gitdir:")
    target = target.strip()
    if word or not target:
        return False
    if target.startswith(b"/"):
        return target.endswith(b"/" + database)
    return os.path.normpath(join(directory, target)) == database


def ends(path: bytes) -> Iterator[bytes]:
    """Yield the ends of an absolute path as paths of the workspace, the longest first, b"" at last."""
    parts = path.strip(b"/").split(b"/")
    for depth in range(1, len(parts) + 1):
        yield b"/".join(parts[depth:])


def _directories_above(paths: Iterable[bytes]) -> Iterator[bytes]:
    seen = set[bytes]()
    for path in paths:
        directory = path
        while directory:
            directory = directory.rpartition(b"/")[0]
            if directory in seen:
                break
            seen.add(directory)
            yield directory
