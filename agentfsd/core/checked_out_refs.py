"""Keeps the ref that a git index belongs to in a branch that gets an index of its own.

A branch shows refs of the lower until it has its own, and git's index says what is staged compared with the commit that HEAD
leads to. If HEAD moved on with the lower, and the branch's own index did not, git would call every newer commit's changes staged
the other way round, and the next `git commit` in the branch would take them back.

Source: gitrepository-layout(5).
"""

from agentfsd.core import copyup, directory_entries, git_directories, inode_stat
from agentfsd.core.content_objects import create_object
from agentfsd.core.directory_entries import Owner
from agentfsd.core.tree import Inode, Tree
from agentfsd.core.whole_contents import content_of

_INDEX, _LOCKED_INDEX = b"index", b"index.lock"
_HEAD, _LOCKED_HEAD = b"HEAD", b"HEAD.lock"
_WORKTREES = b"worktrees"
_REF_BYTES = 4096  # a larger file is no ref
_PACKED_BYTES = 1 << 28
_LINKS = 5  # as many symbolic refs as git follows

Place = tuple[Inode, bytes]


def is_new_index(tree: Tree, directory: Inode, old_name: bytes, new_name: bytes) -> bool:
    """Return whether a rename within *directory* gives a branch its first own index."""
    if new_name != _INDEX or old_name != _LOCKED_INDEX:
        return False
    index = tree.find(directory, _INDEX)
    return index is None or not index.has_own_data


def is_new_head(old_name: bytes, new_name: bytes) -> bool:
    """Return whether a rename makes HEAD lead elsewhere, as `git checkout BRANCH` does."""
    return (old_name, new_name) == (_LOCKED_HEAD, _HEAD)


def belongs_to_ref(path: bytes) -> bool:
    """Return whether a file of that name may be a git index, or a HEAD: a branch that has one keeps the ref, see keep()."""
    return path.rpartition(b"/")[2] in (_INDEX, _HEAD)


def keep(tree: Tree, directory: Inode) -> list[Place]:
    """Give a branch its own copies of HEAD, and of the ref that HEAD leads to, where it shows the lower's.

    Args:
        tree: The branch's tree.
        directory: The directory that holds the index: a git database, or that of a linked worktree. Otherwise nothing happens.

    Returns:
        The names at which the branch has files of its own now, each with its directory.

    Raises:
        OSError: ENOSPC; EROFS or ESTALE if the tree cannot be changed.
    """
    copyup.check_writable(tree)
    database = _database(tree, directory)
    head = tree.find(directory, _HEAD) if database is not None else None
    if database is None or head is None or not _may_be_ref(head):
        return []
    kept, value = _own(head, directory, _HEAD), content_of(head)
    for _ in range(_LINKS):
        symbolic, _, name = value.partition(b":")
        parts = name.strip().split(b"/")
        if symbolic != b"ref" or parts[0] != b"refs" or {b"", b".", b".."} & {*parts}:
            break
        places, value = _keep_ref(tree, database, parts)
        kept += places
    return kept


def _database(tree: Tree, directory: Inode) -> Inode | None:
    above = directory.parent
    common = above.parent if above is not None and above.name == _WORKTREES else directory
    is_one = common is not None and all(tree.find(common, each) is not None for each in git_directories.IN_EVERY_DATABASE)
    return common if is_one else None


def _may_be_ref(inode: Inode) -> bool:
    return inode.is_file and inode_stat.attributes(inode).size <= _REF_BYTES


def _own(inode: Inode, directory: Inode, name: bytes) -> list[Place]:
    if inode.has_own_data:
        return []
    copyup.own_content(inode)
    return [(directory, name)]


def _keep_ref(tree: Tree, database: Inode, parts: list[bytes]) -> tuple[list[Place], bytes]:
    """Return the names of files that the branch has got, and the content of a ref that has a file of its own."""
    node = database
    for name in parts[:-1]:
        child = tree.find(node, name)
        if child is None or not child.is_dir:
            return [], b""  # a packed ref below a directory that nobody has made: rare, and no reason to make one
        node = child
    ref = tree.find(node, parts[-1])
    if ref is not None:
        return (_own(ref, node, parts[-1]), content_of(ref)) if _may_be_ref(ref) else ([], b"")
    packed = tree.find(database, b"packed-refs")
    if packed is None or packed.has_own_data or not packed.is_file or inode_stat.attributes(packed).size > _PACKED_BYTES:
        return [], b""
    found = [line for line in content_of(packed).splitlines() if line.endswith(b" " + b"/".join(parts))]
    if not found:
        return [], b""  # a branch without commits
    look, number = inode_stat.attributes(packed), tree.store.next_id("object")
    made = create_object(tree, number)
    made.pwrite(found[0].partition(b" ")[0] + b"\n", 0)
    inode = directory_entries.make(tree, node, parts[-1], look.mode, Owner(look.uid, look.gid), content=(number, made))
    inode.release_files()
    return [(node, parts[-1])], b""
