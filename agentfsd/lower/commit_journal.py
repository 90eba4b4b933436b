"""What a commit into the lower is about to do, in one file that outlives the process: enough to finish it or to undo it.

The file's name says how far the commit is. Which steps were done it does not say: that is told by what is there.
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

# staging: the lower's names are untouched. committed, undone: only the staging directory is left to remove.
_PHASES: tuple[Phase, ...] = ("committed", "undone", "undoing", "applying", "staging")  # what counts when two are there
_VERSION = 1


class Times(msgspec.Struct, frozen=True, array_like=True):
    """A directory's own times, ns, and its inode number."""

    path: bytes
    ino: int
    atime_ns: int
    mtime_ns: int


class Move(msgspec.Struct, frozen=True, array_like=True):
    """One name of the lower that changes hands with one name in the staging directory.

    ``ino`` of what was staged, 0 when the path is only removed: then the staged name stands for what comes out.
    """

    path: bytes
    staged: bytes
    ino: int
    found: Identity  # what was at the path when it was staged
    strict: bool  # anything else there at the last moment is drift


class AttributeChange(msgspec.Struct, frozen=True, array_like=True):
    """Attributes to set once all names are right. ``old`` is None for what is new."""

    path: bytes
    found: Identity
    strict: bool
    old: FileAttributes | None
    new: FileAttributes


class Control(msgspec.Struct, frozen=True, array_like=True):
    """``.agentfs`` of the lower, where the staging directory lies, and the times of the directories that this moves."""

    made: bool
    times: Times | None  # of one that was there before
    root_before: Times
    root_after: Times


class Journal(msgspec.Struct, frozen=True):
    staging: bytes  # the staging directory's name
    control: Control
    note: Mapping[str, str]
    exchange: bool = True  # whether the file system knows RENAME_EXCHANGE and RENAME_NOREPLACE
    moves: list[Move] = []
    changes: list[AttributeChange] = []
    directories: list[Times] = []  # as they were: those above the moves, and those that are moved
    paths: int = 0  # with those inside of new directories
    size_bytes: int = 0
    version: int = _VERSION


class JournalFile:
    """The one journal in a directory. Refusal when it cannot be written or read."""

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
        """All is staged and on the disk: from here on the commit can be finished."""
        _write(self._directory, "applying", journal)
        os.unlink(_path(self._directory, "staging"))
        self.phase, self.journal = "applying", journal

    def enter(self, phase: Phase) -> None:
        """Survives the loss of power when this returns."""
        os.rename(_path(self._directory, self.phase), _path(self._directory, phase))
        self.phase = phase
        syncing.sync_directory(self._directory)

    def remove(self) -> None:
        for name in ("new", *reversed(_PHASES)):  # the one that counts goes last
            try:
                os.unlink(_path(self._directory, name))
            except FileNotFoundError:
                pass


def load(directory: str) -> JournalFile | None:
    for phase in _PHASES:
        try:
            with open(_path(directory, phase), "rb") as file:
                content = file.read()
        except FileNotFoundError:
            continue
        try:
            journal = msgspec.msgpack.decode(content, type=Journal)
        except msgspec.DecodeError as exc:
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
