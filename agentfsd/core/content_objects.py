"""Creates content objects under new numbers. An unexpected object that already has the number is set aside."""

import os
import stat

from agentfsd.core.tree import Tree
from agentfsd.types import ContentFile

_SMALL_BYTES = 1 << 16


def create_object(tree: Tree, number: int) -> ContentFile:
    """Create an empty object."""
    try:
        return tree.backstore.create(number)
    except FileExistsError:
        tree.backstore.set_aside(number)
        return tree.backstore.create(number)


def clone_object(tree: Tree, source_fd: int, number: int, max_copy_bytes: int | None = None) -> ContentFile:
    """Create an object with the content of *source_fd*; OSError leaves nothing behind. *max_copy_bytes*: see Backstore.clone."""
    try:
        return tree.backstore.clone(source_fd, number, max_copy_bytes)
    except FileExistsError:
        tree.backstore.set_aside(number)
        return tree.backstore.clone(source_fd, number, max_copy_bytes)


def share_object(tree: Tree, kept: int, number: int) -> None:
    """Give the content of *kept*, which nobody writes any more, another number, by a copy where it cannot be shared.

    Raises:
        OSError: It cannot be read, or there is no room for a copy. Nothing is left behind.
    """
    try:
        shared = tree.backstore.share(kept, number)
    except FileExistsError:
        tree.backstore.set_aside(number)
        shared = tree.backstore.share(kept, number)
    if shared:
        return
    source = tree.backstore.open(kept)
    try:
        clone_object(tree, source.fileno(), number).close()
    finally:
        source.close()


def copy_object(tree: Tree, source_fd: int, number: int) -> ContentFile:
    """Do as clone_object(), faster for a small file. Only for a tree that a killed daemon would not leave behind.

    A daemon that is killed meanwhile may leave an unfinished object.
    """
    status = os.fstat(source_fd)
    if tree.backstore.native_snapshots != "none" or status.st_size > _SMALL_BYTES or not stat.S_ISREG(status.st_mode):
        return clone_object(tree, source_fd, number)
    data = os.pread(source_fd, _SMALL_BYTES + 1, 0)
    made = create_object(tree, number)
    try:
        made.pwrite(data, 0)
    except BaseException:
        made.close()
        tree.backstore.remove(number)
        raise
    return made
