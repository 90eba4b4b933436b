"""Which way a branch's files are read where there are many: by few requests over the socket, or by the mount."""

import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from agentfs_client.control import ControlClient
from agentfs_files.backends.branch_remote import RemoteTree
from agentfs_files.backends.branch_tree import BranchTree
from agentfs_files.backends.host import HostFilesystem
from agentfs_files.remote_files import RemoteFiles
from agentfs_files.trees.directory_tree import Directory
from agentfs_files.trees.tree_source import TreeSource

_FIRST_FILES, _MOST_FILES = 16, 256


def tree_for_many(client: ControlClient, tree: HostFilesystem | RemoteTree, branch_id: str) -> HostFilesystem | RemoteTree:
    """Return the way to read many files of a branch.

    The mount's page cache is nearer where this process is bound to the branch. Only the mount shows what is mounted beneath the
    branch's directory, and the ``.git`` file of a branch that is a worktree.
    """
    if isinstance(tree, RemoteTree) or client.hello.bound or tree.has_mounts_beneath() or _is_worktree(tree):
        return tree
    return RemoteTree(client, branch_id)


def _is_worktree(tree: HostFilesystem) -> bool:
    """Return whether the mount shows a ``.git`` file, which the branch itself may not have."""
    try:
        return tree.stat(".git").is_file
    except OSError:
        return False


def small_contents(
    client: ControlClient, tree: HostFilesystem | RemoteTree, branch_id: str, paths: Sequence[str]
) -> list[bytes | None]:
    """Return the contents of small files; None for those that must be opened one by one."""
    way = tree_for_many(client, tree, branch_id)
    return way.read_small(paths) if isinstance(way, RemoteTree) else [None] * len(paths)


def batches(paths: Iterable[str]) -> Iterator[list[str]]:
    """Split paths into parts, the first ones small: a search may end there."""
    rest, count = list(paths), _FIRST_FILES
    start = 0
    while start < len(rest):
        yield rest[start : start + count]
        start, count = start + count, min(4 * count, _MOST_FILES)


@contextmanager
def archive_tree(client: ControlClient, tree: HostFilesystem, branch_id: str) -> Iterator[TreeSource]:
    """Yield everything in a branch as a tree for an archive."""
    with tree.opened_root() as fd, Directory(f"/proc/self/fd/{fd}") as directory:
        if isinstance(tree_for_many(client, tree, branch_id), RemoteTree):
            yield BranchTree(RemoteFiles(client, branch_id), directory)
        else:
            yield directory


class ReadAlready:
    """The content of a file that was read as a whole."""

    def __init__(self, content: bytes) -> None:
        self.size = len(content)
        self._content = io.BytesIO(content)

    def read(self, size: int) -> bytes:
        return self._content.read(size)

    def seek(self, position: int) -> None:
        self._content.seek(position)

    def close(self) -> None:
        self._content.close()
