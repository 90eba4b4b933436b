"""Open files of a host directory for reading, and for writing such that only a finished write has an effect."""

import errno
import fcntl
import functools
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from agentfs_files.filesystem.file_results import WriteMode
from agentfs_files.filesystem.file_streams import Sink
from agentfs_files.filesystem.virtual_paths import escapes, name_of, parent_of, refusal
from agentfs_host import xattrs
from agentfs_host.beneath import Beneath

_TEMPORARY = ".agentfs-write-"
_NO_NEW_NAMES = (errno.EACCES, errno.EPERM, errno.EROFS)
_NO_NAMELESS = (
    errno.EOPNOTSUPP,
    errno.EISDIR,
    errno.EINVAL,
    errno.ENOENT,
    errno.ENOSYS,
    errno.EPERM,
)  # different kernels and file systems use different codes
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_OWN_DESCRIPTORS = "/proc/self/fd"
_ASIDE_BYTES = 1 << 18


@contextmanager
def about(path: str) -> Iterator[None]:
    """Raise errors with the path as the caller knows it. A symlink that leads out raises PathEscapeError."""
    try:
        yield
    except OSError as exc:
        if exc.errno == errno.EXDEV:
            raise escapes(path) from None
        if exc.errno == errno.ENAMETOOLONG:  # no file can have this name, and names of new files were checked before
            raise refusal(errno.ENOENT, path) from None
        if exc.errno is None:
            raise
        raise refusal(exc.errno, path) from exc


class FileSource:
    """A source that reads a descriptor and closes it at the end. Only regular files are read: others may block, or never end."""

    def __init__(self, fd: int) -> None:
        self.size = _regular(fd).st_size
        self._file = os.fdopen(fd, "rb", buffering=0)

    def read(self, size: int) -> bytes:
        return self._file.read(size) or b""

    def seek(self, position: int) -> None:
        self._file.seek(position)

    def close(self) -> None:
        self._file.close()


def open_regular(beneath: Beneath, path: str, flags: int, permissions: int) -> int:
    """Open a file like os.open(), but only a regular file, and never block on a pipe."""
    makes = flags & os.O_CREAT or flags & os.O_TMPFILE == os.O_TMPFILE
    fd = beneath.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY, permissions=permissions if makes else 0)
    _regular(fd)
    if not flags & os.O_NONBLOCK:
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) & ~os.O_NONBLOCK)
    return fd


def _regular(fd: int) -> os.stat_result:
    """Return the stat of a descriptor. If it is not a regular file, close it and raise."""
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        os.close(fd)
        raise OSError(errno.EISDIR if stat.S_ISDIR(status.st_mode) else errno.EINVAL, "no regular file")
    return status


class NamedSink:
    """A sink whose errors name *path*."""

    def __init__(self, sink: Sink, path: str) -> None:
        self._sink, self._path = sink, path

    def write(self, data: bytes) -> None:
        with about(self._path):
            self._sink.write(data)

    def commit(self) -> None:
        with about(self._path):
            self._sink.commit()

    def discard(self) -> None:
        self._sink.discard()


def sink_for(beneath: Beneath, path: str, mode: WriteMode) -> Sink:
    """Choose how to write a path. A symlink is followed and stays."""
    where = beneath.behind(path)
    if mode == "create" and where != path:
        raise refusal(errno.EEXIST, path)
    appending = os.O_APPEND if mode == "append" else 0
    try:
        fd = beneath.open(where, os.O_WRONLY | os.O_NONBLOCK | appending, follow=False)
    except FileNotFoundError:
        return _New(beneath, where, mode)
    try:
        return _over(beneath, where, fd, mode)
    except BaseException:
        os.close(fd)
        raise


def _over(beneath: Beneath, path: str, fd: int, mode: WriteMode) -> Sink:
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise refusal(errno.EINVAL, path)
    if mode == "append":
        return _Append(fd)
    if status.st_nlink == 1:
        try:
            return _Replacement(beneath, path, fd)
        except OSError as exc:
            if exc.errno not in _NO_NEW_NAMES:
                raise
    return _InPlace(fd)


class _Beside:
    """A new file in the target's directory. It has no name if the file system supports that, so that nothing is left if this
    process is killed; else it has a temporary name.
    """

    def __init__(self, beneath: Beneath, path: str, permissions: int) -> None:
        self._name = name_of(path)
        self._temporary: str | None = None
        self._directory = beneath.open(parent_of(path), os.O_PATH | os.O_DIRECTORY)
        try:
            self._fd = self._create(permissions)
        except BaseException:
            os.close(self._directory)
            raise

    def _create(self, permissions: int) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC
        try:
            if _is_directory(_OWN_DESCRIPTORS):  # linking from there gives it a name
                return os.open(".", flags | os.O_TMPFILE, permissions, dir_fd=self._directory)
        except OSError as exc:
            if exc.errno not in _NO_NAMELESS:
                raise
        name = _TEMPORARY + os.urandom(8).hex()
        fd = os.open(name, flags | os.O_CREAT | os.O_EXCL, permissions, dir_fd=self._directory)
        self._temporary = name
        return fd

    def write(self, data: bytes) -> None:
        _write_all(self._fd, data)

    def _replace(self) -> None:
        """Give the file its name and replace whatever has that name."""
        if self._temporary is None:
            name = _TEMPORARY + os.urandom(8).hex()
            self._link(name)
            self._temporary = name
        os.rename(self._temporary, self._name, src_dir_fd=self._directory, dst_dir_fd=self._directory)
        self._temporary = None

    def _link(self, name: str) -> None:
        """Give the file a name that is free. Raises FileExistsError."""
        if self._temporary is None:
            os.link(f"{_OWN_DESCRIPTORS}/{self._fd}", name, dst_dir_fd=self._directory)
        else:
            os.link(self._temporary, name, src_dir_fd=self._directory, dst_dir_fd=self._directory)

    def discard(self) -> None:
        os.close(self._fd)
        try:
            if self._temporary is not None:
                os.unlink(self._temporary, dir_fd=self._directory)
        finally:
            os.close(self._directory)


