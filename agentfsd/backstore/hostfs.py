"""Content objects as files of a directory, named by number. They outlive the daemon.

It knows nothing of branches or names, and leaves it to the state directory's lock that nobody else writes here.
"""

import contextlib
import errno
import itertools
import os
import stat
import threading
from collections.abc import Iterator

from agentfs_host import syncing, syscalls
from agentfs_host.copying import copy_content, copy_part, reflink_error, touch_atime, write_all
from agentfsd.backstore.backstore_kind import BackstoreKind, BackstoreOptions
from agentfsd.domain_errors import DamagedContent
from agentfsd.types import Aside, ContentFile

_NAME = "hostfs"
_OPEN = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
_CREATE = _OPEN | os.O_CREAT | os.O_EXCL
_UNNAMED = os.O_RDWR | os.O_CLOEXEC | os.O_TMPFILE
SET_ASIDE = "set-aside"
_TAKEN = "trusted.overlay.agentfsd"  # overlayfs hides such attributes from programs; nobody but root can set them
_MOST = (1 << 63) - 1  # of a number: what SQLite can keep
_NOT_OURS = {  # what opening something else than a regular file of ours says
    errno.ENOENT: "is missing",
    errno.ENOTDIR: "is missing: its directory is none",
    errno.ELOOP: "is a symlink",
    errno.EISDIR: "is a directory",
    errno.ENXIO: "is no regular file",
    errno.EACCES: "cannot be opened: it is not ours",
}


