"""Matches removed files with added ones to find renames: by inode number, or else by similar content (libgit2)."""

from collections.abc import Iterable

from pygit2 import Oid
from pygit2.enums import DeltaStatus, DiffFind, FileMode

from agentfsd.core.tree import Inode
from agentfsd.core.tree_diff import EntryPair
from agentfsd.history.objects import Objects

RENAME_LIMIT = 7000  # as in git's merge: among more files, only those with equal content are matched


def find(objects: Objects, pairs: Iterable[EntryPair], blobs: dict[Inode, Oid]) -> dict[bytes, bytes]:
    """Return the new path of each renamed regular file, by old path. *blobs*: the id of each file's content in *objects*."""
    gone = {pair.path: pair.old for pair in pairs if pair.old is not None and pair.new is None and pair.old.is_file}
    came = {pair.path: pair.new for pair in pairs if pair.new is not None and pair.old is None and pair.new.is_file}
    moves = _by_number(gone, came)
    for old, new in moves.items():
        del gone[old], came[new]
    if gone and came:
        moves |= _by_likeness(objects, gone, came, blobs)
    return moves


def _by_number(gone: dict[bytes, Inode], came: dict[bytes, Inode]) -> dict[bytes, bytes]:
    """Match the files whose inode number is the same: a rename does not change it."""
    there = {inode.ino: path for path, inode in sorted(came.items(), reverse=True)}
    return {path: there.pop(inode.ino) for path, inode in sorted(gone.items()) if inode.ino in there}


def _by_likeness(
    objects: Objects, gone: dict[bytes, Inode], came: dict[bytes, Inode], blobs: dict[Inode, Oid]
) -> dict[bytes, bytes]:
    one = objects.tree({path: (blobs[inode], FileMode.BLOB) for path, inode in gone.items() if inode in blobs})
    two = objects.tree({path: (blobs[inode], FileMode.BLOB) for path, inode in came.items() if inode in blobs})
    diff = one.diff_to_tree(two)
    diff.find_similar(flags=DiffFind.FIND_RENAMES, rename_limit=RENAME_LIMIT)
    return {
        delta.old_file.raw_path: delta.new_file.raw_path for delta in diff.deltas if delta.status == DeltaStatus.RENAMED
    }  # fmt: skip
