"""Write a commit into the lower completely or not at all, even if the process is killed at any moment.

    stage    create everything new in LOWER/.agentfs/commit-XXXX, then sync it and a journal to disk
    apply    exchange each name with its staged file by renameat2; then set attributes and times
    clean    remove the originals, which are now in the staging directory, and the journal

This module knows neither branches nor databases. The caller supplies the steps.
"""

import errno
import os
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from agentfs_host import syscalls
from agentfsd.domain_errors import Refusal
from agentfsd.lower import commit_journal, lower_control
from agentfsd.lower.apply import Moves
from agentfsd.lower.commit_journal import AttributeChange, Control, Journal, JournalFile, Move, Phase
from agentfsd.lower.commit_plan import ABSENT, Drifted, Identity, Put, Step
from agentfsd.lower.host_lower import HostLower
from agentfsd.lower.staging import Staging
from agentfsd.lower.survey import Survey, look_at, parent_of

Progress = Callable[[int, int, int], None]  # done, total, bytes

_ASK_EVERY = 64  # steps between two progress reports


@dataclass(frozen=True, slots=True)
class Pending:
    """An unfinished commit; resume() or abort() ends it. ``note`` is what the caller gave to stage()."""

    phase: Phase
    note: Mapping[str, str]
    paths: int  # number of paths that are created, replaced or removed, including those in new directories
    adjusted: int
    size_bytes: int


class LowerCommit:
    """A staged commit, of which readers of the lower see nothing yet. Only one thread at a time may call its methods."""

    def __init__(self, lower: HostLower, file: JournalFile) -> None:
        self._lower, self._file = lower, file

    def apply(
        self, progress: Progress | None = None, *, clean: bool = True, conditions: Mapping[bytes, Identity] | None = None
    ) -> None:  # fmt: skip
        """Apply the staged commit.

        Args:
            progress: called now and then with steps done, steps in total, and bytes.
            clean: whether to remove originals and journal at the end. If false, they stay until clean(), so that the caller can
                first do work that must not be lost with them.
            conditions: what other paths must lead to just before the first name changes. Paths that must not exist, such as git's
                locks, are looked at again before the names of each directory change.

        Raises:
            Drifted: somebody else changed the lower; the commit was undone.
            Refusal: the lower cannot be written; the commit was undone.
        """
        expected = dict(conditions or {})
        if changed := self._changed(expected):
            self._back(None)
            raise Drifted(changed)
        absent = {path: identity for path, identity in expected.items() if identity == ABSENT}
        self._forward(False, progress, absent)
        if clean:
            self.clean()

    def _changed(self, expected: Mapping[bytes, Identity]) -> list[bytes]:
        return [path for path, identity in expected.items() if look_at(self._lower, path) != identity]

    def abort(self, progress: Progress | None = None) -> None:
        """Undo the commit."""
        self._back(progress)

    def end(self, forward: bool, progress: Progress | None, *, clean: bool = True) -> bool:
        """Continue from the phase that the journal records. Return True if the lower now has every step."""
        phase = self._file.phase
        if phase == "applying" and forward:
            self._forward(True, progress)
        elif phase in ("applying", "undoing"):
            self._back(progress)
            return False
        done = self._file.phase == "committed"
        if clean or not done:
            self.clean()
        return done

    def stage(self, survey: Survey, after: Control, telling: "_Telling") -> None:
        begun = self._file.journal
        fd = lower_control.make(self._lower, begun.staging)
        try:
            staging = Staging(fd, self._lower.share)
            exchange = staging.probe()
            moves, changes = _stage_tops(survey, staging, telling)
            staging.put_inside(survey.inside, telling.step)
            staging.finish()
            syscalls.sync_filesystem(fd)
            moves, staged_ns = _with_written(moves, fd), _clock(fd)
            telling.tell()
        finally:
            os.close(fd)
        self._file.staged(
            msgspec.structs.replace(
                begun, control=after, exchange=exchange, moves=moves, changes=survey.changes + changes,
                directories=survey.directories, paths=telling.done, size_bytes=telling.size_bytes, staged_ns=staged_ns,
            )
        )  # fmt: skip

    def clean(self) -> None:
        """Remove the staging directory and the journal. This is the last phase, and the only one if staging never finished."""
        journal = self._file.journal
        done = self._file.phase == "committed"
        times = journal.control.root_after if done else journal.control.root_before
        try:
            lower_control.remove(self._lower, journal.staging, journal.control, times)
        except OSError as exc:
            raise Refusal(
                exc.errno or errno.EIO, "cleaning-failed",
                f"the commit is {'done' if done else 'undone'}, but .agentfs/{os.fsdecode(journal.staging)} of the lower could "
                f"not be removed: {exc.strerror}", "agentfsd commit --resume tries again",
            ) from exc  # fmt: skip
        self._file.remove()

    def _forward(self, again: bool, progress: Progress | None, absent: Mapping[bytes, Identity] | None = None) -> None:
        journal = self._file.journal

        def check() -> None:
            if appeared := self._changed(absent or {}):
                raise Drifted(appeared)

        telling = _Telling(len(journal.moves), progress, None)
        fd = self._open_staging()
        try:
            moves = Moves(self._lower, journal, fd)
            if again:
                moves.check()
            moves.apply(again, telling.steps, check)
            syscalls.sync_filesystem(fd)
        except Drifted:
            if not again:  # else somebody decides, who asked to finish it
                self._back(None)
            raise
        except OSError as exc:
            self._back(None)
            raise _failed(exc) from exc
        finally:
            os.close(fd)
        self._lower.forget()
        self._file.enter("committed")

    def _back(self, progress: Progress | None) -> None:
        journal = self._file.journal
        telling = _Telling(len(journal.moves), progress, None)
        fd = self._open_staging()
        try:
            if self._file.phase != "undoing":
                self._file.enter("undoing")
            Moves(self._lower, journal, fd).undo(telling.steps)
            syscalls.sync_filesystem(fd)
        finally:
            os.close(fd)
        self._lower.forget()
        self._file.enter("undone")
        self.clean()

    def _open_staging(self) -> int:
        name = self._file.journal.staging
        try:
            return lower_control.open_staging(self._lower, name)
        except FileNotFoundError:
            raise Refusal(
                errno.ENOENT, "staging-gone", f"the directory .agentfs/{os.fsdecode(name)} of the lower is gone, and with it "
                "what would finish or undo the commit", f"remove {self._file.path} to go on without",
            ) from None  # fmt: skip


