"""Reads both versions of each changed file of two trees into a spool, for a comparison.

It must never compare contents: compare.py does that, in another process if the files are large, so that no request waits for it.
"""

import errno
import os
import stat
from collections.abc import Callable, Generator, Iterator

import msgspec
from pygit2.enums import FileMode

from agentfsd.core import inode_stat
from agentfsd.core.copyup import content_fd
from agentfsd.core.inode_attributes import all_xattrs
from agentfsd.core.tree import Inode, Tree, join
from agentfsd.domain_errors import DamagedContent, Refusal
from agentfsd.escape import quoted
from agentfsd.history.compare import Content, Pair
from agentfsd.history.paths import shown, touches
from agentfsd.types import PathChange

MAX_FILE_BYTES = 64 << 20  # a larger file gets no patch
_STEP_BYTES = 8 << 20  # a smaller file is read in one step, so that no write can come in between

Progress = tuple[int, int, str]  # done, of how many, what

_SPECIAL = {
    stat.S_IFIFO: "named pipe", stat.S_IFSOCK: "socket", stat.S_IFCHR: "character device", stat.S_IFBLK: "block device",
}  # fmt: skip


def read(
    old: Tree,
    new: Tree,
    changes: list[PathChange],
    wanted: tuple[bytes, ...],
    spool_fd: int,
    *,
    stat_only: bool,
    keeps_back: Callable[[bytes], bool] = lambda path: False,
) -> Generator[Progress, None, list[Pair]]:
    """Copy both versions of the changed files into an empty spool, in steps that yield their progress.

    Each step is atomic. Other requests may run between two steps.

    Args:
        old: The old tree.
        new: The new tree.
        changes: All changes that lead from *old* to *new*.
        wanted: The only paths to read, as paths.parse() returns them; empty for all.
        spool_fd: The spool.
        stat_only: Skip the content of files above MAX_FILE_BYTES instead of refusing.
        keeps_back: Tells which paths to leave out, because the caller must not read them.

    Returns:
        Where the contents are in the spool, in the order of *changes*.

    Raises:
        Refusal: ``too-large``, ``lost-content``, or ``replaced`` if a tree was restored or deleted meanwhile.
    """
    reader = _Reader(old, new, spool_fd, stat_only)
    pairs: list[Pair] = []
    for done, status, old_path, path in _Files(old, new, changes, wanted):
        if any(path_ is not None and keeps_back(path_) for path_ in (old_path, path)):
            continue
        pair = yield from reader.pair(status, old_path, path, (done, len(changes), "reading what changed"))
        if pair is not None:
            pairs.append(msgspec.structs.replace(pair, lower_moved=changes[done].lower_moved))
        yield done + 1, len(changes), "reading what changed"
    return pairs


def _find(tree: Tree, path: bytes | None) -> Inode | None:
    if tree.detached:
        raise Refusal(errno.ESTALE, "replaced", "a branch was restored or deleted while it was compared", "ask again")
    try:
        return tree.walk(path) if path is not None else None
    except (FileNotFoundError, NotADirectoryError):
        return None


class _Files:
    """The paths to compare: (index of the change, status, path in old or None, path in new or None) for each.

    A change below a renamed directory names its path by the directory's new name only. The old path is derived from it.
    """

    def __init__(self, old: Tree, new: Tree, changes: list[PathChange], wanted: tuple[bytes, ...]) -> None:
        self._old, self._new, self._changes, self._wanted = old, new, changes, wanted
        self._listed = {change.path for change in changes}
        self._moved = {change.path: change.old_path for change in changes if change.status == "R"}

    def __iter__(self) -> Iterator[tuple[int, str, bytes | None, bytes | None]]:
        for index, change in enumerate(self._changes):
            for status, old_path, path in self._of(change):
                if touches(self._wanted, *(name for name in (path, old_path) if name is not None)):
                    yield index, status, old_path, path

    def _of(self, change: PathChange) -> Iterator[tuple[str, bytes | None, bytes | None]]:
        old_path = None if change.status == "A" else self._before(change.old_path or change.path)
        path = None if change.status == "D" else change.path
        yield change.status, old_path, path
        if change.status == "R" and old_path is not None:
            yield from self._below(old_path, change.path)

    def _before(self, path: bytes) -> bytes:
        """Return the path in the old tree: it differs if a directory above was renamed."""
        above = path
        while above:
            if above in self._moved:  # a path below a new name cannot exist in the old tree
                return self._before(self._moved[above]) + path[len(above) :]
            above = above.rpartition(b"/")[0]
        return path

    def _below(self, old_path: bytes, path: bytes) -> Iterator[tuple[str, bytes | None, bytes | None]]:
        """Yield the paths that moved with their directory and have no change of their own."""
        directory, old_directory = _find(self._new, path), _find(self._old, old_path)
        if directory is None or not directory.is_dir or old_directory is None or not old_directory.is_dir:
            return
        for name in sorted(self._new.names(directory)):
            old_child, child = join(old_path, name), join(path, name)
            if child not in self._listed and _find(self._old, old_child) is not None:
                yield "R", old_child, child
                yield from self._below(old_child, child)


