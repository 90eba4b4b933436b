"""Move staged files into the lower, name by name, and move the originals back to undo a commit.

This module writes no journal. The staging directory shows whether a move was made: it holds either the staged inode or the
original that the move took out. So both directions can be restarted at any time.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby

import msgspec

from agentfs_host import syscalls
from agentfs_host.plain_paths import directory_beneath
from agentfsd.domain_errors import Refusal
from agentfsd.lower import lower_attributes
from agentfsd.lower.commit_journal import AttributeChange, Journal, Move, Times
from agentfsd.lower.commit_plan import ABSENT, Drifted, FileAttributes, Identity
from agentfsd.lower.host_lower import HostLower
from agentfsd.lower.survey import identity, name_of, parent_of, reach

Told = Callable[[int], None]

_GONE = (errno.ENOENT, errno.ENOTDIR)
_ASIDE = b".aside"  # suffix of an original's name in staging, used if the file system cannot exchange names
_TRIES = 8


class _Drift(Exception):
    pass


class Moves:
    """Apply or undo the moves of one commit.

    Args:
        lower: the directory to change.
        journal: the moves and attribute changes of the commit.
        staging_fd: any descriptor of the staging directory. The caller closes it.
    """

    def __init__(self, lower: HostLower, journal: Journal, staging_fd: int) -> None:
        self._lower, self._journal, self._staging = lower, journal, staging_fd
        self._put = self._exchange if journal.exchange else self._replace

    # -- forward

    def check(self) -> None:
        """Check, before an interrupted commit goes on, that nobody has changed what it has still to move or to adjust.

        Raises:
            Drifted: somebody has. Nothing was moved.
        """
        drifted = []
        for directory_fd, moves in self._by_directory(self._journal.moves):
            drifted += [move.path for move in moves if not self._may_go_on(move, directory_fd)]
        drifted += [change.path for change in self._journal.changes if change.strict and not self._may_adjust(change)]
        if drifted:
            raise Drifted(drifted)

    def _may_go_on(self, move: Move, fd: int) -> bool:
        if fd < 0:
            return False
        half_done = not self._journal.exchange and _look(self._staging, self._original(move)) is not None
        try:
            if not self._is_done(move) and move.strict and not half_done:
                self._expected(move, fd, name_of(move.path))
        except _Drift:
            return False
        return True

    def _may_adjust(self, change: AttributeChange) -> bool:
        try:
            with reach(self._lower, change.path) as (_, info):
                return _may_be_changed(info, change)
        except OSError as exc:
            if exc.errno not in _GONE:
                raise
            return False

    def apply(self, again: bool, progress: Told, check: Callable[[], object] = lambda: None) -> None:
        """Make every move, then every attribute change.

        Args:
            again: whether an earlier call may have made some of the moves.
            progress: called with the number of moves after each directory.
            check: called before the moves of each directory; raises Drifted to stop.

        Raises:
            Drifted: somebody else changed a path. Some moves have been made then.
        """
        drifted = []
        for directory_fd, moves in self._by_directory(self._journal.moves):
            check()
            for move in moves:
                try:
                    if directory_fd < 0:
                        raise _Drift
                    if not (again and self._is_done(move)):
                        (self._put if move.ino else self._remove)(move, directory_fd)
                except _Drift:
                    drifted.append(move.path)
            progress(len(moves))
            if drifted:
                raise Drifted(drifted)
        for change in sorted(self._journal.changes, key=lambda change: change.path, reverse=True):
            self._change(change)

    def _by_directory(self, wanted: Iterable[Move]) -> Iterator[tuple[int, list[Move]]]:
        """Yield a descriptor for each directory together with its moves; -1 if the directory no longer exists."""
        for parent, group in groupby(wanted, key=lambda move: parent_of(move.path)):
            moves = list(group)
            try:
                directory = self._lower.renew(parent)
            except OSError as exc:
                if exc.errno not in _GONE:
                    raise
                yield -1, moves
            else:
                yield directory.fd, moves

    def _is_done(self, move: Move) -> bool:
        out = _look(self._staging, self._original(move))
        if move.ino == 0:
            done = out is not None
        else:
            staged = _look(self._staging, move.staged)
            done = staged is None or staged.st_ino != move.ino
        if done and move.strict:
            _check_out(move, out)
        return done

    def _original(self, move: Move) -> bytes:
        """Return the name that the original has in the staging directory after the move."""
        return move.staged if move.ino == 0 or self._journal.exchange else move.staged + _ASIDE

    def _exchange(self, move: Move, fd: int) -> None:
        """Exchange the staged file with the original. Readers always see either the old file or the new one."""
        name = name_of(move.path)
        replace = move.found != ABSENT
        if replace and move.strict:
            self._expected(move, fd, name)
        for _ in range(_TRIES):
            try:
                syscalls.rename(self._staging, move.staged, fd, name, syscalls.EXCHANGE if replace else syscalls.NOREPLACE)
                break
            except OSError as exc:
                if exc.errno not in (errno.ENOENT, errno.EEXIST):
                    raise
                if move.strict:
                    raise _Drift from None
                replace = not replace
        else:
            raise _Drift
        if replace and move.strict:
            self._check_or_return(move, fd)

    def _remove(self, move: Move, fd: int) -> None:
        name = name_of(move.path)
        if move.strict:
            self._expected(move, fd, name)
        try:
            self._rename_new(fd, name, self._staging, move.staged)
        except FileNotFoundError:
            if move.strict:
                raise _Drift from None
            return
        if move.strict:
            self._check_or_return(move, fd)

    def _expected(self, move: Move, fd: int, name: bytes) -> os.stat_result | None:
        """Return the stat of what the name leads to. Raise _Drift if this is not what the commit was planned for."""
        info = _look(fd, name)
        if (info is None) != (move.found == ABSENT) or (info is not None and not _is_same(info, move.found)):
            raise _Drift
        return info

    def _check_or_return(self, move: Move, fd: int) -> None:
        """Check the original that was moved out, and put it back if somebody changed it after the last check."""
        try:
            _check_out(move, _look(self._staging, self._original(move)))
        except _Drift:
            self._undo_move(move, fd)
            raise

    def _replace(self, move: Move, fd: int) -> None:
        """Replace a file where names cannot be exchanged: link the original into staging, then rename the new file over it."""
        name, aside = name_of(move.path), move.staged + _ASIDE
        if _look(self._staging, aside) is None:
            there = self._expected(move, fd, name) if move.strict else _look(fd, name)
            if there is not None:
                self._set_aside(there, move, fd, name)
        os.rename(move.staged, name, src_dir_fd=self._staging, dst_dir_fd=fd)

    def _set_aside(self, there: os.stat_result, move: Move, fd: int, name: bytes) -> None:
        aside = move.staged + _ASIDE
        if not _either_is_directory(there, _look(self._staging, move.staged)):
            try:
                os.link(name, aside, src_dir_fd=fd, dst_dir_fd=self._staging, follow_symlinks=False)
            except OSError as exc:
                if exc.errno not in (errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS):
                    raise
            else:
                return
        os.rename(name, aside, src_dir_fd=fd, dst_dir_fd=self._staging)  # the name is missing for a moment

    def _rename_new(self, source_fd: int, source: bytes, target_fd: int, target: bytes) -> None:
        if self._journal.exchange:
            syscalls.rename(source_fd, source, target_fd, target, syscalls.NOREPLACE)
        elif _look(target_fd, target) is None:
            os.rename(source, target, src_dir_fd=source_fd, dst_dir_fd=target_fd)
        else:
            raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))

    def _change(self, change: AttributeChange) -> None:
        """Change attributes after all moves. This may be repeated, and it leaves a file alone if somebody else replaced it."""
        try:
            with reach(self._lower, change.path) as (where, info):
                if _may_be_changed(info, change):
                    lower_attributes.adjust(where, change.new, info)
                    return
        except OSError as exc:
            if exc.errno not in _GONE:
                raise
        if change.strict:
            raise Drifted([change.path])

    # -- back

    def undo(self, progress: Told) -> None:
        """Put every original back, the last one first, and restore the times of its directory. Leave what is to stay.

        Args:
            progress: called with the number of moves after each directory.

        Raises:
            Refusal: somebody changed what the commit made, or something else has the name of an original. That is left alone;
                everything else was undone.
        """
        blocked = []
        for change in sorted(self._journal.changes, key=lambda change: change.path):
            if change.old is not None:
                self._change_back(change, change.old)
        for directory_fd, moves in self._by_directory(reversed(self._journal.moves)):
            blocked += [move for move in moves if not (move.stays or self._undo_move(move, directory_fd))]
            progress(len(moves))
        for times in sorted(self._journal.directories, key=lambda times: times.path, reverse=True):
            self._set_times(times)
        if blocked:
            raise self._in_the_way(blocked[::-1])

    def _in_the_way(self, blocked: list[Move]) -> Refusal:
        first = next((move for move in blocked if _look(self._staging, self._original(move)) is not None), None)
        if first is None:
            first, where = blocked[0], "it has no original: the commit made it"
        else:
            where = (
                f"its original is .agentfs/{os.fsdecode(self._journal.staging)}/{os.fsdecode(self._original(first))} in the lower"
            )
        count = "1 file was" if len(blocked) == 1 else f"{len(blocked)} files were"
        return Refusal(
            errno.EEXIST, "in-the-way",
            f"{count} left alone because somebody changed what is there "
            f"meanwhile, {os.fsdecode(first.path)!r} among them; all else was undone",
            f"{where}; move what is there away and abort again",
        )  # fmt: skip

    def _change_back(self, change: AttributeChange, old: FileAttributes) -> None:
        try:
            with reach(self._lower, change.path) as (where, info):
                if info.st_ino == change.found.ino:
                    lower_attributes.adjust(where, _without_their_times(old, info, change), info)
        except OSError as exc:
            if exc.errno not in _GONE:
                raise

    def _undo_move(self, move: Move, fd: int) -> bool:
        """Undo one move. Return False if something else has the original's name, or somebody changed what the commit made."""
        original = _look(self._staging, self._original(move))
        if original is not None and original.st_ino == move.ino:
            return True  # the move was never made, or it is already undone
        there = _look(fd, name_of(move.path)) if fd >= 0 else None
        ours = there is not None and there.st_ino == move.ino
        if ours and self._is_changed(move, fd, name_of(move.path)):
            return False
        if original is None:
            return not ours or _look(self._staging, move.staged) is not None or self._take_out(move, fd)
        if fd < 0:
            return False
        if there is not None and not ours:
            return not self._journal.exchange and there.st_ino == original.st_ino
        return self._put_back(move, fd, there, original)

    def _is_changed(self, move: Move, fd: int, name: bytes) -> bool:
        """Return whether somebody wrote to the file, or into the directory, that the commit moved into the lower."""
        info = _look(fd, name)
        if info is None or info.st_ino != move.ino:
            return True
        if stat.S_ISDIR(info.st_mode):
            return self._journal.staged_ns > 0 and _has_newer(fd, name, self._journal.staged_ns)
        return move.size >= 0 and (info.st_size, info.st_mtime_ns) != (move.size, move.mtime_ns)

    def _take_out(self, move: Move, fd: int) -> bool:
        """Take out a file that had no original. Return False, and leave it, if somebody writes to it at this moment."""
        self._rename_new(fd, name_of(move.path), self._staging, move.staged)
        if not self._is_changed(move, self._staging, move.staged):
            return True
        self._rename_new(self._staging, move.staged, fd, name_of(move.path))
        return False

    def _put_back(self, move: Move, fd: int, there: os.stat_result | None, original: os.stat_result) -> bool:
        name, out = name_of(move.path), self._original(move)
        if there is not None and self._journal.exchange:
            syscalls.rename(self._staging, out, fd, name, syscalls.EXCHANGE)
            if not self._is_changed(move, self._staging, out):
                return True
            syscalls.rename(self._staging, out, fd, name, syscalls.EXCHANGE)  # somebody writes to it at this moment
            return False
        if there is not None and not _either_is_directory(there, original):
            os.rename(out, name, src_dir_fd=self._staging, dst_dir_fd=fd)
            return True
        if there is not None:
            os.rename(name, move.staged, src_dir_fd=fd, dst_dir_fd=self._staging)
        try:
            self._rename_new(self._staging, out, fd, name)
        except FileExistsError:
            return False
        return True

    def _set_times(self, times: Times) -> None:
        try:
            with reach(self._lower, times.path) as (where, info):
                if info.st_ino == times.ino and info.st_mtime_ns != times.mtime_ns:
                    os.utime(where, ns=(times.atime_ns, times.mtime_ns))
        except OSError as exc:
            if exc.errno not in _GONE:
                raise


