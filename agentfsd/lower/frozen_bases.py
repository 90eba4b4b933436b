"""Frozen bases: what the lower was at one moment, kept in the state directory for as long as a branch needs it.

A base is a directory with a clone, perhaps an index of it, and a record, which comes last: without one it is half made.
"""

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterator

import msgspec

from agentfs_host import syncing, syscalls, tree_removal
from agentfsd.backstore.free_space import free_bytes
from agentfsd.domain_errors import NO_ROOM, DamagedContent, Refusal, invalid, not_found
from agentfsd.linux import btrfs_subvolumes, mounts
from agentfsd.lower import frozen_index
from agentfsd.lower.frozen_clone import Clone
from agentfsd.lower.frozen_copy import Earlier, FrozenCopy
from agentfsd.lower.frozen_index import FrozenIndex
from agentfsd.lower.frozen_lower import FrozenLower, IndexedLower
from agentfsd.lower.frozen_survey import FrozenSurvey
from agentfsd.lower.host_lower import HostLower

RECORD, CLONE, INDEX = "base.msgpack", "tree", "index"
UNCOUNTED = -1
_ASK_EVERY = 64  # names between two questions whether to go on

Progress = Callable[[int, int], None]


class BaseRecord(msgspec.Struct, frozen=True):
    """A frozen base.

    Attributes:
        id: what its maker called it.
        made_ns: the moment of which it is, in ns since the epoch.
        way: ``snapshot`` of the file system, ``reflink`` of each file, or ``copy``.
        files: the number of names of other things than directories; UNCOUNTED for a snapshot, as are the next two.
        directories: the number of directories, without the root.
        bytes: the size of all regular files.
        copied_bytes: what had to be stored anew.
    """

    id: str
    made_ns: int
    way: str
    files: int
    directories: int
    bytes: int
    copied_bytes: int