class _Reader:
    def __init__(self, old: Tree, new: Tree, spool_fd: int, stat_only: bool) -> None:
        self._old, self._new, self._spool, self._stat_only = old, new, spool_fd, stat_only
        self._end = 0

    def pair(
        self, status: str, old_path: bytes | None, path: bytes | None, progress: Progress
    ) -> Generator[Progress, None, Pair | None]:
        """Copy one path's versions to the spool. Return None for a directory without a note, and for a path deleted by now."""
        old_inode, new_inode = _find(self._old, old_path), _find(self._new, path)
        shown = path if path is not None else old_path
        assert shown is not None
        sizes = self._size(self._old, old_inode), self._size(self._new, new_inode)
        note = self._beyond_git(old_inode, new_inode)
        same = old_inode is not None and new_inode is not None and _same_source(old_inode, new_inode)
        too_large = not same and max(sizes) > MAX_FILE_BYTES
        if too_large and not self._stat_only:
            raise _too_large(shown)
        before = after = None
        if not too_large:
            before = yield from self._content(self._old, old_inode, same, progress)
            after = yield from self._content(self._new, new_inode, same, progress)
            if before is None and after is None and not note:
                return None
        before_path = old_path if old_path is not None else shown
        return Pair(status, shown, before_path, before, after, *sizes, note, False, too_large)

    @staticmethod
    def _size(tree: Tree, inode: Inode | None) -> int:
        if inode is None:
            return -1
        return inode_stat.data_stat(inode).st_size if inode.is_file else 0

    def _content(
        self, tree: Tree, inode: Inode | None, same: bool, progress: Progress
    ) -> Generator[Progress, None, Content | None]:
        if inode is None:
            return None
        mode = inode_stat.attributes(inode).mode
        if stat.S_ISLNK(mode):
            start = self._end
            self._end += os.write(self._spool, tree.readlink(inode))
            return Content(FileMode.LINK, start, self._end - start)
        if not inode.is_file:
            return None
        git_mode = _git_mode(mode)
        return Content(git_mode, -1, 0) if same else Content(git_mode, *(yield from self._copy(inode, progress)))

    def _copy(self, inode: Inode, progress: Progress) -> Generator[Progress, None, tuple[int, int]]:
        """Copy a file to the spool, and return (offset, size in bytes)."""
        start = self._end
        try:
            fd = content_fd(inode)
        except DamagedContent as exc:
            raise _lost(inode.path, exc) from exc
        try:
            while count := os.sendfile(self._spool, fd, self._end - start, _STEP_BYTES):
                self._end += count
                if self._end - start > MAX_FILE_BYTES:  # a process has appended to it meanwhile
                    raise _too_large(inode.path)
                if count == _STEP_BYTES:
                    yield progress
        finally:
            os.close(fd)
        return start, self._end - start

    def _beyond_git(self, old_inode: Inode | None, new_inode: Inode | None) -> str:
        """Describe in words what git's format cannot express of a change."""
        if old_inode is None or new_inode is None or stat.S_IFMT(old_inode.mode) != stat.S_IFMT(new_inode.mode):
            notes = [_whole(self._old, old_inode, "removed"), _whole(self._new, new_inode, "added")]
        elif old_inode.id or new_inode.id or old_inode.lower_path != new_inode.lower_path:
            notes = self._attributes(old_inode, new_inode)
        else:  # both are the same object of the lower, which moved with its directory
            notes = []
        return ", ".join(part for part in notes if part)

    def _attributes(self, old_inode: Inode, new_inode: Inode) -> list[str]:
        old, new = inode_stat.attributes(old_inode), inode_stat.attributes(new_inode)
        old_mode, new_mode = stat.S_IMODE(old.mode), stat.S_IMODE(new.mode)
        notes = []
        if (old_mode ^ new_mode) & ~0o111 or (old_mode != new_mode and _git_mode(old.mode) == _git_mode(new.mode)):
            notes.append(f"mode {old_mode:04o} -> {new_mode:04o}")
        if (old.uid, old.gid) != (new.uid, new.gid):
            notes.append(f"owner {old.uid}:{old.gid} -> {new.uid}:{new.gid}")
        if all_xattrs(self._old, old_inode) != all_xattrs(self._new, new_inode):
            notes.append("extended attributes")
        if old.rdev != new.rdev:
            notes.append("another device")
        return notes


def _whole(tree: Tree, inode: Inode | None, what: str) -> str:
    if inode is None:
        return ""
    if inode.is_dir:
        return f"empty directory {what}" if tree.is_empty(inode) else ""
    kind = _SPECIAL.get(stat.S_IFMT(inode.mode))
    return f"{kind} {what}" if kind else ""


def _git_mode(mode: int) -> int:
    return FileMode.BLOB_EXECUTABLE if stat.S_ISREG(mode) and mode & 0o100 else FileMode.BLOB


def _same_source(old_inode: Inode, new_inode: Inode) -> bool:
    """Tell whether two files have the same object or lower file as their data, so that neither needs to be read."""
    if (
        not old_inode.is_file
        or not new_inode.is_file
        or old_inode.content != new_inode.content
        or old_inode.anonymous
        or new_inode.anonymous
    ):
        return False
    return old_inode.content != 0 or old_inode.lower_path == new_inode.lower_path


def _lost(path: bytes, why: DamagedContent) -> Refusal:
    return Refusal(
        errno.EIO, "lost-content", f"the content of {quoted(path)} is lost: {why.strerror}",
        "--stat reads no contents; 'agentfsd fsck' says which branches and snapshots have it",
    )  # fmt: skip


def _too_large(path: bytes) -> Refusal:
    limit = f"{MAX_FILE_BYTES >> 20} MiB"
    return Refusal(
        errno.EFBIG, "too-large", f"{shown(path)} is larger than {limit}: too large for a patch",
        "--stat shows its sizes; name other paths to leave it out",
    )  # fmt: skip