class HostFile:
    """An open object: a plain descriptor."""

    __slots__ = ("_fd", "_name", "_store", "is_readonly")
    stays = True

    def __init__(self, store: "HostBackstore", name: str, fd: int, *, is_readonly: bool = False) -> None:
        """*name*: "" while it has none."""
        self._store, self._name, self._fd, self.is_readonly = store, name, fd, is_readonly

    def fileno(self) -> int:
        return self._fd

    def pread(self, size: int, offset: int) -> bytes:
        return os.pread(self._fd, size, offset)

    def pwrite(self, data: bytes | memoryview, offset: int) -> int:
        return write_all(self._fd, data, offset)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def stat(self) -> os.stat_result:
        return os.fstat(self._fd)

    def utime(self, atime_ns: int, mtime_ns: int) -> None:
        os.utime(self._fd, ns=(atime_ns, mtime_ns))

    def touch_atime(self) -> bool:
        return self._store.keeps_atime and touch_atime(self._fd)

    def sync(self, data_only: bool) -> None:
        """Sync content and name, so that both survive a power failure."""
        (os.fdatasync if data_only else os.fsync)(self._fd)
        self._store.sync_names(self._name.partition("/")[0])

    def allocate(self, mode: int, offset: int, length: int) -> None:
        syscalls.allocate(self._fd, mode, offset, length)

    def give_name(self, object_id: int) -> None:
        self._name = self._store.link(self._fd, object_id)

    def copy_from(self, source_fd: int, from_offset: int, to_offset: int, length: int) -> int:
        return copy_part(source_fd, self._fd, from_offset, to_offset, length, share=self._store.shares)

    def start_writeback(self) -> None:
        syscalls.start_writeback(self._fd)

    def reopen(self, flags: int) -> int:
        return self._store.reopen(self._name, flags)

    def is_open_elsewhere(self) -> bool:
        return syncing.is_open_elsewhere(self._fd)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class HostBackstore:
    """See types.Backstore. Objects lie in 256 directories (shards) by the low byte of their number, all in hexadecimal."""

    persistent = True

    def __init__(self, root: str, *, kind: str = _NAME, native_snapshots: bool = True) -> None:
        """Create *root* when it is missing. Without *native_snapshots* no blocks are shared, though the file system could."""
        self.kind, self.place, self.shares = kind, root, native_snapshots
        os.makedirs(root, mode=0o700, exist_ok=True)
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._owners = {os.geteuid(), os.fstat(self._root).st_uid}  # the latter where new files belong to somebody else (NFS)
        self.keeps_atime = not os.fstatvfs(self._root).f_flag & os.ST_NOATIME
        self._has_unnamed = _has_unnamed_files(self._root)
        self.native_snapshots = "reflink" if native_snapshots and not reflink_error(root) else "none"
        self._no_reflink: set[int] | None = set() if native_snapshots else None
        self.reader_root = (
            self.writer_root
        ) = -1  # the same directory as given-away descriptors see it: see readonly_mounts.py; not ours to close
        self._synced: set[str] = set()  # shards ("" the root) all of whose names are known to be on the disk
        self._syncing = threading.Lock()

    def close(self) -> None:
        fd, self._root = self._root, -1
        if fd >= 0:
            os.close(fd)

    def create(self, object_id: int) -> ContentFile:
        shard = _shard(object_id)
        fd = self._open_in(shard, _name(object_id), _CREATE)
        self._synced.discard(shard)
        return HostFile(self, _name(object_id), fd)

    def create_unnamed(self) -> ContentFile:
        if not self._has_unnamed:
            raise OSError(errno.EOPNOTSUPP, "the file system of the state directory has no files without names")
        return HostFile(self, "", self._open(".", _UNNAMED))

    def open(self, object_id: int) -> ContentFile:
        """Open an object.

        It is open for reading only while a given-out descriptor has a read lease on it, since the open would take 45 s, and if a
        file that take() has made an object may not be written.
        """
        name, is_readonly = _name(object_id), False
        for flags in (_OPEN, _READ):
            try:
                fd = self._open(name, flags | os.O_NONBLOCK)
            except (BlockingIOError, PermissionError) as exc:
                if flags == _READ and isinstance(exc, PermissionError):
                    raise self._damaged(name, exc) from None
                is_readonly = isinstance(exc, PermissionError)
                continue
            except OSError as exc:
                raise self._damaged(name, exc) from None
            return HostFile(self, name, self._checked(name, fd), is_readonly=is_readonly)
        return HostFile(self, name, self._open(name, _OPEN))

    def _checked(self, name: str, fd: int) -> int:
        status = os.fstat(fd)
        if self._is_ours(status, fd):
            return fd
        os.close(fd)
        raise self._odd(name, status)

    def _odd(self, name: str, status: os.stat_result) -> DamagedContent:
        problem = f"belongs to user {status.st_uid}" if stat.S_ISREG(status.st_mode) else "is no regular file"
        return DamagedContent(f"{self.place}/{name} {problem}")

    def _damaged(self, name: str, exc: OSError) -> OSError:
        problem = _NOT_OURS.get(exc.errno or 0)
        return DamagedContent(f"{self.place}/{name} {problem}") if problem is not None else exc

    def stat(self, object_id: int) -> os.stat_result:
        name = _name(object_id)
        try:
            status = os.stat(name, dir_fd=self._root, follow_symlinks=False)
        except OSError as exc:
            raise self._damaged(name, exc) from None
        if self._is_ours(status, name):
            return status
        raise self._odd(name, status)

    def _is_ours(self, status: os.stat_result, where: int | str) -> bool:
        """Return whether a file is an object of ours; *where* is its descriptor or name."""
        if not stat.S_ISREG(status.st_mode):
            return False
        return status.st_uid in self._owners or _is_taken(where if isinstance(where, int) else self._path(where))

    def _path(self, name: str) -> str:
        """Return a path for calls that take no directory descriptor and do not follow its last name."""
        return f"/proc/self/fd/{self._root}/{name}"

    def clone(self, source_fd: int, object_id: int, max_copy_bytes: int | None = None) -> ContentFile:
        """The object gets its name when it is complete; a daemon killed before leaves nothing.

        Where files without a name are unknown (NFS, FUSE, FAT) it has its name from the start.
        """
        if not self._has_unnamed:
            return self._clone_named(source_fd, object_id, max_copy_bytes)
        shard = _shard(object_id)
        fd = self._open_in(shard, shard, _UNNAMED)
        try:
            copy_content(source_fd, fd, self._no_reflink, max_copy_bytes)
            name = self.link(fd, object_id)
        except BaseException:
            os.close(fd)
            raise
        return HostFile(self, name, fd)

    def link(self, fd: int, object_id: int) -> str:
        """Give unnamed content the name of an object, and return that name."""
        shard, name = _shard(object_id), _name(object_id)
        try:
            os.link(f"/proc/self/fd/{fd}", name, dst_dir_fd=self._root)
        except FileNotFoundError:
            self._make_shard(shard)
            os.link(f"/proc/self/fd/{fd}", name, dst_dir_fd=self._root)
        self._synced.discard(shard)
        return name

    def take(self, directory: int, name: bytes, object_id: int) -> os.stat_result:
        """See types.Backstore."""
        shard, own = _shard(object_id), _name(object_id)
        try:
            os.link(name, own, src_dir_fd=directory, dst_dir_fd=self._root, follow_symlinks=False)
        except FileNotFoundError:
            self._make_shard(shard)
            os.link(name, own, src_dir_fd=directory, dst_dir_fd=self._root, follow_symlinks=False)
        self._synced.discard(shard)
        try:
            if os.geteuid() == 0:  # its programs may give the file to any user, at any time
                os.setxattr(self._path(own), _TAKEN, b"y", follow_symlinks=False)
            status = os.stat(own, dir_fd=self._root, follow_symlinks=False)
            if not stat.S_ISREG(status.st_mode):  # another process has replaced it meanwhile
                raise FileNotFoundError(errno.ENOENT, "the file has been replaced")
        except OSError:
            os.unlink(own, dir_fd=self._root)
            raise
        return status

    def share(self, object_id: int, new_id: int) -> bool:
        """Both numbers are hard links. False where there are none (FAT), or too many, or the new number's shard is missing."""
        try:
            self.stat(object_id)
            os.link(_name(object_id), _name(new_id), src_dir_fd=self._root, dst_dir_fd=self._root, follow_symlinks=False)
        except FileExistsError:
            raise
        except OSError:
            return False
        self._synced.discard(_shard(new_id))
        return True

    def reopen(self, name: str, flags: int) -> int:
        """See ContentFile.reopen."""
        writes = flags & os.O_ACCMODE != os.O_RDONLY
        root = self.writer_root if writes else self.reader_root
        if root < 0 or not name:
            raise PermissionError(errno.EPERM, "it cannot be given away here")
        return os.open(name, flags & ~(os.O_CREAT | os.O_EXCL | os.O_TRUNC) | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=root)

    def _clone_named(self, source_fd: int, object_id: int, max_copy_bytes: int | None) -> ContentFile:
        clone = self.create(object_id)
        try:
            copy_content(source_fd, clone.fileno(), self._no_reflink, max_copy_bytes)
        except BaseException:
            clone.close()
            self.remove(object_id)
            raise
        return clone

    def remove(self, object_id: int) -> None:
        try:
            os.unlink(_name(object_id), dir_fd=self._root)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except IsADirectoryError:
            self.set_aside(object_id)

    def _open(self, path: str, flags: int) -> int:
        """Open without updating access times, where that is permitted."""
        try:
            return os.open(path, flags | os.O_NOATIME, 0o600, dir_fd=self._root)
        except PermissionError as exc:
            if exc.errno != errno.EPERM:
                raise
            # Where new files belong to somebody else (NFS, FAT) O_CREAT refuses after it has made the file.
            return os.open(path, flags & ~os.O_EXCL, 0o600, dir_fd=self._root)

    def _open_in(self, shard: str, path: str, flags: int) -> int:
        """Open a file in a shard, and create the shard when it is missing."""
        try:
            return self._open(path, flags)
        except FileNotFoundError:
            pass
        self._make_shard(shard)
        return self._open(path, flags)

    def _make_shard(self, shard: str) -> None:
        try:
            os.mkdir(shard, 0o700, dir_fd=self._root)
        except FileExistsError:
            pass
        self._synced.discard("")

    def sync_names(self, shard: str) -> None:
        """Sync the directory of a shard, and the root's, where a name may be new: fsync of a file does not cover its name."""
        with self._syncing:
            for path in ("", shard):
                if path in self._synced:
                    continue
                self._synced.add(path)  # before: a name that comes during the fsync takes it out again
                try:
                    syncing.sync_directory(path or ".", self._root)
                except BaseException:
                    self._synced.discard(path)
                    raise

    def ids(self) -> Iterator[int]:
        """Yield the number of each object; foreign names (``lost+found``) are skipped."""
        for shard, _ in sorted(self._list(".")):
            if len(shard) != 2:
                continue
            for name, is_regular in self._list(shard):
                number = _number(shard, name)
                if number is not None and is_regular:
                    yield number

    def _list(self, path: str) -> list[tuple[str, bool]]:
        """(name, whether it is a regular file). Opened anew each time: btrfs shows an older descriptor only the names from before
        it was opened."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=self._root)
        except (FileNotFoundError, NotADirectoryError):
            return []
        try:
            with os.scandir(fd) as found:
                return [(entry.name, entry.is_file(follow_symlinks=False)) for entry in found]
        finally:
            os.close(fd)

    # -- what nobody can explain

    def set_aside(self, object_id: int) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkdir(SET_ASIDE, 0o700, dir_fd=self._root)
        taken = {name for name, _ in self._list(SET_ASIDE)}
        name = next(name for name in _names_aside(object_id) if name not in taken)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.rename(_name(object_id), f"{SET_ASIDE}/{name}", src_dir_fd=self._root, dst_dir_fd=self._root)

    def aside(self) -> list[Aside]:
        set_aside = []
        for name, _ in self._list(SET_ASIDE):
            there = os.stat(f"{SET_ASIDE}/{name}", dir_fd=self._root, follow_symlinks=False)
            number = int(name.partition(".")[0], 16)
            set_aside.append(Aside(f"{self.place}/{SET_ASIDE}/{name}", number, there.st_size, there.st_mtime_ns))
        return sorted(set_aside)

    def take_back(self, object_id: int) -> bool:
        kept = [name for name, is_regular in self._list(SET_ASIDE) if is_regular]
        names = [name for name in kept if name.partition(".")[0] == f"{object_id:x}"]
        if not names:
            return False
        self._make_shard(_shard(object_id))
        try:
            os.link(f"{SET_ASIDE}/{max(names, key=len)}", _name(object_id), src_dir_fd=self._root, dst_dir_fd=self._root)
        except FileExistsError:
            return False
        os.unlink(f"{SET_ASIDE}/{max(names, key=len)}", dir_fd=self._root)
        return True

    def discard_aside(self) -> None:
        for name, _ in self._list(SET_ASIDE):
            with contextlib.suppress(IsADirectoryError):  # whoever put that there removes it
                os.unlink(f"{SET_ASIDE}/{name}", dir_fd=self._root)

    def statvfs(self) -> os.statvfs_result:
        return os.fstatvfs(self._root)

    def usage(self) -> dict[str, int]:
        """Walk all objects. Shared blocks count in full; holes do not count."""
        objects = blocks = 0
        for number in self.ids():
            try:
                blocks += self.stat(number).st_blocks
            except DamagedContent:
                continue
            objects += 1
        return {"objects": objects, "bytes": blocks * 512}


def _is_taken(where: int | str) -> bool:
    """Return whether take() has made an object of another user's file."""
    try:
        return os.getxattr(where, _TAKEN, follow_symlinks=isinstance(where, int)) == b"y"
    except OSError:
        return False


def _shard(object_id: int) -> str:
    return f"{object_id & 0xFF:02x}"


def _name(object_id: int) -> str:
    return f"{object_id & 0xFF:02x}/{object_id:x}"


def _names_aside(object_id: int) -> Iterator[str]:
    yield f"{object_id:x}"
    yield from (f"{object_id:x}.{count}" for count in itertools.count(1))


def _number(shard: str, name: str) -> int | None:
    try:
        number = int(name, 16)
    except ValueError:
        return None
    return number if number <= _MOST and _name(number) == f"{shard}/{name}" else None


def _has_unnamed_files(root_fd: int) -> bool:
    try:
        os.close(os.open(".", _UNNAMED, 0o600, dir_fd=root_fd))
    except OSError:
        return False
    return True


def _opened(options: BackstoreOptions) -> HostBackstore:
    return HostBackstore(options.objects, native_snapshots=options.shares)


KIND = BackstoreKind(_NAME, "files in the state directory", _opened, keeps_branches=True)