def _look(fd: int, name: bytes) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=fd, follow_symlinks=False)
    except OSError as exc:
        if exc.errno not in _GONE:
            raise
        return None


def _is_same(info: os.stat_result, expected: Identity) -> bool:
    """Compare identities. Ignore ctime of a file with several names, since our own work on another name may have changed it."""
    several = info.st_nlink > 1 and not stat.S_ISDIR(info.st_mode)
    return identity(info) == (expected._replace(ctime_ns=info.st_ctime_ns) if several else expected)


def _check_out(move: Move, out: os.stat_result | None) -> None:
    """Check the original that a move took out of the lower. Ignore ctime, which the move changed; for directories ignore mtime,
    too, which XFS changes.
    """
    if out is None or out.st_ino == move.ino:
        expected = move.found == ABSENT
    else:
        same_content = (out.st_size, out.st_mtime_ns) == (move.found.size, move.found.mtime_ns)
        expected = out.st_ino == move.found.ino and (same_content or stat.S_ISDIR(out.st_mode))
    if not expected:
        raise _Drift


def _may_be_changed(info: os.stat_result, change: AttributeChange) -> bool:
    if info.st_ino != change.found.ino or stat.S_IFMT(info.st_mode) != stat.S_IFMT(change.new.mode):
        return False
    if not change.strict or stat.S_ISDIR(info.st_mode):
        return True  # the moves inside a directory changed its times
    return info.st_size == change.found.size and info.st_mtime_ns in (change.found.mtime_ns, change.new.mtime_ns)


