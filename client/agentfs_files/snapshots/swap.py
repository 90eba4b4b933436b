"""The second half of a restore: exchange names of the root with the prepared files, and exchange them back if one fails.

If the file system can exchange two names, a reader always finds the old or the new file under a name.
"""

import errno
import os
import stat
import uuid
from collections.abc import Callable
from functools import partial

from agentfs_files.filesystem.filesystem_errors import SnapshotRestoreError
from agentfs_files.snapshots.kept_attributes import settle
from agentfs_files.snapshots.restore_plan import RestorePlan
from agentfs_files.snapshots.snapshot_tree import SnapshotEntry, named
from agentfs_host import syscalls
from agentfs_host.descent import Descent
from agentfs_host.tree_removal import remove_at

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_EXCHANGE = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)


class HalfDoneError(SnapshotRestoreError):
    """The root is neither in the old nor in the new state. The originals are still in the stage."""


class Stage:
    """A directory on the root's own mount, outside the root if possible. It is created at the first use.

    It holds the new files under numbers, and after the swap the originals.
    """

    def __init__(self, beneath: Descent, home: str) -> None:
        self._beneath, self._home = beneath, home
        self._directory = f".agentfs-restore-{uuid.uuid4().hex[:12]}"
        self._parent = self._made = -1
        self._is_in_root = False
        self._names: dict[bytes, bytes] = {}

    @property
    def fd(self) -> int:
        if self._made < 0:
            self._parent = self._find_place()
            os.mkdir(self._directory, 0o700, dir_fd=self._parent)
            self._made = os.open(self._directory, _DIRECTORY, dir_fd=self._parent)
        return self._made

    @property
    def is_in_root(self) -> bool:
        return self._is_in_root

    def name(self, path: bytes) -> bytes:
        """Return the name in the stage for a path of the root."""
        return self._names.setdefault(path, b"%d" % len(self._names))

    def where(self) -> str:
        return os.path.join(os.readlink(f"/proc/self/fd/{self._parent}"), self._directory)

    def remove(self) -> None:
        """Delete the stage. Raises SnapshotRestoreError if something in it cannot be deleted."""
        if self._made < 0:
            return
        try:
            remove_at(self._parent, os.fsencode(self._directory))
        except OSError as exc:
            raise SnapshotRestoreError(f"what was there before could not be removed from {self.where()}: {exc}") from exc
        finally:
            os.close(self._made)
            os.close(self._parent)
            self._made = -1

    def _find_place(self) -> int:
        root = self._beneath.fd(b"")
        home = os.open(self._home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        if os.fstat(root).st_dev == os.fstat(home).st_dev and _mount_number(root) == _mount_number(home):
            return home
        os.close(home)
        self._is_in_root = True
        return os.dup(root)


def _mount_number(fd: int) -> bytes:
    with open(f"/proc/self/fdinfo/{fd}", "rb") as lines:
        return next(line for line in lines if line.startswith(b"mnt_id:"))


def swap(
    beneath: Descent, stage: Stage, plan: RestorePlan, present: dict[bytes, SnapshotEntry], wanted: dict[bytes, SnapshotEntry]
) -> None:
    """Make all changes of a plan, or undo them after an error. Raises HalfDoneError if undoing fails as well."""
    swapping = _Swap(beneath, stage, present)
    touched = plan.touched()
    try:
        for path in sorted(touched):
            swapping.note(path)
        for path in plan.remove:
            swapping.take_away(path)
        for path in plan.replace:
            swapping.put(wanted[path])
        for entry, there in plan.adjust:
            if not entry.is_dir:
                swapping.adjust(entry, there)
        directories = touched | {entry.path for entry, _ in plan.adjust if entry.is_dir}
        for path in sorted(directories, reverse=True):  # children before parents
            swapping.adjust(wanted[path], present[path])
    except BaseException as exc:
        swapping.undo(exc)
        raise


class _Swap:
    def __init__(self, beneath: Descent, stage: Stage, present: dict[bytes, SnapshotEntry]) -> None:
        self._beneath, self._stage, self._present = beneath, stage, present
        self._opened: set[bytes] = set()
        self._undo: list[tuple[bytes, Callable[[], None]]] = []

    def note(self, directory: bytes) -> None:
        """Restore the directory's attributes at the end of an undo, because changing its names changes its times."""
        self._undo.append((directory, partial(self._settle, self._present[directory])))

    def take_away(self, path: bytes) -> None:
        self._permit(path)
        self._note_directory(path)
        try:
            self._move_out(path)
        except FileNotFoundError:  # somebody else removed it
            return
        self._undo.append((path, partial(self._move_in, path)))

    def put(self, entry: SnapshotEntry) -> None:
        path = entry.path
        self._permit(path)
        self._note_directory(path)
        if entry.is_dir and os.geteuid() != 0:
            os.chmod(self._stage.name(path), 0o700, dir_fd=self._stage.fd)  # otherwise it could not be moved
        if not self._put_in_exchange(path):
            self._move_in(path)
            self._undo.append((path, partial(self._move_out, path)))
        if entry.is_dir:
            self._settle(entry)

    def _put_in_exchange(self, path: bytes) -> bool:
        """Exchange a file with the original. Return False if there is no original any more."""
        if path not in self._present:
            return False
        try:
            self._exchange(path)
        except FileNotFoundError:
            return False
        self._undo.append((path, partial(self._exchange, path)))
        return True

    def _note_directory(self, path: bytes) -> None:
        """Note a directory that moves, because on xfs moving it changes its times."""
        there = self._present.get(path)
        if there is not None and there.is_dir:
            self.note(path)

    def adjust(self, entry: SnapshotEntry, there: SnapshotEntry) -> None:
        self._undo.append((entry.path, partial(self._settle, there)))
        self._settle(entry)

    def undo(self, cause: BaseException) -> None:
        failures = []
        for path, step in reversed(self._undo):
            try:
                step()
            except OSError as exc:
                failures.append(f"{os.fsdecode(path) or '.'} ({exc.strerror})")
        if failures:
            raise HalfDoneError(
                f"{cause}; and these could not be put back as they were: {', '.join(failures)}; "
                f"the originals are in {self._stage.where()}"
            ) from cause

    # -- names

    def _move_out(self, path: bytes) -> None:
        stage = self._stage.fd  # get this first: creating the stage opens another directory, and only the last one stays open
        directory, name = self._split(path)
        self._rename(directory, name, stage, self._stage.name(path), 0, path)

    def _move_in(self, path: bytes) -> None:
        directory, name = self._split(path)
        self._rename(self._stage.fd, self._stage.name(path), directory, name, 0, path)

    def _exchange(self, path: bytes) -> None:
        directory, name = self._split(path)
        staged = self._stage.name(path)
        try:
            self._rename(self._stage.fd, staged, directory, name, syscalls.EXCHANGE, path)
        except OSError as exc:
            if exc.errno not in _NO_EXCHANGE:
                raise
            self._exchange_in_steps(path, directory, name, staged)

    def _exchange_in_steps(self, path: bytes, directory: int, name: bytes, staged: bytes) -> None:
        aside = staged + b"-aside"
        self._rename(directory, name, self._stage.fd, aside, 0, path)
        try:
            self._rename(self._stage.fd, staged, directory, name, 0, path)
        except OSError:
            self._rename(self._stage.fd, aside, directory, name, 0, path)
            raise
        self._rename(self._stage.fd, aside, self._stage.fd, staged, 0, path)

    def _rename(self, source: int, name: bytes, target: int, new_name: bytes, flags: int, path: bytes) -> None:
        try:
            syscalls.rename(source, name, target, new_name, flags)
        except OSError as exc:
            raise named(exc, path) from exc

    def _split(self, path: bytes) -> tuple[int, bytes]:
        directory, _, name = path.rpartition(b"/")
        return self._beneath.fd(directory), name

    # -- attributes

    def _settle(self, entry: SnapshotEntry) -> None:
        if entry.is_dir:
            settle(self._beneath.fd(entry.path), entry)
            return
        directory, name = self._split(entry.path)
        fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        try:
            settle(fd, entry)
        finally:
            os.close(fd)

    def _permit(self, path: bytes) -> None:
        """Let the owner move a name, which requires write permission for its directory and, if it is a directory, for itself."""
        if os.geteuid() == 0:
            return
        there = self._present.get(path)
        for directory in (path.rpartition(b"/")[0], path if there is not None and there.is_dir else None):
            if directory is None or directory in self._opened:
                continue
            self._opened.add(directory)
            entry = self._present[directory]
            if entry.mode & 0o700 != 0o700:
                self._undo.append((directory, partial(self._chmod, directory, entry.mode)))
                self._chmod(directory, entry.mode | 0o700)

    def _chmod(self, directory: bytes, mode: int) -> None:
        parent, name = self._split(directory)
        fd = os.open(name or b".", os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        try:
            os.chmod(f"/proc/self/fd/{fd}", stat.S_IMODE(mode))
        finally:
            os.close(fd)
