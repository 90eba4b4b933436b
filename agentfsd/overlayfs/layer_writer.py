"""Writes what a branch has changed as a layer of the kernel's overlayfs, which lies over the lower.

Files are hard links to content objects where these can have the file's own attributes, else copies. A layer is only read.
"""

import contextlib
import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

from agentfs_host.copying import copy_content
from agentfs_host.descent import Descent
from agentfsd.core import copyup, inode_stat
from agentfsd.core.inode_attributes import all_xattrs
from agentfsd.core.origin import now_in_lower
from agentfsd.core.tree import Inode, Tree, exists_in, join
from agentfsd.domain_errors import DamagedContent
from agentfsd.metadata.prefetch import Prefetch
from agentfsd.metadata.rows import is_whiteout
from agentfsd.overlayfs import on_disk

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class CannotBeLayer(Exception):
    """The kernel's overlayfs cannot show the branch. The text says why, as part of a sentence."""


class _Way(NamedTuple):
    """To a directory: its path in the layer, its inode, and the lower's path of what the kernel shows beneath; None: nothing."""

    path: bytes
    directory: Inode
    beneath: bytes | None


class LayerWriter:
    """Writes one layer, for a mount by the same user. Only root can show renamed directories of the lower and make others' files.

    Args:
        tree: The branch's state. Its layers are sealed: nobody writes their objects.
        objects: The directory of the content objects.
    """

    def __init__(self, tree: Tree, objects: int) -> None:
        self._tree, self._objects = tree, objects
        self._privileged, self._prefix = os.geteuid() == 0, on_disk.prefix()
        self._linked: dict[int, bytes] = {}  # files with several names: inode id, the path of the first in the layer
        self._root = -1
        self.copies: list[tuple[bytes, tuple[int, ...]]] = []  # what was copied from the lower: path, identity

    def write(self, place: str) -> None:
        """Write the layer into the empty directory *place*.

        Raises:
            CannotBeLayer: It holds what no layer can hold.
            OSError: There is no room, for example.
        """
        self._root = os.open(place, _DIRECTORY)
        try:
            with self._prefetched(), Descent(self._root) as self._descent:
                self._all()
        finally:
            os.close(self._root)

    @contextlib.contextmanager
    def _prefetched(self) -> Iterator[None]:
        """Read all rows at once."""
        rows = self._tree.prefetch = Prefetch()
        try:
            for layer in self._tree.chain:
                for _ in rows.adding(self._tree.store, layer):
                    pass
            yield
        finally:
            self._tree.prefetch = None

    def _all(self) -> None:
        """Write every directory. They may be deeper than Python's stack."""
        todo: list[_Way] = [_Way(b"", self._tree.root, b"")]
        done: list[_Way] = []
        while todo:
            done.append(todo.pop())
            todo += self._fill(done[-1])
        for path, directory, _ in reversed(done):  # what is made in a directory changes its times
            self._set_attributes(b"/proc/self/fd/%d" % self._descent.fd(path), directory, follow=True)

    def _fill(self, way: "_Way") -> "list[_Way]":
        """Write the names of a directory, and return the ways to the directories in it."""
        path, directory, beneath = way
        fd = self._descent.fd(path)
        below: list[_Way] = []
        for name, child in self._tree.entries(directory).items() if directory.id else ():
            if is_whiteout(child):
                if beneath is not None and exists_in(self._tree.lower, join(beneath, name)) and not self._shows(directory, name):
                    os.mknod(name, stat.S_IFCHR | 0o600, 0, dir_fd=fd)
                continue
            inode = self._tree.inode(child, directory, name)
            if inode.is_dir:
                self._directory(fd, join(path, name), inode, None if beneath is None else join(beneath, name))
                below.append(_Way(join(path, name), inode, inode.lower_path))
            else:
                self._file(fd, name, join(path, name), inode)
        return below

    def _shows(self, directory: Inode, name: bytes) -> bool:
        return self._tree.shows_lower(directory, name)

    def _directory(self, parent: int, path: bytes, inode: Inode, beneath: bytes | None) -> None:
        """Make an empty directory. *beneath*: the path in the lower of what the kernel would show in it."""
        name = path.rpartition(b"/")[2]
        os.mkdir(name, 0o700, dir_fd=parent)
        where = b"/proc/self/fd/%d/%s" % (parent, name)
        if inode.lower_path is None:
            if beneath is not None and exists_in(self._tree.lower, beneath):
                os.setxattr(where, self._prefix + b"opaque", b"y", follow_symlinks=False)
        elif inode.lower_path != beneath:
            self._redirect(where, path, inode.lower_path)

    def _redirect(self, where: bytes, path: bytes, lower_path: bytes) -> None:
        if not self._privileged:
            raise CannotBeLayer(f"{os.fsdecode(path)} is a directory of the workspace that was renamed, which takes root")
        os.setxattr(where, self._prefix + b"redirect", b"/" + lower_path, follow_symlinks=False)

    def _file(self, fd: int, name: bytes, path: bytes, inode: Inode) -> None:
        first = self._linked.get(inode.id)
        if first is not None:
            os.link(first, name, src_dir_fd=self._root, dst_dir_fd=fd, follow_symlinks=False)
            return
        if inode.nlink > 1:
            self._linked[inode.id] = path
        if stat.S_ISLNK(inode.mode):
            os.symlink(self._tree.readlink(inode), name, dir_fd=fd)
        elif not stat.S_ISREG(inode.mode):
            self._special(fd, name, inode.mode, inode.rdev)
        elif self._link_object(fd, name, inode):
            return
        else:
            self._copy(fd, name, inode)
        self._set_attributes(b"/proc/self/fd/%d/%s" % (fd, name), inode)

    def _special(self, fd: int, name: bytes, mode: int, rdev: int) -> None:
        try:
            os.mknod(name, stat.S_IFMT(mode) | 0o600, rdev, dir_fd=fd)
        except PermissionError:
            raise CannotBeLayer(f"{os.fsdecode(name)} is a device, which takes root") from None

    def _link_object(self, fd: int, name: bytes, inode: Inode) -> bool:
        """Make the file a link to its content object, if that has or may have the file's attributes. Return whether it is one."""
        if not inode.has_live_times or (not self._privileged and not inode.mode & stat.S_IRUSR):
            return False
        own = b"%02x/%x" % (inode.content & 0xFF, inode.content)
        try:
            status = os.stat(own, dir_fd=self._objects, follow_symlinks=False)
        except OSError:
            raise CannotBeLayer("contents are damaged: `agentfsd fsck` says which") from None
        where = b"/proc/self/fd/%d/%s" % (self._objects, own)
        if not self._has_attributes(where, status, inode):
            if status.st_nlink > 1 or inode.uid != os.geteuid():
                return False
            self._set_attributes(where, inode)
        try:
            os.link(own, name, src_dir_fd=self._objects, dst_dir_fd=fd, follow_symlinks=False)
        except OSError:  # too many links
            return False
        return True

    def _has_attributes(self, where: bytes, status: os.stat_result, inode: Inode) -> bool:
        if (status.st_mode, status.st_uid, status.st_gid) != (inode.mode, inode.uid, inode.gid):
            return False
        return on_disk.own_xattrs(where) == (inode.xattrs or {})

    def _copy(self, fd: int, name: bytes, inode: Inode) -> None:
        if not inode.content and inode.lower_path is not None:
            self.copies.append((inode.lower_path, now_in_lower(self._tree, inode.lower_path)))  # before it is read
        try:
            source = copyup.content_fd(inode)
        except DamagedContent:
            raise CannotBeLayer("contents are damaged: `agentfsd fsck` says which") from None
        try:
            target = os.open(name, _NEW, 0o600, dir_fd=fd)
            try:
                copy_content(source, target, set())
            finally:
                os.close(target)
        finally:
            os.close(source)

    def _set_attributes(self, where: bytes, inode: Inode, *, follow: bool = False) -> None:
        """Give a file of the layer, or an object, the attributes of an inode."""
        now = inode_stat.attributes(inode)
        try:
            os.chown(where, now.uid, now.gid, follow_symlinks=follow)
        except PermissionError:
            raise CannotBeLayer("it has files of other users, which takes root") from None
        if not stat.S_ISLNK(now.mode):
            os.chmod(where, stat.S_IMODE(now.mode))  # after chown, which takes setuid bits away
        for name, value in all_xattrs(inode.tree, inode).items():
            try:
                os.setxattr(where, on_disk.stored_name(name), value, follow_symlinks=follow)
            except PermissionError:
                raise CannotBeLayer(f"it has the extended attribute {os.fsdecode(name)}, which takes root") from None
        os.utime(where, ns=(now.atime_ns, now.mtime_ns), follow_symlinks=follow)