def stage(
    lower: HostLower, journal_directory: str, steps: Sequence[Step], *, note: Mapping[str, str],
    progress: Progress | None = None, cancelled: Callable[[], bool] | None = None,
) -> LowerCommit:  # fmt: skip
    """Create everything that a commit needs, and its journal.

    No name of the lower changes except ``.agentfs``. Call this in a thread. After an error the lower is as it was before,
    including its times.

    Raises:
        Refusal: the commit is impossible; ECANCELED if *cancelled* returned True.
        Drifted: the lower is not what the steps expect.
    """
    if commit_journal.load(journal_directory) is not None:
        raise Refusal(errno.EBUSY, "commit-pending", "an earlier commit was interrupted", "agentfsd commit --resume, or --abort")
    survey = Survey(lower)
    survey.look(steps)
    before = lower_control.look(lower)
    begun = Journal(staging=lower_control.new_name(), control=before, note=note)
    commit = LowerCommit(lower, JournalFile.create(journal_directory, begun))
    try:
        telling = _Telling(len(survey.tops) + len(survey.inside), progress, cancelled)
        commit.stage(survey, _control_after(before, survey), telling)
    except OSError as exc:
        commit.clean()
        raise _failed(exc) from exc
    except BaseException:
        commit.clean()
        raise
    return commit


def pending(journal_directory: str) -> Pending | None:
    """Return the unfinished commit that a journal records, None if there is none.

    Raises:
        Refusal: the journal cannot be read.
    """
    file = commit_journal.load(journal_directory)
    if file is None:
        return None
    journal = file.journal
    return Pending(file.phase, journal.note, journal.paths, len(journal.changes), journal.size_bytes)


def originals(journal_directory: str) -> list[tuple[bytes, Identity]]:
    """Return the paths that an unfinished commit replaces or removes, with the identities they had when it was staged."""
    file = commit_journal.load(journal_directory)
    moves = [] if file is None else file.journal.moves
    return [(move.path, move.found) for move in moves if move.found != ABSENT]


