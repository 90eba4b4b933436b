"""Make a directory equal to a source: write only what differs, and remove what the source does not have.

The target may be new, or a branch that already shows something. All work happens beneath one descriptor, and no symlink of the
target is followed, whatever the source says.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator

from agentfs_files.trees.directory_tree import CHUNK, read_xattrs
from agentfs_files.trees.tree_source import Chunks, Step, TreeEntry, TreeSource
from agentfs_host.descent import Descent, join
from agentfs_host.extents import extents

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NOT_PERMITTED = (errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.EINVAL)


def make_equal(
    target: str | bytes,
    source: TreeSource,
    step: Step = lambda done, total: None,
    total: int = 0,
    keep: Callable[[bytes], bool] = lambda path: False,
) -> list[str]:
    """Make a directory equal to a source. Return what could not be set for lack of permission, each with its path.

    Paths for which *keep* is true are neither removed nor written. An error leaves the target half done, so pass a target that is
    not in use yet.
    """
    fd = os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    writer = _Writer(fd, source, keep)
    try:
        for done, _ in enumerate(writer.run()):
            step(done, total)
    finally:
        writer.close()
        os.close(fd)
    return writer.lacking


class _Writer:
    def __init__(self, root_fd: int, source: TreeSource, keep: Callable[[bytes], bool]) -> None:
        self._way, self._source, self._keep = Descent(root_fd), source, keep
        self._groups: dict[int, bytes] = {}  # group -> its first name, which exists
        self._claimed: dict[int, bytes] = {}  # inode with several names -> the name that keeps the inode
        self.lacking: list[str] = []

    def close(self) -> None:
        self._way.close()

    def run(self) -> Iterator[None]:
        """Write one entry per step. A directory's attributes are set last, because changes inside it alter its times."""
        stack = [(root := self._source.root(), self._enter(root, is_new=False))]
        while stack:
            directory, children = stack[-1]
            entry = next(children, None)
            if entry is None:
                stack.pop()
                self._settle(directory, is_new=False)
            elif entry.settled:
                continue
            elif entry.is_dir:
                stack.append((entry, self._enter(entry, self._make_directory(entry))))
            else:
                self._put(entry)
            yield

    # -- directories

    def _make_directory(self, entry: TreeEntry) -> bool:
        """Create a directory. Return False if it existed."""
        info = self._look(entry)
        if info is not None and stat.S_ISDIR(info.st_mode):
            return False
        if info is not None:
            self._remove(entry)
        os.mkdir(entry.name, stat.S_IMODE(entry.mode) if entry.loose else 0o700, dir_fd=self._way.fd(entry.parent))
        return True

    def _enter(self, entry: TreeEntry, is_new: bool) -> Iterator[TreeEntry]:
        children = []
        for child in self._source.children(entry):
            if self._keep(child.path):
                self._lacks(child, "it is left out: what is there under that name is not to be touched")
            else:
                children.append(child)
        if not is_new:
            fd = self._way.fd(entry.path)
            _may_change(fd)
            wanted = {child.name for child in children}
            for name in (os.fsencode(name) for name in os.listdir(fd)):
                if name not in wanted:
                    _remove_at(fd, join(entry.path, name), self._keep)
        return iter(children)

    # -- other entries

    def _put(self, entry: TreeEntry) -> None:
        info = self._look(entry)
        if entry.group and self._join_group(entry, info):
            return
        if info is not None and not self._usable(entry, info):
            self._remove(entry)
            info = None
        if entry.is_file:
            self._put_file(entry, info)
        elif entry.is_link:
            self._put_symlink(entry, info)
        elif info is None and not self._make_special(entry):
            return
        self._settle(entry, is_new=info is None)
        if entry.group:
            self._groups[entry.group] = entry.path

    def _join_group(self, entry: TreeEntry, info: os.stat_result | None) -> bool:
        """Make an entry another name of a file that is in place. Return False if the entry is the first of its group."""
        first = self._groups.get(entry.group)
        if first is None:
            return False
        there = os.lstat(self._way.where(first))
        if info is not None and (info.st_dev, info.st_ino) == (there.st_dev, there.st_ino):
            return True
        if info is not None:
            self._remove(entry)
        directory, _, name = first.rpartition(b"/")
        fd = os.dup(self._way.fd(directory))
        try:
            os.link(name, entry.name, src_dir_fd=fd, dst_dir_fd=self._way.fd(entry.parent), follow_symlinks=False)
        finally:
            os.close(fd)
        return True

    def _usable(self, entry: TreeEntry, info: os.stat_result) -> bool:
        """Tell whether an existing file may stay and be changed: it has the right type, and no other name needs it."""
        if stat.S_IFMT(info.st_mode) != stat.S_IFMT(entry.mode):
            return False
        if info.st_nlink > 1 and not entry.loose:
            return bool(entry.group) and self._claimed.setdefault(info.st_ino, entry.path) == entry.path
        return entry.is_file or entry.is_link or info.st_rdev == entry.rdev

    def _put_file(self, entry: TreeEntry, info: os.stat_result | None) -> None:
        fd = self._way.fd(entry.parent)
        if info is not None and info.st_size == entry.size and self._has_content(fd, entry, info):
            return
        mode = stat.S_IMODE(entry.mode if info is None else info.st_mode) if entry.loose else 0o600
        if info is not None and info.st_nlink > 1:
            os.unlink(entry.name, dir_fd=fd)  # its other names may have to stay unchanged
            info = None
        if info is None:
            flags = os.O_CREAT | os.O_EXCL
        else:
            flags = os.O_TRUNC
            _may_write(self._way.where(entry.path), info)
        file = os.open(entry.name, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, mode, dir_fd=fd)
        try:
            _fill(file, self._source.chunks(entry), entry.size)
        finally:
            os.close(file)

    def _has_content(self, dir_fd: int, entry: TreeEntry, info: os.stat_result) -> bool:
        """Tell whether the content is equal. Trust an equal time with fractions of a second; build tools set whole seconds, so
        then compare the data.
        """
        if entry.mtime_ns == info.st_mtime_ns and info.st_mtime_ns % 1_000_000_000:
            return True
        _may_write(self._way.where(entry.path), info)
        file = os.open(entry.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)
        try:
            return _holds(file, entry.size, self._source.chunks(entry))
        finally:
            os.close(file)

    def _put_symlink(self, entry: TreeEntry, info: os.stat_result | None) -> None:
        fd = self._way.fd(entry.parent)
        if info is not None:
            if os.readlink(self._way.where(entry.path)) == entry.target:
                return
            os.unlink(entry.name, dir_fd=fd)
        os.symlink(entry.target, entry.name, dir_fd=fd)

    def _make_special(self, entry: TreeEntry) -> bool:
        try:
            os.mknod(entry.name, stat.S_IFMT(entry.mode) | 0o600, entry.rdev, dir_fd=self._way.fd(entry.parent))
        except PermissionError:
            self._lacks(entry, "it is a device, and making one is not permitted")
            return False
        return True

    # -- attributes

    def _settle(self, entry: TreeEntry, is_new: bool) -> None:
        """Set owner, xattrs, mode and times, in this order, since a new owner clears setuid bits and capabilities."""
        where = self._way.where(entry.path)
        info = os.lstat(where)
        self._give_owner(entry, where, info)
        if entry.xattrs is not None:
            self._give_xattrs(entry, where, info)
        info = os.lstat(where)
        mode = _permissions(entry, info, is_new)
        if not entry.is_link and stat.S_IMODE(info.st_mode) != mode:
            self._give_mode(entry, where, mode)
        if entry.mtime_ns is not None and info.st_mtime_ns != entry.mtime_ns:
            os.utime(where, ns=(info.st_atime_ns, entry.mtime_ns), follow_symlinks=False)

    def _give_owner(self, entry: TreeEntry, where: bytes, info: os.stat_result) -> None:
        uid, gid = entry.uid, entry.gid
        if uid is None or gid is None or (uid, gid) == (info.st_uid, info.st_gid):
            return
        try:
            os.chown(where, uid, gid, follow_symlinks=False)
        except OSError as exc:
            if exc.errno not in _NOT_PERMITTED:
                raise
            self._lacks(entry, f"it belongs to {uid}:{gid}, and giving it away is not permitted")

    def _give_mode(self, entry: TreeEntry, where: bytes, mode: int) -> None:
        try:
            os.chmod(where, mode)
        except OSError as exc:
            if exc.errno not in _NOT_PERMITTED:
                raise
            self._lacks(entry, f"its mode {mode:o} cannot be set here")

    def _give_xattrs(self, entry: TreeEntry, where: bytes, info: os.stat_result) -> None:
        wanted, present = entry.xattrs or {}, read_xattrs(where)
        if wanted == present:
            return
        if not entry.is_link:
            _may_write(where, info)
        for name in sorted(wanted.keys() | present.keys()):
            try:
                if name not in wanted:
                    os.removexattr(where, name, follow_symlinks=False)
                elif wanted[name] != present.get(name):
                    os.setxattr(where, name, wanted[name], follow_symlinks=False)
            except OSError as exc:
                if exc.errno not in _NOT_PERMITTED:
                    raise
                self._lacks(entry, f"its attribute {name} cannot be set here")

    def _lacks(self, entry: TreeEntry, feature: str) -> None:
        self.lacking.append(f"{entry.path.decode('utf-8', 'surrogateescape')}: {feature}")

    # -- looking and removing

    def _look(self, entry: TreeEntry) -> os.stat_result | None:
        try:
            return os.lstat(self._way.where(entry.path))
        except FileNotFoundError:
            return None

    def _remove(self, entry: TreeEntry) -> None:
        _remove_at(self._way.fd(entry.parent), entry.path, self._keep)


