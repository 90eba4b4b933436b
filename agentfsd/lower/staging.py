"""Create the files of a commit with all their attributes, in a staging directory that nobody else reads.

This module knows what to create, and not what the commit does with it later.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterable
from itertools import groupby

from agentfs_host import copying, syscalls
from agentfs_host.plain_paths import directory_beneath
from agentfsd.domain_errors import Refusal, invalid
from agentfsd.lower import lower_attributes
from agentfsd.lower.commit_plan import ContentSource, Put
from agentfsd.lower.survey import name_of, parent_of

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_ONE_PAGE = 4096  # bytes; holes in smaller files are not worth keeping
_SMALL = 64 << 10  # bytes; up to this size one read and one write cost less than trying to share blocks
_LARGE = 1 << 20  # bytes; for larger files start writeback at once

Told = Callable[[int], None]


class Staging:
    """Fill the staging directory behind a descriptor, which the caller closes."""

    def __init__(self, fd: int, share: bool) -> None:
        """Take the staging directory.

        Args:
            fd: descriptor of the staging directory.
            share: whether files may share blocks with their sources.
        """
        self.fd = fd
        self._count = 0
        self._no_reflink: set[int] | None = set() if share else None
        self._places: dict[bytes, bytes] = {}  # path of a new directory -> its path in staging
        self._links: dict[int, bytes] = {}  # link number -> path of its file in staging
        self._directories: list[tuple[bytes, Put]] = []  # parents first
        self._owner = (0, 0)  # user id and group id that new files get
        self._umask = 0
        self._listed_numbers_count = True  # whether listed inode numbers equal those of stat; false on some overlayfs

    def probe(self) -> bool:
        """Find out which owner and mode new files get here. Return whether the file system can exchange names."""
        os.chmod(self.fd, 0o700)  # clear setgid here and the default ACL below, so that new files inherit nothing
        try:
            os.removexattr(self.fd, b"system.posix_acl_default")
        except OSError:
            pass
        for name in (b"one", b"two"):
            os.close(os.open(name, _CREATE, 0o777, dir_fd=self.fd))
        info = os.stat(b"one", dir_fd=self.fd)
        self._listed_numbers_count = self.inode_numbers()[b"one"] == info.st_ino
        self._owner = (info.st_uid, info.st_gid)
        self._umask = 0o777 & ~info.st_mode
        try:
            syscalls.rename(self.fd, b"one", self.fd, b"two", syscalls.EXCHANGE)
        except OSError:
            return False
        finally:
            for name in (b"one", b"two"):
                os.unlink(name, dir_fd=self.fd)
        return True

    def new_name(self) -> bytes:
        self._count += 1
        return b"%x" % self._count

    def put(self, put: Put, progress: Told) -> bytes:
        """Create a file that has its own name in the staging directory, and return that name.

        *progress* is called with the file's size in bytes.
        """
        name = self.new_name()
        progress(self._make(put, self.fd, name, name))
        return name

    def inode_numbers(self) -> dict[bytes, int]:
        """Return the inode number of each name in the staging directory."""
        fd = os.open(b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.fd)
        try:
            with os.scandir(fd) as entries:
                numbers = {os.fsencode(entry.name): entry.inode() for entry in entries}
        finally:
            os.close(fd)
        if self._listed_numbers_count:
            return numbers
        return {name: os.stat(name, dir_fd=self.fd, follow_symlinks=False).st_ino for name in numbers}

    def put_inside(self, puts: Iterable[Put], progress: Told) -> None:
        """Create the files inside new directories.

        Args:
            puts: the files, sorted by directory and name.
            progress: called with the size in bytes of each.
        """
        for parent, group in groupby(puts, key=lambda put: parent_of(put.path)):
            place = self._places.get(parent)
            if place is None:
                raise invalid(f"{os.fsdecode(parent)!r} is to hold something, but it is no new directory")
            fd = directory_beneath(self.fd, place)
            try:
                for put in group:
                    name = name_of(put.path)
                    progress(self._make(put, fd, name, place + b"/" + name))
            finally:
                os.close(fd)

    def finish(self) -> None:
        """Set the attributes of directories last: creating files in one changes its times, and they would inherit its default
        ACL.
        """
        for place, put in reversed(self._directories):
            fd = directory_beneath(self.fd, place)
            try:
                where = b"/proc/self/fd/%d" % fd
                lower_attributes.give(where, put.attributes, self._owner, -1)
                if os.geteuid() != 0 and b"/" not in place:
                    os.chmod(where, stat.S_IMODE(put.attributes.mode) | stat.S_IRWXU)  # else it could not be moved
            except OSError as exc:
                raise _failed(put, exc) from exc
            finally:
                os.close(fd)

    def _make(self, put: Put, fd: int, name: bytes, place: bytes) -> int:
        try:
            first = self._links.setdefault(put.link, place) if put.link else place
            if first != place:
                self._link(first, fd, name)
                return 0
            kind = stat.S_IFMT(put.attributes.mode)
            if kind == stat.S_IFREG:
                return self._file(put, fd, name)
            if kind == stat.S_IFDIR:
                os.mkdir(name, 0o700, dir_fd=fd)
                self._places[put.path] = place
                self._directories.append((place, put))
            elif kind == stat.S_IFLNK:
                os.symlink(put.target, name, dir_fd=fd)
                self._give(put, fd, name)
            else:
                os.mknod(name, kind | 0o600, put.rdev, dir_fd=fd)
                self._give(put, fd, name)
            return 0
        except OSError as exc:
            raise _failed(put, exc) from exc

    def _file(self, put: Put, directory_fd: int, name: bytes) -> int:
        mode = put.attributes.mode & 0o777
        fd = os.open(name, _CREATE, mode, dir_fd=directory_fd)
        try:
            size = self._fill(put.content, fd) if put.content is not None else 0
            lower_attributes.give(fd, put.attributes, self._owner, mode & ~self._umask)
            return size
        finally:
            os.close(fd)

    def _fill(self, content: ContentSource, fd: int) -> int:
        """Copy the content and return its size in bytes. An announced size other than 0 only decides how to copy."""
        size = content.size
        if size == 0:
            return 0
        source = content.open()
        try:
            small = 0 < size <= _ONE_PAGE
            if not small:
                info = os.fstat(source)
                size = info.st_size
                small = size <= _SMALL and info.st_blocks * 512 >= size  # true only if the file has no holes
            if small:
                data = os.read(source, size + 1)
                if len(data) == size and os.write(fd, data) == size:
                    return size
                os.ftruncate(fd, 0)
            copying.copy_content(source, fd, self._no_reflink)
            size = os.fstat(fd).st_size
            if size >= _LARGE:
                syscalls.start_writeback(fd)
            return size
        finally:
            os.close(source)

    def _give(self, put: Put, directory_fd: int, name: bytes) -> None:
        with lower_attributes.held(directory_fd, name) as (where, _):
            lower_attributes.give(where, put.attributes, self._owner, -1)

    def _link(self, first: bytes, directory_fd: int, name: bytes) -> None:
        parent, slash, first_name = first.rpartition(b"/")
        fd = directory_beneath(self.fd, parent) if slash else os.dup(self.fd)
        try:
            os.link(first_name, name, src_dir_fd=fd, dst_dir_fd=directory_fd, follow_symlinks=False)
        finally:
            os.close(fd)


def _failed(put: Put, exc: OSError) -> Refusal:
    return Refusal(
        exc.errno or errno.EIO,
        "commit-failed",
        f"{os.fsdecode(put.path)!r} could not be written: {exc.strerror}",
        "nothing was changed",
    )
