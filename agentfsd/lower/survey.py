"""Examine the lower where a commit will write, before anything is created, so that a refusal changes nothing.

The survey also sorts the steps: some get their own name in the staging directory, others lie inside a new directory.
"""

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby

import msgspec

from agentfs_host.plain_paths import is_plain
from agentfsd.domain_errors import Refusal, invalid
from agentfsd.linux import mounts
from agentfsd.lower import lower_attributes
from agentfsd.lower.commit_journal import AttributeChange, Times
from agentfsd.lower.commit_plan import ABSENT, Adjust, Drifted, Identity, Put, Remove, Step
from agentfsd.lower.host_lower import HostLower
from agentfsd.types import CONTROL_DIR


class Survey:
    """The examined steps. ``tops`` are Puts and Removes by (rank, directory, name) with the identities of the originals;
    ``inside`` are Puts in new directories.
    """

    def __init__(self, lower: HostLower) -> None:
        self.tops: list[tuple[Put | Remove, Identity]] = []
        self.inside: list[Put] = []
        self.changes: list[AttributeChange] = []
        self.directories: list[Times] = []
        self._lower = lower
        self._drifted: list[bytes] = []
        self._root = lower.stat(b"")
        self._mounted = mounts.mounted_beneath(lower.renew(b"").fd)

    def look(self, steps: Sequence[Step]) -> None:
        """Examine every path that the steps change.

        Raises:
            Refusal: a step is impossible.
            Drifted: a path does not lead to what its step expects.
        """
        tops, adjusts = self._sort(steps)
        for step in (*tops, *adjusts):
            self._check_mounts(step)
        for parent, group in groupby(tops, key=lambda step: parent_of(step.path)):
            self._look_into(parent, list(group))
        self.tops.sort(key=lambda top: top[0].rank)
        for adjust in adjusts:
            self._look_at(adjust)
        if self._drifted:
            raise Drifted(self._drifted)

    def _sort(self, steps: Sequence[Step]) -> tuple[list[Put | Remove], list[Adjust]]:
        tops: list[Put | Remove] = []
        adjusts: list[Adjust] = []
        above, above_is_new, last = b"", False, None
        for step in sorted(steps, key=_in_tree_order):
            path = step.path
            _check_path(step)
            if path == last:
                raise invalid(f"two steps for {os.fsdecode(path)!r}")
            last = path
            within = above != b"" and path.startswith(above)
            if within and isinstance(step, Remove):
                continue  # the step for its directory removes it, too
            if within:
                if not above_is_new or not isinstance(step, Put):
                    raise invalid(f"{os.fsdecode(path)!r} lies in what another step removes or replaces")
                self.inside.append(step)
            elif isinstance(step, Adjust):
                adjusts.append(step)
            else:
                tops.append(step)
                above, above_is_new = path + b"/", isinstance(step, Put) and stat.S_ISDIR(step.attributes.mode)
        tops.sort(key=_by_directory)
        self.inside.sort(key=_by_directory)
        return tops, adjusts

    def _check_mounts(self, step: Step) -> None:
        for mounted in self._mounted:
            moved = not isinstance(step, Adjust) and (mounted == step.path or mounted.startswith(step.path + b"/"))
            if moved:
                raise _another_file_system(mounted, errno.EBUSY)
            if step.path.startswith(mounted + b"/"):
                fd = self._lower.renew(parent_of(step.path)).fd
                if mounts.mount_id(fd) != mounts.mount_id(self._lower.renew(b"").fd):
                    raise _another_file_system(mounted, errno.EXDEV)

    def _look_into(self, parent: bytes, steps: Iterable[Put | Remove]) -> None:
        try:
            directory = self._lower.renew(parent)
        except (FileNotFoundError, NotADirectoryError):
            self._drifted += [step.path for step in steps]
            return
        info = os.fstat(directory.fd)
        if info.st_dev != self._root.st_dev:
            raise Refusal(
                errno.EXDEV, "other-file-system",
                f"{os.fsdecode(parent)!r} lies on another file system or subvolume than the workspace: a commit cannot reach it",
            )  # fmt: skip
        check_writable(directory.fd, b".", parent)
        self.directories.append(Times(parent, info.st_ino, info.st_atime_ns, info.st_mtime_ns))
        for step in steps:
            identity = self._found(directory.fd, step)
            if step.expected is not None and identity != step.expected:
                self._drifted.append(step.path)
            elif identity != ABSENT or isinstance(step, Put):
                self.tops.append((step, identity))

    def _found(self, directory_fd: int, step: Put | Remove) -> Identity:
        try:
            info = os.stat(name_of(step.path), dir_fd=directory_fd, follow_symlinks=False)
        except FileNotFoundError:
            return ABSENT
        if stat.S_ISDIR(info.st_mode):
            check_writable(directory_fd, name_of(step.path), step.path)  # moving a directory changes its ".."
            self.directories.append(Times(step.path, info.st_ino, info.st_atime_ns, info.st_mtime_ns))
        return identity(info)

    def _look_at(self, step: Adjust) -> None:
        try:
            with reach(self._lower, step.path) as (where, info):
                old = lower_attributes.read(where, info)
        except (FileNotFoundError, NotADirectoryError):
            self._drifted.append(step.path)
            return
        same_type = stat.S_IFMT(info.st_mode) == stat.S_IFMT(step.attributes.mode)
        if not same_type or step.expected not in (None, identity(info)):
            self._drifted.append(step.path)
        elif os.geteuid() in (0, info.st_uid):
            self.changes.append(AttributeChange(step.path, identity(info), step.expected is not None, old, step.attributes))
        # Ignore a difference in times alone, as rsync does: other users change the times of a shared directory that they own.
        elif msgspec.structs.replace(step.attributes, atime_ns=old.atime_ns, mtime_ns=old.mtime_ns) != old:
            raise Refusal(
                errno.EPERM, "lower-not-writable",
                f"{os.fsdecode(step.path)!r} belongs to somebody else: its mode and attributes cannot be changed",
                "run the daemon as its owner or as root",
            )  # fmt: skip


