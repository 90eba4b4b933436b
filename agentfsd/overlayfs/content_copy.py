"""A branch's own copy of a content that a run may still write: a snapshot taken now must not change with the run."""

import contextlib

from agentfsd.core.content_objects import clone_object
from agentfsd.core.tree import Inode


class ContentCopy:
    """A copy of a content object that is a file of the upper.

    Attributes:
        inode: The file.
        ino: The inode number of the upper's file.
        of: The number of the object.
        number: The number of the copy.
        is_made: Whether run() has made it.
        size_bytes: The size of the file.
    """

    def __init__(self, inode: Inode, ino: int) -> None:
        tree = inode.tree
        self.inode, self.of, self.number, self.is_made = inode, inode.content, tree.store.next_id("object"), False
        status = tree.backstore.stat(self.of)
        self.ino, self.size_bytes, self._is_of_upper = ino, status.st_size, status.st_ino == ino

    def run(self) -> None:
        """Make the copy. OSError leaves nothing behind."""
        if not self._is_of_upper:
            return
        tree = self.inode.tree
        with contextlib.closing(tree.backstore.open(self.of)) as content:
            content.start_writeback()  # before: from now on also a write through a mapping moves the change time
            status = content.stat()
            clone = clone_object(tree, content.fileno(), self.number)
        clone.utime(status.st_atime_ns, status.st_mtime_ns)
        clone.close()
        self.is_made = True

    def abandon(self) -> None:
        """Remove the copy, if there is one."""
        if self.is_made:
            self.inode.tree.backstore.remove(self.number)
