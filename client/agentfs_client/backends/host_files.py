"""Files of a host directory, opened: for reading, and for writing such that only a finished write has an effect."""

import errno
import os
import secrets
import shutil
import stat

from agentfs_client.filesystem.beneath import Beneath
from agentfs_client.filesystem.paths import name_of, parent_of, refusal
from agentfs_client.filesystem.results import WriteMode
from agentfs_client.filesystem.streams import Sink

_TEMPORARY = ".agentfs-write-"
_NO_NEW_NAMES = (errno.EACCES, errno.EPERM, errno.EROFS)
_NO_NAMELESS = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT, errno.ENOSYS)  # as kernels and file systems say it
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)


class FileSource:
    """A descriptor, which it closes. Only regular files are read: others may never end, or never begin."""

    def __init__(self, fd: int) -> None:
        self._file = os.fdopen(fd, "rb", buffering=0)
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            self._file.close()
            raise OSError(errno.EISDIR if stat.S_ISDIR(found.st_mode) else errno.EINVAL, "no regular file")
        self.size = found.st_size

    def read(self, size: int) -> bytes:
        return self._file.read(size) or b""

    def seek(self, position: int) -> None:
        self._file.seek(position)

    def close(self) -> None:
        self._file.close()


def sink_for(beneath: Beneath, path: str, mode: WriteMode) -> Sink:
    """How a path is best written. A symlink is followed, and stays."""
    try:
        fd = beneath.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return _New(beneath, path, mode)
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        os.close(fd)
        raise refusal(errno.EINVAL, path)
    if mode == "append":
        return _Append(fd, found.st_size)
    is_link = found.st_nlink > 1 or not _is_name_of(beneath, path, found)
    try:
        return _InPlace(fd) if is_link else _Replacement(beneath, path, fd)
    except OSError as exc:
        if exc.errno in _NO_NEW_NAMES:
            return _InPlace(fd)
        os.close(fd)
        raise


def _is_name_of(beneath: Beneath, path: str, found: os.stat_result) -> bool:
    """False where the last name is a symlink."""
    fd = beneath.open(path, os.O_PATH, follow=False)
    try:
        return os.path.samestat(os.fstat(fd), found)
    finally:
        os.close(fd)


class _Beside:
    """A new file in the directory where it is to appear: without a name where the file system knows that, so that nothing is left
    when we are killed, else under a name of its own."""

    def __init__(self, beneath: Beneath, path: str) -> None:
        self._name = name_of(path)
        self._temporary = _TEMPORARY + secrets.token_hex(8)
        self._directory = beneath.open(parent_of(path), os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._fd = self._create()
        except BaseException:
            os.close(self._directory)
            raise

    def _create(self) -> int:
        self._has_name = False
        try:
            return os.open(".", os.O_WRONLY | os.O_TMPFILE | os.O_CLOEXEC, 0o666, dir_fd=self._directory)
        except OSError as exc:
            if exc.errno not in _NO_NAMELESS:
                raise
        self._has_name = True
        return os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=self._directory)

    def write(self, data: bytes) -> None:
        _write_all(self._fd, data)

    def _replace(self) -> None:
        """Takes the name, whoever has it."""
        if not self._has_name:
            self._link(self._temporary)
            self._has_name = True
        os.rename(self._temporary, self._name, src_dir_fd=self._directory, dst_dir_fd=self._directory)
        self._has_name = False

    def _link(self, name: str) -> None:
        """Takes a name that is free. FileExistsError."""
        if self._has_name:
            os.link(self._temporary, name, src_dir_fd=self._directory, dst_dir_fd=self._directory)
        else:
            os.link(f"/proc/self/fd/{self._fd}", name, dst_dir_fd=self._directory)

    def discard(self) -> None:
        os.close(self._fd)
        try:
            if self._has_name:
                os.unlink(self._temporary, dir_fd=self._directory)
        finally:
            os.close(self._directory)


class _New(_Beside):
    """Appears under its name when it is whole."""

    def __init__(self, beneath: Beneath, path: str, mode: WriteMode) -> None:
        super().__init__(beneath, path)
        self._mode = mode

    def commit(self) -> None:
        try:
            if self._mode == "overwrite":
                self._replace()
            else:
                self._take_free_name()
        finally:
            self.discard()

    def _take_free_name(self) -> None:
        try:
            self._link(self._name)
        except OSError as exc:
            if exc.errno not in _NO_LINKS:
                raise
            if _exists(self._name, self._directory):
                raise refusal(errno.EEXIST, self._name) from None
            self._replace()


class _Replacement(_Beside):
    """Takes the place of a file, and its attributes. *old_fd* is closed in the end, unless the constructor fails."""

    def __init__(self, beneath: Beneath, path: str, old_fd: int) -> None:
        super().__init__(beneath, path)
        self._old = old_fd

    def commit(self) -> None:
        try:
            _copy_attributes(self._old, self._fd)
            self._replace()
        finally:
            self.discard()

    def discard(self) -> None:
        os.close(self._old)
        super().discard()


class _InPlace:
    """Content is kept aside in a nameless file until it is whole."""

    def __init__(self, fd: int) -> None:
        import tempfile

        self._fd = fd
        self._aside = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed by commit() and discard()

    def write(self, data: bytes) -> None:
        _write_all(self._aside.fileno(), data)

    def commit(self) -> None:
        try:
            self._aside.seek(0)
            with open(self._fd, "wb", buffering=0, closefd=False) as file:
                shutil.copyfileobj(self._aside, file)
                file.truncate()
        finally:
            self.discard()

    def discard(self) -> None:
        self._aside.close()
        os.close(self._fd)


class _Append:
    """Goes to the end at once; what is discarded is cut off again, unless somebody else has written after it."""

    def __init__(self, fd: int, size: int) -> None:
        self._fd, self._size, self._written = fd, size, 0
        os.lseek(fd, size, os.SEEK_SET)

    def write(self, data: bytes) -> None:
        _write_all(self._fd, data)
        self._written += len(data)

    def commit(self) -> None:
        os.close(self._fd)

    def discard(self) -> None:
        try:
            if os.fstat(self._fd).st_size <= self._size + self._written:
                os.ftruncate(self._fd, self._size)
        finally:
            os.close(self._fd)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _copy_attributes(old: int, new: int) -> None:
    """Owner, mode, ACL and extended attributes, as far as they may be set."""
    found = os.fstat(old)
    if (found.st_uid, found.st_gid) != (os.geteuid(), os.getegid()):
        try:
            os.fchown(new, found.st_uid, found.st_gid)
        except OSError:
            pass  # somebody else's file that we may write: it is ours now
    os.fchmod(new, stat.S_IMODE(found.st_mode))
    try:
        names = os.listxattr(old)
    except OSError:
        return
    for name in names:
        try:
            os.setxattr(new, name, os.getxattr(old, name))
        except OSError:
            pass


def _exists(name: str, directory: int) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