def identity(info: os.stat_result) -> Identity:
    return Identity(info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)


def look_at(lower: HostLower, path: bytes) -> Identity:
    """Return the identity of what a path of the lower leads to now, ABSENT for nothing."""
    try:
        return identity(os.stat(name_of(path), dir_fd=lower.renew(parent_of(path)).fd, follow_symlinks=False))
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT


def parent_of(path: bytes) -> bytes:
    return path.rpartition(b"/")[0]


def name_of(path: bytes) -> bytes:
    return path.rpartition(b"/")[2]


@contextmanager
def reach(lower: HostLower, path: bytes) -> Iterator[tuple[bytes, os.stat_result]]:
    """Yield a path and the stat of what *path* names, as lower_attributes.held() does. For the root and for covered directories,
    this is what the mount covers.
    """
    covered = lower.held(path)
    if covered is not None:
        yield b"/proc/self/fd/%d" % covered.fd, os.fstat(covered.fd)
        return
    directory = lower.renew(parent_of(path))
    with lower_attributes.held(directory.fd, name_of(path)) as found:
        yield found


def _in_tree_order(step: Step) -> bytes:
    return step.path.replace(b"/", b"\0")


def _by_directory(step: Put | Remove) -> tuple[bytes, bytes]:
    parent, _, name = step.path.rpartition(b"/")
    return parent, name


def _check_path(step: Step) -> None:
    if not step.path and isinstance(step, Adjust):
        return
    if not is_plain(step.path):
        raise invalid(f"{os.fsdecode(step.path)!r} is not a path beneath the root")
    if step.path == CONTROL_DIR or step.path.startswith(CONTROL_DIR + b"/"):
        raise invalid(f"{os.fsdecode(step.path)!r}: only agentfsd writes there")


def check_writable(directory_fd: int, name: bytes, path: bytes) -> None:
    if os.access(name, os.W_OK | os.X_OK, dir_fd=directory_fd, effective_ids=True):
        return
    shown = f"the directory {os.fsdecode(path)!r}" if path else "the workspace"
    if os.fstatvfs(directory_fd).f_flag & os.ST_RDONLY:
        raise Refusal(errno.EROFS, "lower-not-writable", f"{shown} lies on a file system that is mounted read-only")
    raise Refusal(
        errno.EACCES, "lower-not-writable", f"{shown} may not be written by this daemon's user", "change its mode or owner"
    )


def _another_file_system(path: bytes, number: int) -> Refusal:
    return Refusal(
        number, "other-file-system", f"something else is mounted at {os.fsdecode(path)!r}: a commit cannot reach beyond it",
        "unmount it first, or leave what lies there out",
    )  # fmt: skip