class FrozenBases:
    """The bases in one directory. Only one process may use it, which the lock of the state directory ensures."""

    def __init__(self, directory: str, lower: HostLower) -> None:
        """Remove what a killed process has left half made. The directory need not exist.

        Raises:
            OSError: that is impossible.
        """
        self._directory, self._lower = os.path.abspath(directory), lower
        for name in self._names():
            if not os.path.lexists(os.path.join(self._directory, name, RECORD)):
                _remove(os.path.join(self._directory, name))

    def ids(self) -> list[str]:
        """Return the id of every base that was made to its end."""
        return [name for name in self._names() if os.path.lexists(os.path.join(self._directory, name, RECORD))]

    def records(self) -> list[BaseRecord]:
        """Return the records of all bases, oldest first. One that cannot be read is left out: open() says why."""
        found = []
        for name in self._names():
            with contextlib.suppress(OSError):
                found.append(self._record(name))
        return sorted(found, key=lambda record: (record.made_ns, record.id))

    def open(self, base_id: str) -> FrozenLower:
        """Open a base for reading.

        Raises:
            Missing: there is none of that id.
            DamagedContent: it is damaged.
        """
        record = self._record(base_id)
        clone = self._path(base_id, CLONE)
        try:
            if record.way == "snapshot":
                return FrozenLower(clone, self._lower)
            return IndexedLower(clone, FrozenIndex(self._path(base_id, INDEX)), self._lower)
        except DamagedContent:
            raise
        except OSError as exc:
            raise DamagedContent(f"the frozen base in {self._path(base_id)} is damaged: {exc.strerror}") from exc

    def remove(self, base_id: str) -> None:
        """Remove a base; none is no error. This may take long, so call it in a worker thread. Other bases keep their files."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path(base_id, RECORD))
        _remove(self._path(base_id))

    def freeze(
        self, base_id: str, *, progress: Progress | None = None, cancelled: Callable[[], bool] | None = None
    ) -> BaseRecord:
        """Make a base of what the lower is now. This may take minutes, so call it in a worker thread. A failure leaves nothing.

        Args:
            base_id: a name for it, which no other base has.
            progress: called now and then with the number of names that are done, and of all names.
            cancelled: asked now and then.

        Raises:
            Refusal: it is impossible; ECANCELED if *cancelled* returned True.
            OSError: it failed.
        """
        path = self._path(base_id)
        os.makedirs(self._directory, 0o700, exist_ok=True)
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            raise Refusal(errno.EEXIST, "base-exists", f"there is a frozen base {base_id!r} already") from None
        try:
            record = self._snapshot(base_id) or self._copied(base_id, _Telling(progress, cancelled))
            self._publish(path, record)
        except BaseException as exc:
            _remove(path)
            if isinstance(exc, OSError) and exc.errno in NO_ROOM and not isinstance(exc, Refusal):
                raise self._no_room() from exc
            raise
        return record

    # -- one base

    def _names(self) -> list[str]:
        try:
            return os.listdir(self._directory)
        except FileNotFoundError:
            return []

    def _path(self, base_id: str, *inside: str) -> str:
        if not base_id or base_id.startswith(".") or "/" in base_id or "\0" in base_id:
            raise invalid(f"{base_id!r} is no name for a frozen base")
        return os.path.join(self._directory, base_id, *inside)

    def _record(self, base_id: str) -> BaseRecord:
        try:
            with open(self._path(base_id, RECORD), "rb") as file:
                return msgspec.msgpack.decode(file.read(), type=BaseRecord)
        except FileNotFoundError:
            lost = f"it lay in {self._path(base_id)}: what branches have changed is kept, and shows again when it is back there"
            raise not_found("frozen base", base_id, lost) from None
        except (OSError, msgspec.DecodeError) as exc:
            raise DamagedContent(f"the record of the frozen base in {self._path(base_id)} is damaged: {exc}") from exc

    def _publish(self, path: str, record: BaseRecord) -> None:
        """Have everything on disk, then the record at its place."""
        with open(os.path.join(path, RECORD + ".new"), "xb") as file:
            file.write(msgspec.msgpack.encode(record))
        with _opened(path) as fd:
            syscalls.sync_filesystem(fd)
            os.rename(RECORD + ".new", RECORD, src_dir_fd=fd, dst_dir_fd=fd)
            os.fsync(fd)
        syncing.sync_directory(self._directory)

    def _snapshot(self, base_id: str) -> BaseRecord | None:
        """Have the file system make a snapshot of the lower; None where it cannot, or would leave something out."""
        if not self._lower.share:
            return None
        try:
            with _opened(self._lower.root_fd) as root, _opened(self._path(base_id)) as target:
                if not btrfs_subvolumes.is_root(root) or btrfs_subvolumes.has_nested(root) or self._has_mounts():
                    return None
                if not btrfs_subvolumes.can_delete(target):
                    return None
                made_ns = time.time_ns()
                btrfs_subvolumes.snapshot(root, target, CLONE.encode())
        except OSError:  # another file system, somebody else's subvolume, no room: copying says what is wrong
            return None
        return BaseRecord(base_id, made_ns, "snapshot", UNCOUNTED, UNCOUNTED, UNCOUNTED, 0)

    def _has_mounts(self) -> bool:
        """Tell whether anything is mounted beneath the lower that the lower shows."""
        mounted = mounts.mounted_beneath(self._lower.root_fd)
        return any(self._lower.held(path) is None for path in mounted)

    def _copied(self, base_id: str, telling: "_Telling") -> BaseRecord:
        clone_path = self._path(base_id, CLONE)
        os.mkdir(clone_path, 0o700)
        with _opened(clone_path) as fd, self._earlier() as earlier:
            self._write_pages()
            survey = FrozenSurvey(self._lower, fd, earlier)
            survey.look(telling.ask)
            self._check_room(fd, survey)
            telling.total = survey.names
            with contextlib.closing(Clone(fd, survey.unshared, telling.ask)) as clone:
                copy = FrozenCopy(self._lower, clone, earlier, telling.step)
                copy.run()
        frozen_index.write(self._path(base_id, INDEX), copy.root, copy.listings, copy.unlistable)
        return BaseRecord(base_id, copy.at_ns, survey.way, copy.files, len(copy.listings) - 1, copy.bytes, clone.copied_bytes)

    def _write_pages(self) -> None:
        """Have the dirty pages of the lower written all at once: sharing the blocks of a file waits for those of that file."""
        with contextlib.suppress(OSError), _opened(self._lower.root_fd) as fd:
            syscalls.sync_filesystem(fd)

    @contextlib.contextmanager
    def _earlier(self) -> Iterator[Earlier | None]:
        """Yield the newest base that has an index."""
        for record in reversed(self.records()):
            if record.way == "snapshot":
                continue
            with contextlib.ExitStack() as opened:
                try:
                    index = opened.enter_context(contextlib.closing(FrozenIndex(self._path(record.id, INDEX))))
                    fd = opened.enter_context(_opened(self._path(record.id, CLONE)))
                except OSError:  # it is damaged, or being removed
                    continue
                yield Earlier(index, fd, record.way)
                return
        yield None

    def _check_room(self, fd: int, survey: FrozenSurvey) -> None:
        status = os.fstatvfs(fd)
        free = free_bytes(status)
        if survey.needed_bytes > free:
            raise self._no_room(f": {_mebibytes(survey.needed_bytes)} are needed, {_mebibytes(free)} are free")
        if status.f_files > 0 and status.f_favail < survey.needed_files:
            raise self._no_room(f": {survey.needed_files} files are needed, {status.f_favail} more can be made")

    def _no_room(self, figures: str = "") -> Refusal:
        return Refusal(
            errno.ENOSPC, "no-room",
            f"there is no room in {self._directory} for a copy of {self._lower.description}{figures}",
            "make room there, or mount with a state directory (--state) on the file system of the real directory if that shares "
            "blocks (btrfs, XFS)",
        )  # fmt: skip


@contextlib.contextmanager
def _opened(directory: str | int) -> Iterator[int]:
    """Yield a descriptor for reading of a directory, which is named by its path or by a descriptor of any kind."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    fd = os.open(b".", flags, dir_fd=directory) if isinstance(directory, int) else os.open(directory, flags)
    try:
        yield fd
    finally:
        os.close(fd)


def _remove(path: str) -> None:
    """Remove the directory of a base; none is no error."""
    with contextlib.suppress(FileNotFoundError), _opened(path) as fd:
        btrfs_subvolumes.delete_if_any(fd, CLONE.encode())
    tree_removal.remove_tree(path)


class _Telling:
    """Tells how far it is, and ends it when it is cancelled."""

    def __init__(self, progress: Progress | None, cancelled: Callable[[], bool] | None) -> None:
        self._progress, self._cancelled = progress, cancelled
        self._done = 0
        self.total = 0

    def ask(self) -> None:
        if self._cancelled is not None and self._cancelled():
            raise Refusal(errno.ECANCELED, "cancelled", "freezing was cancelled; nothing was kept")

    def step(self) -> None:
        self._done += 1
        if self._done % _ASK_EVERY == 0:
            self.ask()
            if self._progress is not None:
                self._progress(min(self._done, self.total), self.total)


def _mebibytes(size: int) -> str:
    return f"{-(-size >> 20)} MiB" if size >= 1 << 20 else f"{size} bytes"