class _New(_Beside):
    """A new file, which appears under its name when it is complete."""

    def __init__(self, beneath: Beneath, path: str, mode: WriteMode) -> None:
        super().__init__(beneath, path, 0o666)
        self._mode = mode

    def commit(self) -> None:
        try:
            self._take_name()
        except FileExistsError:  # the file did not exist when writing began
            if self._mode == "create":
                raise
            if self._mode == "append":
                self._append()
            else:
                self._replace()
        finally:
            self.discard()

    def _take_name(self) -> None:
        try:
            self._link(self._name)
        except OSError as exc:
            if exc.errno not in _NO_LINKS:
                raise
            if _exists(self._name, self._directory):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self._name) from None
            self._replace()

    def _append(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(self._name, flags, dir_fd=self._directory)
        try:
            os.lseek(self._fd, 0, os.SEEK_SET)
            _append_all(fd, iter(lambda: os.read(self._fd, _ASIDE_BYTES), b""))
        finally:
            os.close(fd)


class _Replacement(_Beside):
    """A new file that replaces an old one and takes over its attributes. It closes *old_fd* at the end, unless the constructor
    raises.

    Raises:
        PermissionError: the owner cannot be kept.
    """

    def __init__(self, beneath: Beneath, path: str, old_fd: int) -> None:
        super().__init__(beneath, path, 0o600)  # until it has the old mode, nobody else may read it
        self._old = old_fd
        old, new = os.fstat(old_fd), os.fstat(self._fd)
        try:
            if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
                os.fchown(self._fd, old.st_uid, old.st_gid)
        except BaseException:
            super().discard()
            raise

    def commit(self) -> None:
        try:
            _copy_attributes(self._old, self._fd)
            self._replace()
        finally:
            self.discard()

    def discard(self) -> None:
        os.close(self._old)
        super().discard()


class _Aside:
    """Collect the new content of a file that keeps its inode: in memory, or in a nameless file if it is large."""

    def __init__(self, fd: int) -> None:
        import tempfile

        self._fd = fd
        self._aside = tempfile.SpooledTemporaryFile(_ASIDE_BYTES)  # noqa: SIM115 - closed by commit() and discard()

    def write(self, data: bytes) -> None:
        self._aside.write(data)

    def _chunks(self) -> Iterator[bytes]:
        self._aside.seek(0)
        return iter(lambda: self._aside.read(_ASIDE_BYTES), b"")

    def discard(self) -> None:
        self._aside.close()
        os.close(self._fd)


class _InPlace(_Aside):
    """Overwrite a file in place, after allocating the space."""

    def commit(self) -> None:
        try:
            size = self._aside.seek(0, os.SEEK_END)
            _reserve(self._fd, size)
            for chunk in self._chunks():
                _write_all(self._fd, chunk)
            os.ftruncate(self._fd, size)
        finally:
            self.discard()


class _Append(_Aside):
    """Append to a file. The descriptor writes after everything that others have appended meanwhile."""

    def commit(self) -> None:
        try:
            _append_all(self._fd, self._chunks())
        finally:
            self.discard()


def _append_all(fd: int, chunks: Iterator[bytes]) -> None:
    """Append all chunks or nothing, unless somebody else writes there while the disk fills up."""
    start, done = os.fstat(fd).st_size, 0
    try:
        for chunk in chunks:
            view = memoryview(chunk)
            while view:
                count = os.write(fd, view)
                done += count
                view = view[count:]
    except OSError:
        if os.fstat(fd).st_size == start + done:
            os.ftruncate(fd, start)
        raise


def _reserve(fd: int, size: int) -> None:
    before = os.fstat(fd).st_size
    try:
        if size:
            os.posix_fallocate(fd, 0, size)
    except OSError as exc:
        if exc.errno in _NO_SPACE:
            os.ftruncate(fd, before)
            raise


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _copy_attributes(old: int, new: int) -> None:
    """Copy mode, ACL and extended attributes as far as permitted, and remove what the new file inherited."""
    xattrs.copy_permitted(old, new)
    os.fchmod(new, stat.S_IMODE(os.fstat(old).st_mode))


_is_directory = functools.cache(os.path.isdir)


def _exists(name: str, directory: int) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