def _without_their_times(old: FileAttributes, info: os.stat_result, change: AttributeChange) -> FileAttributes:
    """Return the old attributes, but with the present times if somebody else wrote to the file since the commit."""
    if stat.S_ISDIR(info.st_mode) or info.st_mtime_ns in (old.mtime_ns, change.new.mtime_ns):
        return old
    return msgspec.structs.replace(old, atime_ns=info.st_atime_ns, mtime_ns=info.st_mtime_ns)


def _has_newer(fd: int, name: bytes, since_ns: int) -> bool:
    """Return whether something in a directory, at any depth, was changed after a time. Ignore what may not be listed. Of a file
    with several names only the content counts, since our own work on another name may have changed its ctime.
    """
    todo = [name]
    while todo:
        place = todo.pop()
        try:
            inner = directory_beneath(fd, place)
        except (PermissionError, FileNotFoundError):
            continue
        try:
            for entry in os.listdir(b"/proc/self/fd/%d" % inner):
                info = _look(inner, entry)
                if info is None:
                    continue
                is_directory = stat.S_ISDIR(info.st_mode)
                if (info.st_mtime_ns if info.st_nlink > 1 and not is_directory else info.st_ctime_ns) > since_ns:
                    return True
                if is_directory:
                    todo.append(place + b"/" + entry)
        except PermissionError:
            continue
        finally:
            os.close(inner)
    return False


def _either_is_directory(one: os.stat_result, two: os.stat_result | None) -> bool:
    return stat.S_ISDIR(one.st_mode) or (two is not None and stat.S_ISDIR(two.st_mode))
