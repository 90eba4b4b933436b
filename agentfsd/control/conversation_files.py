"""The files that a conversation has open for reading, and those that it writes. This module sees no request."""

import errno
import os
import stat

from agentfsd.control.cooperative import Steps
from agentfsd.core import copyup, data, inode_attributes, inode_stat, permissions, requested_changes
from agentfsd.core.content_objects import create_object
from agentfsd.core.directory_entries import Owner
from agentfsd.core.inode_attributes import NewAttributes
from agentfsd.core.permissions import Credentials
from agentfsd.core.requested_changes import ChangeReporter
from agentfsd.core.tree import Inode, Tree
from agentfsd.types import ContentFile

_STEP_BYTES = 1 << 20
_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE


class OpenedFile:
    """A file open for reading. It stays open when the file is renamed or deleted, as a descriptor does."""

    def __init__(self, inode: Inode) -> None:
        data.open_(inode, os.O_RDONLY)
        self.inode, self.tree_id = inode, inode.tree.id

    def read(self, size: int, offset: int) -> bytes:
        """Return at most *size* bytes from *offset* on."""
        return data.read(self.inode, size, offset)

    def close(self) -> None:
        """Close the file."""
        data.release(self.inode)


class StagedFile:
    """Content that will become the file at *path* of a branch, or will be appended to it.

    Until then no row refers to it. close() removes it, unless it has become a file's content.
    """

    def __init__(self, tree: Tree, path: bytes, mode: str, permissions: int) -> None:
        self.tree_id, self.path, self.mode, self.permissions = tree.id, path, mode, permissions
        self._backstore = tree.backstore
        self._size = self._number = 0  # of the object; 0 while the content is nameless
        self._content = self._make(tree)
        self._is_taken = False

    def _make(self, tree: Tree) -> ContentFile:
        try:
            return tree.backstore.create_unnamed()
        except OSError as exc:
            if exc.errno != errno.EOPNOTSUPP:
                raise
        self._number = tree.store.next_id("object")
        return create_object(tree, self._number)

    def close(self) -> None:
        """Remove the content, unless it has become a file's."""
        if self._is_taken:
            return
        self._is_taken = True
        self._content.close()
        if self._number:
            self._backstore.remove(self._number)

    def write(self, content: bytes) -> None:
        """Add content at the end. OSError (ENOSPC) when there is no room for all of it."""
        written = self._content.pwrite(content, self._size)
        self._size += written
        if written < len(content):
            raise OSError(errno.ENOSPC, "no space left for all of it")

    def become(self, by: ChangeReporter, directory: Inode, name: bytes, who: Credentials) -> Inode:
        """Make a new file of this content."""
        mode = permissions.mode_of_new(directory, stat.S_IFREG | self.permissions, who)
        owner = Owner(who.uid, who.gid, who.umask)
        tree = directory.tree
        made = requested_changes.make(by, tree, directory, name, mode, owner, content=self._complete(tree))
        self._is_taken = True
        if not made.opens:
            made.release_files()
        return made

    def replace(self, inode: Inode, who: Credentials) -> None:
        """Replace the content of an existing file at once.

        Its owner, mode, names and attributes stay. Processes that have the file open see the new content.
        """
        tree = inode.tree
        inode_attributes.drop_capabilities(inode)  # first: a kill in between must not leave them to the new content
        if not who.privileged:
            inode_attributes.drop_setid(inode)
        copyup.replace_content(inode, *self._complete(tree))
        self._is_taken = True
        inode_attributes.setattr_(tree, inode, NewAttributes(mtime_ns=copyup.now_ns()), privileged=True)

    def _complete(self, tree: Tree) -> tuple[int, ContentFile]:
        """Complete the object, so that a row may refer to it."""
        if not self._number:
            number = tree.store.next_id("object")
            self._content.give_name(number)
            self._number = number
        self._content.start_writeback()
        return self._number, self._content

    def append(self, inode: Inode, who: Credentials) -> Steps[None]:
        """Copy the content to the end of a file.

        If that fails, the file keeps its former end and what others have written since.
        """
        data.open_(inode, os.O_WRONLY)
        try:
            begin = _size_of(inode)
            for offset in range(0, self._size, _STEP_BYTES):
                end = _size_of(inode)
                try:
                    _write(inode, self._content.pread(_STEP_BYTES, offset), end, who)
                except OSError:
                    was = begin if end == begin + offset else end
                    if _size_of(inode) > was:
                        inode_attributes.truncate(inode, was)
                    raise
                yield offset, self._size, "appending"
        finally:
            data.release(inode)

    def overwrite(self, inode: Inode, who: Credentials) -> Steps[None]:
        """Overwrite a file's content in the same object. The room is reserved before the first byte is written."""
        data.open_(inode, os.O_WRONLY)
        try:
            if self._size:
                _reserve(inode, self._size)
            for offset in range(0, self._size, _STEP_BYTES):
                _write(inode, self._content.pread(_STEP_BYTES, offset), offset, who)
                yield offset, self._size, "writing"
            inode_attributes.truncate(inode, self._size)
        finally:
            data.release(inode)


def _size_of(inode: Inode) -> int:
    return inode_stat.data_stat(inode).st_size


def _reserve(inode: Inode, size: int) -> None:
    try:
        data.allocate(inode, _KEEP_SIZE, 0, size)
    except OSError as exc:
        if exc.errno != errno.EOPNOTSUPP:
            raise


def _write(inode: Inode, part: bytes, offset: int, who: Credentials) -> None:
    if data.write(inode, part, offset, privileged=who.privileged) < len(part):
        raise OSError(errno.ENOSPC, "no space left for all of it")
