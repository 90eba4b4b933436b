"""A commit into the lower, from a list of steps to the last renamed file: all of it or nothing, whenever the process is killed.

    stage    everything new is made in LOWER/.agentfs/commit-XXXX; then it and a journal are on the disk
    apply    each name changes hands with its staged one, by renameat2; then attributes and times
    clean    the originals, now in the staging directory, are removed, and the journal

It knows nothing of branches or databases: where the steps come from is the caller's business.
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
from agentfsd.lower.survey import Survey, parent_of

Progress = Callable[[int, int, int], None]  # done, total, bytes

_ASK_EVERY = 64  # steps between two words to the caller


@dataclass(frozen=True, slots=True)
class Pending:
    """A commit that was begun and is not over: resume() or abort() ends it. ``note`` is what stage() was given."""

    phase: Phase
    note: Mapping[str, str]
    paths: int  # made, replaced and removed, what lies in new directories included
    adjusted: int
    size_bytes: int


class LowerCommit:
    """What stage() made. Nothing of it is seen yet. One thread at a time may call."""

    def __init__(self, lower: HostLower, file: JournalFile) -> None:
        self._lower, self._file = lower, file

    def apply(self, progress: Progress | None = None, *, clean: bool = True) -> None:
        """Drifted when somebody changed the lower meanwhile, Refusal when it cannot be written: then all is undone.

        Without *clean* originals and journal stay until clean(): the caller has something to do that must not be forgotten.
        """
        self._forward(False, progress)
        if clean:
            self.clean()

    def abort(self, progress: Progress | None = None) -> None:
        self._back(progress)

    def end(self, forward: bool, progress: Progress | None, *, clean: bool = True) -> bool:
        """From whatever point on; True when the lower has every step."""
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
            telling.tell()
        finally:
            os.close(fd)
        self._file.staged(
            msgspec.structs.replace(
                begun, control=after, exchange=exchange, moves=moves, changes=survey.changes + changes,
                directories=survey.directories, paths=telling.done, size_bytes=telling.size_bytes,
            )
        )  # fmt: skip

    def clean(self) -> None:
        """The last phase, and the only one after a commit that was never staged."""
        found = self._file.journal
        done = self._file.phase == "committed"
        times = found.control.root_after if done else found.control.root_before
        try:
            lower_control.remove(self._lower, found.staging, found.control, times)
        except OSError as exc:
            raise Refusal(
                exc.errno or errno.EIO, "cleaning-failed",
                f"the commit is {'done' if done else 'undone'}, but .agentfs/{os.fsdecode(found.staging)} of the lower could not "
                f"be removed: {exc.strerror}", "agentfsd commit --resume tries again",
            ) from exc  # fmt: skip
        self._file.remove()

    def _forward(self, again: bool, progress: Progress | None) -> None:
        found = self._file.journal
        telling = _Telling(len(found.moves), progress, None)
        fd = self._open_staging()
        try:
            Moves(self._lower, found, fd).apply(again, telling.steps)
            syscalls.sync_filesystem(fd)
        except Drifted:
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
        found = self._file.journal
        telling = _Telling(len(found.moves), progress, None)
        fd = self._open_staging()
        try:
            if self._file.phase != "undoing":
                self._file.enter("undoing")
            Moves(self._lower, found, fd).undo(telling.steps)
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
    """Makes everything, and a journal in a directory of the caller's; no name of the lower changes but for ``.agentfs``.

    Refusal (ECANCELED when *cancelled* said so) or Drifted: then the lower is as it was, to the times. Call in a thread.
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
    """Refusal when its journal cannot be read."""
    file = commit_journal.load(journal_directory)
    if file is None:
        return None
    found = file.journal
    return Pending(file.phase, found.note, found.paths, len(found.changes), found.size_bytes)


def originals(journal_directory: str) -> list[tuple[bytes, Identity]]:
    """What a commit that is not over found at the paths that it replaces or removes."""
    file = commit_journal.load(journal_directory)
    moves = [] if file is None else file.journal.moves
    return [(move.path, move.found) for move in moves if move.found != ABSENT]


def resume(lower: HostLower, journal_directory: str, progress: Progress | None = None, *, clean: bool = True) -> bool:
    """Ends an interrupted commit. True: the lower has every step. False: none, as it was not wholly staged or being undone.

    Drifted when somebody changed the lower meanwhile: then all is undone. Without *clean* a commit that is done is not cleaned
    up: resume() again does that.
    """
    return _interrupted(lower, journal_directory).end(True, progress, clean=clean)


def abort(lower: HostLower, journal_directory: str, progress: Progress | None = None) -> bool:
    """Undoes an interrupted commit. True: it was done already, and every step is in the lower."""
    return _interrupted(lower, journal_directory).end(False, progress)


def _interrupted(lower: HostLower, journal_directory: str) -> LowerCommit:
    file = commit_journal.load(journal_directory)
    if file is None:
        raise Refusal(errno.ENOENT, "no-commit-pending", "no commit was interrupted")
    return LowerCommit(lower, file)


class _Telling:
    """What is done, told to the caller now and then; also asks whether to stop."""

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
        moves.append(Move(step.path, name, number, found, step.expected is not None))
        if isinstance(step, Put) and stat.S_ISDIR(step.attributes.mode):  # moving it may change its times
            changes.append(AttributeChange(step.path, Identity(number, 0, 0, 0), False, None, step.attributes))
    return moves, changes


def _control_after(before: Control, survey: Survey) -> Control:
    """The root's times once the commit is done: as told, else of now when a name in it changes, else as they were."""
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
