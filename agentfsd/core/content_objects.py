"""Making content objects under new numbers: what is found under one, which nobody can explain, is set aside."""

from agentfsd.core.tree import Tree
from agentfsd.types import ContentFile


def create_object(tree: Tree, number: int) -> ContentFile:
    """A new empty object."""
    try:
        return tree.backstore.create(number)
    except FileExistsError:
        tree.backstore.set_aside(number)
        return tree.backstore.create(number)


def clone_object(tree: Tree, source_fd: int, number: int, max_copy_bytes: int | None = None) -> ContentFile:
    """A new object with the content of *source_fd*; OSError leaves nothing behind. *max_copy_bytes*: see Backstore.clone."""
    try:
        return tree.backstore.clone(source_fd, number, max_copy_bytes)
    except FileExistsError:
        tree.backstore.set_aside(number)
        return tree.backstore.clone(source_fd, number, max_copy_bytes)
