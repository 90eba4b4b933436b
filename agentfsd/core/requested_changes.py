"""Changes to files that somebody requests, through FUSE or over the socket: each function makes one change and reports it.

A report has the kernel drop what it cached of the old state, and tells those who listen to the branch. The handlers of `fuse/`
and of `control/` change files through this module only, so neither of them can forget a report. What the daemon does itself to
many files at once (a merge, a restore) uses the modules below and is told as one event.
"""

import os
from collections.abc import Mapping
from typing import Protocol

from agentfsd.core import checked_out_refs, data, directory_entries, inode_attributes
from agentfsd.core.branch_events import EventKind
from agentfsd.core.directory_entries import RENAME_EXCHANGE, Owner
from agentfsd.core.inode_attributes import NewAttributes
from agentfsd.core.overlay_events import NamedPlace
from agentfsd.core.tree import Inode, Tree
from agentfsd.types import ContentFile


class ChangeReporter(Protocol):
    """Reports the changes of one request. It knows who makes it, and through what."""

    def tell(self, kind: EventKind, inode: Inode, place: NamedPlace | None = None, before: NamedPlace | None = None) -> None:
        """Tell listeners of a change, if there are any.

        Args:
            kind: What has happened.
            inode: What it has happened to.
            place: Where it happened, if that is not the inode's path by now.
            before: Of a rename, where it was before.
        """
        ...

    def tell_write(self, inode: Inode) -> None:
        """Tell listeners of a write. One that follows another by the same thread to the same file may be left out."""
        ...

    def names_changed(self, directory: Inode, *names: bytes) -> None:
        """Have the kernel look these names up again, and read the directory's attributes again."""
        ...

    def file_changed(self, inode: Inode, *, data: bool) -> None:
        """Have the kernel read a file's attributes again, and its content if *data* is true."""
        ...


# -- names: arguments and errors are those of the functions in directory_entries.py


def make(
    by: ChangeReporter, tree: Tree, directory: Inode, name: bytes, mode: int, owner: Owner, *, rdev: int = 0, target: bytes = b"",
    content: tuple[int, ContentFile] | None = None,
) -> Inode:  # fmt: skip
    """Create a file, directory, symlink or special file."""
    made = directory_entries.make(tree, directory, name, mode, owner, rdev=rdev, target=target, content=content)
    by.tell("created", made)
    by.names_changed(directory, name)
    return made


def link(by: ChangeReporter, tree: Tree, inode: Inode, directory: Inode, name: bytes) -> None:
    """Add a name for a file."""
    directory_entries.link(tree, inode, directory, name)
    by.tell("created", inode, (directory, name))
    by.file_changed(inode, data=False)
    by.names_changed(directory, name)


def unlink(by: ChangeReporter, tree: Tree, directory: Inode, name: bytes) -> None:
    """Remove a name of what is no directory."""
    unlink_all(by, tree, directory, {name: tree.lookup(directory, name)})


def unlink_all(by: ChangeReporter, tree: Tree, directory: Inode, inodes: Mapping[bytes, Inode]) -> None:
    """Remove names of one directory that are no directories."""
    directory_entries.unlink_all(tree, directory, inodes)
    for name, gone in inodes.items():
        by.tell("deleted", gone, (directory, name))
        by.file_changed(gone, data=False)
    by.names_changed(directory, *inodes)


def rmdir(by: ChangeReporter, tree: Tree, directory: Inode, name: bytes) -> None:
    """Remove an empty directory."""
    gone = directory_entries.rmdir(tree, directory, name)
    by.tell("deleted", gone, (directory, name))
    by.names_changed(directory, name)