def resume(lower: HostLower, journal_directory: str, progress: Progress | None = None, *, clean: bool = True) -> bool:
    """Finish an interrupted commit, or undo it if it was not completely staged or was already being undone.

    Args:
        lower: the directory that the commit changes.
        journal_directory: the directory that holds the journal.
        progress: as for LowerCommit.apply().
        clean: if false, a finished commit keeps its originals and its journal, and a second resume() removes them.

    Returns:
        True if the lower has every step, False if it has none.

    Raises:
        Drifted: somebody else changed the lower; nothing was undone, and the commit is still pending.
    """
    return _interrupted(lower, journal_directory).end(True, progress, clean=clean)


def abort(lower: HostLower, journal_directory: str, progress: Progress | None = None) -> bool:
    """Undo an interrupted commit.

    Returns:
        True if the commit was already complete, so that the lower has every step; False if it was undone.
    """
    return _interrupted(lower, journal_directory).end(False, progress)


def _interrupted(lower: HostLower, journal_directory: str) -> LowerCommit:
    file = commit_journal.load(journal_directory)
    if file is None:
        raise Refusal(errno.ENOENT, "no-commit-pending", "no commit was interrupted")
    return LowerCommit(lower, file)


class _Telling:
    """Report progress to the caller now and then, and ask it whether to stop."""

    def __init__(self, total: int, progress: Progress | None, cancelled: Callable[[], bool] | None) -> None:
        self.done = self.size_bytes = 0
        self._total, self._progress, self._cancelled = total, progress, cancelled
        self._next = 0

    def step(self, size: int) -> None:
        self.size_bytes += size
        self.steps(1)

    def steps(self, count: int) -> None:
        self.done += count
        if self.done < self._next:
            return
        self._next = self.done + _ASK_EVERY
        self.tell()

    def tell(self) -> None:
        if self._progress is not None:
            self._progress(self.done, self._total, self.size_bytes)
        if self._cancelled is not None and self._cancelled():
            raise Refusal(errno.ECANCELED, "cancelled", "the commit was cancelled; nothing was changed")


def _stage_tops(survey: Survey, staging: Staging, telling: _Telling) -> tuple[list[Move], list[AttributeChange]]:
    names = []
    for step, _ in survey.tops:
        if isinstance(step, Put):
            names.append(staging.put(step, telling.step))
        else:
            names.append(staging.new_name())
            telling.steps(1)
    numbers = staging.inode_numbers()
    moves, changes = [], []
    for (step, found), name in zip(survey.tops, names, strict=True):
        number = numbers.get(name, 0)
        stays = isinstance(step, Put) and step.stays and found == ABSENT
        moves.append(Move(step.path, name, number, found, step.expected is not None, stays=stays))
        if isinstance(step, Put) and stat.S_ISDIR(step.attributes.mode):  # moving a directory may change its times
            changes.append(AttributeChange(step.path, Identity(number, 0, 0, 0), False, None, step.attributes))
    return moves, changes


def _with_written(moves: list[Move], staging_fd: int) -> list[Move]:
    """Return the moves with the sizes and times of their staged files, once these are final."""
    found = []
    for move in moves:
        if move.ino:
            info = os.stat(move.staged, dir_fd=staging_fd, follow_symlinks=False)
            if stat.S_ISREG(info.st_mode):
                move = msgspec.structs.replace(move, size=info.st_size, mtime_ns=info.st_mtime_ns)
        found.append(move)
    return found


def _clock(staging_fd: int) -> int:
    """Return the present time in ns as the file system of the staging directory records it."""
    os.utime(staging_fd)
    return os.fstat(staging_fd).st_ctime_ns


def _control_after(before: Control, survey: Survey) -> Control:
    """Return the control record with the root's times after the commit: those the steps set; else the present time if a name in
    the root changes; else the old ones.
    """
    after = before.root_before
    if any(not parent_of(step.path) for step, _ in survey.tops):
        after = msgspec.structs.replace(after, mtime_ns=time.time_ns())
    for change in survey.changes:
        if not change.path:
            after = msgspec.structs.replace(after, atime_ns=change.new.atime_ns, mtime_ns=change.new.mtime_ns)
    return msgspec.structs.replace(before, root_after=after)


def _failed(exc: OSError) -> Refusal:
    if isinstance(exc, Refusal):
        return exc
    named = f"{os.fsdecode(exc.filename)!r}: " if exc.filename is not None else ""
    return Refusal(
        exc.errno or errno.EIO, "commit-failed", f"the lower could not be written: {named}{exc.strerror}; all is as it was"
    )
