"""Creates content objects under new numbers. An unexpected object that already has the number is set aside."""

from agentfsd.core.tree import Tree
from agentfsd.types import ContentFile


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
