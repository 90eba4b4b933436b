"""Record what a commit into the lower will do, in one file that survives the process, so that it can be finished or undone.

The file's name tells the phase of the commit. The journal does not record which steps were made: the staging directory shows
that.
"""

import errno
import os
from collections.abc import Mapping
from typing import Literal

import msgspec

from agentfs_host import syncing
from agentfsd.domain_errors import Refusal
from agentfsd.lower.commit_plan import FileAttributes, Identity

Phase = Literal["staging", "applying", "undoing", "committed", "undone"]

# staging: no name of the lower has changed. committed, undone: only the staging directory remains to be removed.
_PHASES: tuple[Phase, ...] = ("committed", "undone", "undoing", "applying", "staging")  # if two exist, the first counts
_VERSION = 1


class Times(msgspec.Struct, frozen=True, array_like=True):
    """A directory's own access and modification times in ns, and its inode number."""

    path: bytes
    ino: int
    atime_ns: int
    mtime_ns: int


class Move(msgspec.Struct, frozen=True, array_like=True):
    """One name in the lower that changes places with one name in the staging directory.

    ``ino`` is the inode number of the staged file. It is 0 if the commit only removes the path; the original is then moved to the
    staged name.

    ``size`` and ``mtime_ns`` are those of a staged regular file: somebody who writes to it after the move changes them. ``size``
    is -1 for what is no regular file, and in journals of earlier versions.

    Undoing the commit leaves what ``stays`` and had no original.
    """

    path: bytes
    staged: bytes
    ino: int
    found: Identity  # identity of the original, read while staging
    strict: bool  # whether to stop with Drifted if something else is there when it is moved
    size: int = -1
    mtime_ns: int = 0
    stays: bool = False


class AttributeChange(msgspec.Struct, frozen=True, array_like=True):
    """Attributes to set after all moves. ``old`` is None for a path that the commit creates."""

    path: bytes
    found: Identity
    strict: bool
    old: FileAttributes | None
    new: FileAttributes


class Control(msgspec.Struct, frozen=True, array_like=True):
    """The state of the lower's ``.agentfs``, which holds the staging directory, and the times of the directories that staging
    changes.
    """

    made: bool
    times: Times | None  # times of an ``.agentfs`` that existed before the commit
    root_before: Times
    root_after: Times


class Journal(msgspec.Struct, frozen=True):
    staging: bytes  # the staging directory's name
    control: Control
    note: Mapping[str, str]
    exchange: bool = True  # whether the file system supports RENAME_EXCHANGE and RENAME_NOREPLACE
    moves: list[Move] = []
    changes: list[AttributeChange] = []
    directories: list[Times] = []  # original times of the directories that contain moves and of directories that are moved
    paths: int = 0  # number of paths, including those inside new directories
    size_bytes: int = 0
    staged_ns: int = 0  # change time when all was staged, by the clock of the lower's file system; 0 if it is not known
    version: int = _VERSION


class JournalFile:
    """The only commit journal in a directory.

    Raises:
        Refusal: the journal cannot be written or read.
    """

    def __init__(self, directory: str, phase: Phase, journal: Journal) -> None:
        self._directory, self.phase, self.journal = directory, phase, journal

    @property
    def path(self) -> str:
        return _path(self._directory, self.phase)

    @staticmethod
    def create(directory: str, journal: Journal) -> "JournalFile":
        _write(directory, "staging", journal)
        return JournalFile(directory, "staging", journal)

    def staged(self, journal: Journal) -> None:
        """Record that everything is staged and on disk. From now on the commit can be finished."""
        _write(self._directory, "applying", journal)
        os.unlink(_path(self._directory, "staging"))
        self.phase, self.journal = "applying", journal

    def enter(self, phase: Phase) -> None:
        """Record the next phase. When this returns, the record survives a power failure."""
        os.rename(_path(self._directory, self.phase), _path(self._directory, phase))
        self.phase = phase
        syncing.sync_directory(self._directory)

    def remove(self) -> None:
        for name in ("new", *reversed(_PHASES)):  # remove the file that counts last
            try:
                os.unlink(_path(self._directory, name))
            except FileNotFoundError:
                pass


def load(directory: str) -> JournalFile | None:
    """Return the journal in *directory*, None if there is none.

    Raises:
        Refusal: the journal cannot be read.
    """
    for phase in _PHASES:
        try:
            with open(_path(directory, phase), "rb") as file:
                content = file.read()
        except FileNotFoundError:
            continue
        try:
            journal = msgspec.msgpack.decode(content, type=Journal)
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            raise _unreadable(_path(directory, phase), str(exc)) from exc
        if journal.version != _VERSION:
            raise _unreadable(_path(directory, phase), f"version {journal.version}")
        return JournalFile(directory, phase, journal)
    return None


def _unreadable(path: str, why: str) -> Refusal:
    return Refusal(errno.EIO, "bad-journal", f"the journal of a commit, {path}, cannot be read: {why}")


def _path(directory: str, phase: str) -> str:
    return os.path.join(directory, f"commit.{phase}")


def _write(directory: str, phase: Phase, journal: Journal) -> None:
    try:
        _write_new(directory, journal)
        os.rename(_path(directory, "new"), _path(directory, phase))
        syncing.sync_directory(directory)
    except OSError as exc:
        raise Refusal(
            exc.errno or errno.EIO, "journal-failed",
            f"the journal of the commit could not be written into {directory}: {exc.strerror}", "nothing was changed",
        ) from exc  # fmt: skip


def _write_new(directory: str, journal: Journal) -> None:
    fd = os.open(_path(directory, "new"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        content = memoryview(msgspec.msgpack.encode(journal))
        while content:
            content = content[os.write(fd, content) :]
        os.fsync(fd)
    except BaseException:
        os.unlink(_path(directory, "new"))
        raise
    finally:
        os.close(fd)