def rename(by: ChangeReporter, tree: Tree, old_dir: Inode, old: bytes, new_dir: Inode, new: bytes, flags: int = 0) -> None:
    """Rename like renameat2(2). A branch keeps the ref to which its own git index belongs, as soon as it has one."""
    if checked_out_refs.is_new_index(tree, new_dir, old, new):
        _keep_ref(by, tree, new_dir)
    source, target = directory_entries.rename(tree, old_dir, old, new_dir, new, flags)
    if source is not target:
        was, now = (old_dir, old), (new_dir, new)
        by.tell("renamed", source, now, was)
        if target is not None and flags & RENAME_EXCHANGE:
            by.tell("renamed", target, was, now)
    if target is not None and not target.is_dir:
        by.file_changed(target, data=False)
    by.names_changed(old_dir, old)
    by.names_changed(new_dir, new)
    if checked_out_refs.is_new_head(old, new):  # git writes the index first, and then HEAD leads elsewhere
        _keep_ref(by, tree, new_dir)


def _keep_ref(by: ChangeReporter, tree: Tree, directory: Inode) -> None:
    with tree.store.aside():
        kept = checked_out_refs.keep(tree, directory)
    for within, name in kept:
        by.names_changed(within, name)


# -- attributes: arguments and errors are those of the functions in inode_attributes.py


def set_attributes(by: ChangeReporter, inode: Inode, new: NewAttributes, *, privileged: bool) -> None:
    """Change the mode, owner, times or size."""
    inode_attributes.setattr_(inode.tree, inode, new, privileged=privileged)
    by.tell("attributes" if new.size is None else "modified", inode)
    _attributes_changed(by, inode, data=new.size is not None)


def set_xattr(by: ChangeReporter, inode: Inode, name: bytes, value: bytes, flags: int, *, in_group: bool) -> None:
    """Set an extended attribute."""
    inode_attributes.setxattr(inode.tree, inode, name, value, flags, in_group=in_group)
    by.tell("attributes", inode)
    _attributes_changed(by, inode)


def remove_xattr(by: ChangeReporter, inode: Inode, name: bytes) -> None:
    """Remove an extended attribute."""
    inode_attributes.removexattr(inode.tree, inode, name)
    by.tell("attributes", inode)
    _attributes_changed(by, inode)


def _attributes_changed(by: ChangeReporter, inode: Inode, *, data: bool = False) -> None:
    if inode.is_dir:
        by.names_changed(inode)
    else:
        by.file_changed(inode, data=data)


# -- content: arguments and errors are those of the functions in data.py


def open_(by: ChangeReporter, inode: Inode, flags: int) -> None:
    """Open a file, which changes it with O_TRUNC only."""
    data.open_(inode, flags)
    if flags & os.O_TRUNC:
        content_changed(by, inode)


def write(
    by: ChangeReporter, inode: Inode, content: bytes | memoryview, offset: int, *, privileged: bool, append: bool = False
) -> int:
    """Write to an open file, and return how many bytes were written."""
    written = data.write(inode, content, offset, privileged=privileged, append=append)
    by.file_changed(inode, data=True)
    by.tell_write(inode)
    return written


def allocate(by: ChangeReporter, inode: Inode, mode: int, offset: int, length: int) -> None:
    """Allocate, punch or zero a range of a file."""
    data.allocate(inode, mode, offset, length)
    content_changed(by, inode)


def copy_range(by: ChangeReporter, source: Inode, from_offset: int, target: Inode, to_offset: int, length: int) -> int:
    """Copy bytes from file to file, and return how many."""
    copied = data.copy_range(source, from_offset, target, to_offset, length)
    content_changed(by, target)
    return copied


def empty(by: ChangeReporter, inode: Inode, *, privileged: bool) -> None:
    """Truncate a file to 0 for O_TRUNC, with what a write takes away.

    Args:
        privileged: Keep the setuid and setgid bits.
    """
    inode_attributes.truncate(inode, 0)
    inode_attributes.drop_capabilities(inode)
    if not privileged:
        inode_attributes.drop_setid(inode)
    content_changed(by, inode)


def content_changed(by: ChangeReporter, inode: Inode) -> None:
    """Report that a file has other content: once for all the steps in which a client's content was put there."""
    by.file_changed(inode, data=True)
    by.tell("modified", inode)
