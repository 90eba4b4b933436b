"""Write the clone of a frozen base: files with the contents and, as far as this process may, the attributes of the originals.

The index tells the truth about attributes; the clone has them for those who read it without the index. Only directories that this
process made are written.
"""

import errno
import os
import stat
from collections.abc import Callable

from agentfs_host import copying, tree_removal
from agentfs_host.plain_paths import directory_beneath
from agentfsd.lower.frozen_index import FrozenEntry

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_SMALL = 64 << 10  # bytes; up to this size one read and one write cost less than asking for the file's holes
_REFUSED = (errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.EINVAL, errno.ENOSPC, errno.ERANGE, errno.E2BIG, errno.EROFS)


class Clone:
    """The files of one clone, by path.

    Attributes:
        copied_bytes: what was written, in bytes; blocks that are shared do not count.
        unshared: the devices, as in FrozenEntry.dev, whose files cannot share blocks with the clone's; None if none are to.
    """

    def __init__(self, fd: int, unshared: set[int] | None, between: Callable[[], object]) -> None:
        """Take a directory for the clone.

        Args:
            fd: a descriptor of it, which the caller closes.
            unshared: see the attribute.
            between: called between the parts of a long copy; what it raises ends it.
        """
        self._fd, self._between = fd, between
        self.unshared = unshared
        self.copied_bytes = 0
        self._is_root = os.geteuid() == 0
        self._owner = (os.geteuid(), os.getegid())
        self._at: tuple[bytes, int] = (b"", -1)  # the directory that was written last, and its descriptor

    def close(self) -> None:
        if self._at[1] >= 0:
            os.close(self._at[1])
        self._at = (b"", -1)

    def _directory(self, path: bytes) -> int:
        """Return a descriptor of a directory, valid until the next call."""
        if not path:
            return self._fd
        if self._at[1] < 0 or self._at[0] != path:
            self.close()
            self._at = (path, directory_beneath(self._fd, path))
        return self._at[1]

    def remove(self, directory: bytes, name: bytes, entry: FrozenEntry) -> None:
        """Remove what was made for *entry*, perhaps a tree; nothing is no error."""
        if stat.S_ISREG(entry.mode):
            self.copied_bytes -= self._stored_bytes(directory, name, entry)
        fd = self._directory(directory)
        if self._at[0].startswith(directory + b"/" + name if directory else name):
            self.close()
            fd = self._directory(directory)
        tree_removal.remove_at(fd, name)

    def _stored_bytes(self, directory: bytes, name: bytes, entry: FrozenEntry) -> int:
        """Return how much of copied_bytes goes with one name."""
        if self._may_share(entry):
            return 0
        try:
            status = os.stat(name, dir_fd=self._directory(directory), follow_symlinks=False)
        except OSError:
            return 0
        return min(status.st_size, status.st_blocks * 512) if status.st_nlink == 1 else 0

    def _may_share(self, entry: FrozenEntry) -> bool:
        return self.unshared is not None and entry.dev not in self.unshared

    def make_directory(self, directory: bytes, name: bytes) -> None:
        try:
            os.mkdir(name, 0o700, dir_fd=self._directory(directory))
        except FileExistsError:
            pass

    def make_file(self, directory: bytes, name: bytes, source: int, entry: FrozenEntry) -> None:
        """Make a regular file with the content behind *source*."""
        fd = os.open(name, _CREATE, 0o600, dir_fd=self._directory(directory))
        try:
            if entry.size:
                self._fill(source, fd, entry)
            self._give(fd, entry)
        finally:
            os.close(fd)

    def make_unreadable(self, directory: bytes, name: bytes) -> None:
        """Make an empty file that nobody may open, for one that this process may not read."""
        os.close(os.open(name, _CREATE, 0, dir_fd=self._directory(directory)))

    def make_symlink(self, directory: bytes, name: bytes, target: bytes, entry: FrozenEntry) -> None:
        fd = self._directory(directory)
        os.symlink(target, name, dir_fd=fd)
        self._give(b"/proc/self/fd/%d/%s" % (fd, name), entry)

    def make_node(self, directory: bytes, name: bytes, entry: FrozenEntry) -> None:
        """Make a FIFO, socket or device node; none where that is not permitted."""
        fd = self._directory(directory)
        try:
            os.mknod(name, stat.S_IFMT(entry.mode) | 0o600, entry.rdev, dir_fd=fd)
        except OSError as exc:
            if exc.errno in _REFUSED:
                return
            raise
        self._give(b"/proc/self/fd/%d/%s" % (fd, name), entry)

    def link(self, source: int, path: bytes, directory: bytes, name: bytes) -> bool:
        """Make *name* a hard link of the file at *path* beneath the directory behind *source*; False where that cannot be."""
        try:
            os.link(path, name, src_dir_fd=source, dst_dir_fd=self._directory(directory), follow_symlinks=False)
        except OSError as exc:
            if exc.errno in (errno.EMLINK, errno.ENOENT, errno.ENOTDIR, errno.EXDEV, errno.EPERM, errno.ENAMETOOLONG):
                return False
            raise
        return True

    def link_own(self, path: bytes, directory: bytes, name: bytes) -> bool:
        """Do so with another file of this clone."""
        return self.link(self._fd, path, directory, name)

    def finish_directory(self, path: bytes, entry: FrozenEntry) -> None:
        """Give a directory its attributes. Do this last: what is made in it changes its times, or may be refused by its mode."""
        fd = os.open(b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._directory(path))
        try:
            self._give(fd, entry)
        finally:
            os.close(fd)

    def _fill(self, source: int, fd: int, entry: FrozenEntry) -> None:
        shares = self._may_share(entry)
        if not shares and entry.size <= _SMALL and entry.blocks * 512 >= entry.size:
            data = os.read(source, entry.size + 1)
            if len(data) == entry.size and os.write(fd, data) == len(data):  # else it changes, or a signal came
                self.copied_bytes += len(data)
                return
            os.ftruncate(fd, 0)
            os.lseek(fd, 0, os.SEEK_SET)
            os.lseek(source, 0, os.SEEK_SET)
        if shares and self._share(source, fd):
            return
        copying.copy(source, fd, share=self.unshared is not None, between=self._between)
        self.copied_bytes += min(entry.size, os.fstat(fd).st_blocks * 512)

    def _share(self, source: int, fd: int) -> bool:
        try:
            copying.share(source, fd)
        except OSError as exc:
            if exc.errno in copying.NO_REFLINK or exc.errno in copying.NOT_THIS_FILE:
                return False
            raise
        return True

    def _give(self, where: int | bytes, entry: FrozenEntry) -> None:
        """Set owner, extended attributes, mode and times, in an order in which no step undoes an earlier one."""
        follow = isinstance(where, int)
        if self._is_root and (entry.uid, entry.gid) != self._owner:
            os.chown(where, entry.uid, entry.gid, follow_symlinks=follow)
        for name, value in (entry.xattrs or {}).items():
            try:
                os.setxattr(where, name, value, follow_symlinks=follow)
            except OSError as exc:
                if exc.errno not in _REFUSED:
                    raise
        if not stat.S_ISLNK(entry.mode):
            os.chmod(where, self._mode(entry))
        os.utime(where, ns=(entry.atime_ns, entry.mtime_ns), follow_symlinks=follow)

    def _mode(self, entry: FrozenEntry) -> int:
        """Return the permission bits: those of the original, but its owner here can read what it could read there."""
        mode = stat.S_IMODE(entry.mode)
        if self._is_root or entry.unreadable:
            return mode
        return mode | (0o700 if stat.S_ISDIR(entry.mode) else 0o400)