def _remove_at(dir_fd: int, path: bytes, keep: Callable[[bytes], bool]) -> None:
    """Remove a tree, but not paths that *keep* selects, nor the directories above them. *path* is the path to pass to *keep*; its
    last name is in *dir_fd*.
    """
    name = path.rpartition(b"/")[2]
    if keep(path):
        return
    if not stat.S_ISDIR(os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=dir_fd)
        return
    fd = os.open(name, _DIRECTORY, dir_fd=dir_fd)
    try:
        _may_change(fd)
        for inner in (os.fsencode(inner) for inner in os.listdir(fd)):
            _remove_at(fd, join(path, inner), keep)
        is_empty = not os.listdir(fd)
    finally:
        os.close(fd)
    if is_empty:
        os.rmdir(name, dir_fd=dir_fd)


def _permissions(entry: TreeEntry, info: os.stat_result, is_new: bool) -> int:
    if not entry.loose:
        return stat.S_IMODE(entry.mode)
    mode = stat.S_IMODE(info.st_mode)
    if is_new or entry.is_dir or bool(mode & 0o100) == bool(entry.mode & 0o100):
        return mode
    readers = (mode & 0o444) >> 2
    return mode | readers if entry.mode & 0o100 else mode & ~0o111


def _may_change(dir_fd: int) -> None:
    """Let the owner change a directory. Its mode is set later."""
    mode = os.fstat(dir_fd).st_mode
    if mode & 0o700 != 0o700 and os.geteuid() != 0:
        os.fchmod(dir_fd, stat.S_IMODE(mode) | 0o700)


def _may_write(where: bytes, info: os.stat_result) -> None:
    if info.st_mode & 0o600 != 0o600 and os.geteuid() != 0:
        os.chmod(where, stat.S_IMODE(info.st_mode) | 0o600)


def _fill(fd: int, chunks: Chunks, size: int) -> None:
    for offset, data in chunks:
        view = memoryview(data)
        while view:
            done = os.pwrite(fd, view, offset)
            view, offset = view[done:], offset + done
    os.ftruncate(fd, size)


def _holds(fd: int, size: int, chunks: Chunks) -> bool:
    """Tell whether a file of *size* bytes has this content."""
    position = 0
    for offset, data in chunks:
        if not _is_zero(fd, position, offset) or os.pread(fd, len(data), offset) != data:
            return False
        position = offset + len(data)
    return _is_zero(fd, position, size)


def _is_zero(fd: int, start: int, end: int) -> bool:
    for data_start, data_end in extents(fd, start, end):
        for offset in range(data_start, data_end, CHUNK):
            data = os.pread(fd, min(CHUNK, data_end - offset), offset)
            if data.count(0) != len(data):
                return False
    return True
