"""Makes a directory what another state of a branch shows, path by path, while programs work in it.

A file gets its new content under another name and is then renamed over the old one, so a program sees either of them, and keeps
what it has open. What nobody may change there is left as it is: one such path holds up nothing else.
"""

import contextlib
import errno
import logging
import os
import stat
from collections.abc import Callable, Iterable

from agentfs_host import xattrs
from agentfs_host.copying import copy_content
from agentfs_host.descent import Descent
from agentfs_host.tree_removal import remove_at
from agentfsd.core import copyup, inode_stat
from agentfsd.core.inode_attributes import all_xattrs
from agentfsd.core.tree import Inode
from agentfsd.core.tree_diff import EntryPair
from agentfsd.overlayfs.unlocking import WritableDirectories

log = logging.getLogger(__name__)

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_UNFINISHED = b".agentfs-restored-"
# An ordinary user's daemon meets other users' files; a program of root may have made something immutable.
_DENIED = (errno.EPERM, errno.EACCES, errno.EOVERFLOW, errno.ENOTSUP)


class StateWriter:
    """Writes into one directory.

    Args:
        root: A descriptor of it.
        mark: Part of the name that files have until they are complete. It is the same when a daemon that was killed is followed
            by another.

    Attributes:
        has_left: Whether write() has left something as it is.
    """

    def __init__(self, root: int, mark: str) -> None:
        self._descent = Descent(root)
        self._root = root
        self._unfinished = _UNFINISHED + mark.encode()
        self._made: dict[Inode, bytes] = {}  # files with several names: where the first of them is
        self.has_left = False

    def write(self, pairs: Iterable[EntryPair]) -> None:
        """Replace what differs: ``new`` of each pair is what is to be there.

        Args:
            pairs: The differences, each directory before what is in it.

        Raises:
            OSError: There is no room, for example. What was written until then stays.
        """
        directories: list[tuple[bytes, Inode]] = []
        done: bytes | None = None  # what is below it is removed, or cannot be there
        with self._descent, WritableDirectories(self._descent) as self._writable:
            for pair in pairs:
                if done is not None and pair.path.startswith(done):
                    continue
                if pair.new is None:
                    self._try(pair.path, self._remove)
                    done = pair.path + b"/"
                elif not pair.new.is_dir:
                    self._try(pair.path, self._file, pair.new)
                elif self._try(pair.path, self._directory, pair.new):
                    directories.append((pair.path, pair.new))
                else:
                    done = pair.path + b"/"
            for path, inode in reversed(directories):  # what was made in them has changed their times
                self._try(path, self._attributes, inode)

    def _try(self, path: bytes, do: Callable[..., None], *arguments: Inode) -> bool:
        """Do something with a path; return whether that is permitted."""
        try:
            do(path, *arguments)
        except OSError as exc:
            if exc.errno not in _DENIED:
                raise
            self.has_left = True
            log.warning("%s of another state cannot be shown to a run: %s", os.fsdecode(path) or "the root", exc.strerror)
            return False
        return True

    def _place(self, path: bytes) -> tuple[int, bytes]:
        parent, _, name = path.rpartition(b"/")
        self._writable.permit(parent)
        return self._descent.fd(parent), name

    def _remove(self, path: bytes) -> None:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            fd, name = self._place(path)
            remove_at(fd, name)
            self._descent.forget()

    def _directory(self, path: bytes, inode: Inode) -> None:
        if not path:
            return
        fd, name = self._place(path)
        try:
            os.mkdir(name, 0o700, dir_fd=fd)
        except FileExistsError:
            if not stat.S_ISDIR(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=fd)
                os.mkdir(name, 0o700, dir_fd=fd)

    def _file(self, path: bytes, inode: Inode) -> None:
        fd, name = self._place(path)
        if self._is_directory(fd, name):
            self._remove(path)
            fd, name = self._place(path)
        remove_at(fd, self._unfinished)
        try:
            fd = self._make(path, fd, inode)
            os.rename(self._unfinished, name, src_dir_fd=fd, dst_dir_fd=fd)
        except BaseException:
            if self._made.get(inode) == path:
                del self._made[inode]
            with contextlib.suppress(OSError):
                remove_at(self._place(path)[0], self._unfinished)
            raise

    def _make(self, path: bytes, fd: int, inode: Inode) -> int:
        """Make the file under its unfinished name, in the directory *fd*; return a descriptor of that."""
        first = self._made.get(inode)
        if first is None:
            self._fill(fd, inode)
            if inode_stat.attributes(inode).nlink > 1:
                self._made[inode] = path
            return fd
        source = os.dup(self._place(first)[0])  # going to one place of the descent may close the other
        try:
            fd = self._place(path)[0]
            os.link(first.rpartition(b"/")[2], self._unfinished, src_dir_fd=source, dst_dir_fd=fd, follow_symlinks=False)
        finally:
            os.close(source)
        return fd

    @staticmethod
    def _is_directory(fd: int, name: bytes) -> bool:
        try:
            return stat.S_ISDIR(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode)
        except FileNotFoundError:
            return False

    def _fill(self, fd: int, inode: Inode) -> None:
        """Make the file under the name that it has until it is complete."""
        now = inode_stat.attributes(inode)
        if stat.S_ISLNK(now.mode):
            os.symlink(inode.tree.readlink(inode), self._unfinished, dir_fd=fd)
        elif stat.S_ISREG(now.mode):
            target = os.open(self._unfinished, _NEW, 0o600, dir_fd=fd)
            try:
                source = copyup.content_fd(inode)
                try:
                    copy_content(source, target, set())
                finally:
                    os.close(source)
            finally:
                os.close(target)
        else:
            os.mknod(self._unfinished, stat.S_IFMT(now.mode) | 0o600, now.rdev, dir_fd=fd)
        set_attributes(b"/proc/self/fd/%d/%s" % (fd, self._unfinished), inode)

    def _attributes(self, path: bytes, inode: Inode) -> None:
        self._writable.leave(path)
        with contextlib.suppress(FileNotFoundError):
            if path:
                set_attributes(self._descent.where(path), inode)
            else:
                set_attributes(b"/proc/self/fd/%d/." % self._root, inode)


def set_attributes(where: bytes, inode: Inode) -> None:
    """Give a file the attributes of an inode, unless a program has put something else there meanwhile.

    Everything goes by a descriptor of the file itself: no link that a program puts there is followed.

    Args:
        where: The file's path, whose last name is not followed.
        inode: What it is to be like.

    Raises:
        OSError: ESTALE if it is something else by now.

    An owner or an attribute that we may not give is left out.
    """
    now, wanted = inode_stat.attributes(inode), all_xattrs(inode.tree, inode)
    fd = os.open(where, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if stat.S_IFMT(os.fstat(fd).st_mode) != stat.S_IFMT(now.mode):
            raise OSError(errno.ESTALE, "a program has put another file there")
        file = b"/proc/self/fd/%d" % fd
        with contextlib.suppress(PermissionError):
            os.chown(file, now.uid, now.gid)
        if not stat.S_ISLNK(now.mode):
            os.chmod(file, stat.S_IMODE(now.mode))  # after chown, which takes setuid bits away
        for name in xattrs.names(file, follow=True):
            if name not in wanted:
                with contextlib.suppress(OSError):
                    os.removexattr(file, name)
        for name, value in wanted.items():
            with contextlib.suppress(PermissionError):
                os.setxattr(file, name, value)
        os.utime(file, ns=(now.atime_ns, now.mtime_ns))
    finally:
        os.close(fd)
