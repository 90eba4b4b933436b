"""Copies paths from one tree into another: a merge builds its result this way, in a scratch tree."""

import os
import stat

from agentfsd.core import copyup, directory_entries, inode_stat
from agentfsd.core.content_objects import copy_object, create_object
from agentfsd.core.copyup import WantedAttributes
from agentfsd.core.directory_entries import Owner
from agentfsd.core.inode_attributes import all_xattrs
from agentfsd.core.tree import Inode, Tree
from agentfsd.types import ContentFile


def attributes_of(inode: Inode) -> WantedAttributes:
    shown, xattrs = inode_stat.attributes(inode), dict(all_xattrs(inode.tree, inode))
    return WantedAttributes(shown.mode, shown.uid, shown.gid, xattrs, shown.atime_ns, shown.mtime_ns)


class Transplant:
    """Changes *tree* path by path. A file with hard links in its source tree becomes one file with the same names here."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._made: dict[Inode, Inode] = {}  # source file: its copy here; only files with hard links

    def remove(self, path: bytes, *, only_empty: bool = False) -> None:
        """Remove *path* with everything below it. Does nothing if there is no such path.

        With *only_empty*, a directory that holds names stays.
        """
        directory, name = self._place(path)
        inode = self._tree.find(directory, name) if directory is not None else None
        if directory is None or inode is None:
            return
        if not inode.is_dir:
            directory_entries.unlink(self._tree, directory, name)
            return
        if not only_empty:
            self._empty(inode)
        if self._tree.is_empty(inode):
            directory_entries.rmdir(self._tree, directory, name)

    def _empty(self, directory: Inode) -> None:
        pending = [directory]
        for node in pending:
            for name in self._tree.names(node):
                child = self._tree.lookup(node, name)
                if child.is_dir:
                    pending.append(child)
                else:
                    directory_entries.unlink(self._tree, node, name)
        for node in pending[:0:-1]:
            assert node.parent is not None
            directory_entries.rmdir(self._tree, node.parent, node.name)

    def make_way(self, path: bytes, source: Inode) -> None:
        """Create the directories above *path*, and give them rows of their own. *source*: as for take()."""
        directory = self._parent(path, source) if path else self._tree.root
        if not directory.id:
            with self._tree.store.transaction() as tx:
                copyup.materialize(tx, directory, itself=False)

    def take(self, path: bytes, source: Inode, *, content: bytes | None = None, look: WantedAttributes | None = None) -> None:
        """Replace *path* by a copy of *source*; of a directory only its attributes are copied, not its names.

        *content* and *look*, if given, replace the content and the attributes of *source*.
        """
        look = look or attributes_of(source)
        if not path:
            self._settle(self._tree.root, look)
            return
        directory, name = self._parent(path, source), path.rpartition(b"/")[2]
        twin = self._made.get(source)
        if twin is not None and twin.nlink and content is None:
            self.remove(path)
            directory_entries.link(self._tree, twin, directory, name)
            return
        inode, is_settled = self._fitting(path, directory, name, source, look, content)
        if not is_settled:
            self._settle(inode, look)
        if not inode.is_dir and inode_stat.attributes(source).nlink > 1:
            self._made[source] = inode

    def _place(self, path: bytes) -> tuple[Inode | None, bytes]:
        parent, _, name = path.rpartition(b"/")
        try:
            directory = self._tree.walk(parent)
        except (FileNotFoundError, NotADirectoryError):
            return None, name
        return (directory if directory.is_dir else None), name

    def _parent(self, path: bytes, source: Inode) -> Inode:
        """Return the directory above *path*. Missing directories are created with the attributes of those above *source*."""
        node, above = self._tree.root, _directories_above(source)
        for depth, name in enumerate(path.split(b"/")[:-1]):
            child = self._tree.find(node, name)
            if child is not None and not child.is_dir:
                directory_entries.unlink(self._tree, node, name)
                child = None
            if child is None:
                like = above[depth] if depth < len(above) else node
                look = attributes_of(like)
                child = directory_entries.make(
                    self._tree, node, name, stat.S_IFDIR | stat.S_IMODE(look.mode), Owner(look.uid, look.gid)
                )
                self._settle(child, look)
            node = child
        return node

    def _fitting(
        self, path: bytes, directory: Inode, name: bytes, source: Inode, look: WantedAttributes, content: bytes | None
    ) -> tuple[Inode, bool]:  # fmt: skip
        """Return the inode for *path* with the type and content of *source*, and whether it has its attributes already.

        It is the present inode if that fits, else a new one.
        """
        tree, existing = self._tree, self._tree.find(directory, name)
        if existing is not None:
            same_type = stat.S_IFMT(existing.mode) == stat.S_IFMT(look.mode)
            has_other_names = not existing.is_dir and inode_stat.attributes(existing).nlink > inode_stat.attributes(source).nlink
            if same_type and existing.is_dir:
                return existing, False
            if same_type and existing.is_file and not has_other_names:
                copyup.replace_content(existing, *self._object(source, content), look)
                return existing, True
            self.remove(path)
        target = source.tree.readlink(source) if stat.S_ISLNK(look.mode) else b""
        rdev = inode_stat.attributes(source).rdev
        filled = self._object(source, content) if stat.S_ISREG(look.mode) else None
        owner = Owner(look.uid, look.gid)
        return directory_entries.make(tree, directory, name, look.mode, owner, rdev=rdev, target=target, content=filled), False

    def _object(self, source: Inode, content: bytes | None) -> tuple[int, ContentFile]:
        """Create an object with *content*, or with the content of *source* if that is None. Return its number and the object."""
        tree = self._tree
        number = tree.store.next_id("object")
        if content is not None:
            made = create_object(tree, number)
            made.pwrite(content, 0)
            return number, made
        fd = copyup.content_fd(source)
        try:
            return number, copy_object(tree, fd, number)
        finally:
            os.close(fd)

    def _settle(self, inode: Inode, look: WantedAttributes) -> None:
        """Set an inode's attributes. Call it last, because creating and filling the inode changed them."""
        tree = self._tree
        with tree.store.transaction() as tx:
            copyup.materialize(tx, inode)
            copyup.set_look(tx, inode, look)
            copyup.save(tx, inode)
        if inode.content and copyup.is_owned(inode):
            file = tree.backstore.open(inode.content)
            try:
                file.utime(look.atime_ns, look.mtime_ns)
            finally:
                file.close()
        inode.release_files()


def _directories_above(inode: Inode) -> list[Inode]:
    """Return the directories above *inode*, from the first below the root down to its parent."""
    directories: list[Inode] = []
    node = inode.parent
    while node is not None and node.parent is not None:
        directories.append(node)
        node = node.parent
    return directories[::-1]
