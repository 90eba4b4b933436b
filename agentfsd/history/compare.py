"""Compares two versions of files with libgit2: patches in git's format, and counts of lines.

The daemon runs it as a process of its own unless the files are small. libgit2 holds the interpreter lock while it compares (a
second for a megabyte of shuffled lines), and all requests to the mount would wait. It must never know trees: it gets the
bytes of both sides.
"""

import os
import sys

import msgspec
from pygit2.enums import DiffFind, DiffOption, FileMode

from agentfsd.history.objects import Objects

MAX_PATCH_BYTES = 1 << 29  # all patches of one comparison together: what fits into a reply, also as JSON
_UNCHANGED = b"the same on both sides\n"  # stands for content that is the same on both sides and was not read


class Content(msgspec.Struct, frozen=True):
    """One side of a file: git's mode, and where its bytes are in the spool. ``offset`` is -1 if both sides are the same."""

    mode: int
    offset: int
    size: int


class Pair(msgspec.Struct, frozen=True):
    """One changed path. ``old`` or ``new`` is None if that side has no such file, or one that git does not track.

    ``old_path`` equals ``path`` unless the file was renamed. Sizes are in bytes: -1 on a side that has no such file, 0 if it is
    no regular file. ``note`` says in words what git's format cannot express.
    """

    status: str
    path: bytes
    old_path: bytes
    old: Content | None
    new: Content | None
    old_size: int
    new_size: int
    note: str
    lower_moved: bool
    too_large: bool = False


class Job(msgspec.Struct, frozen=True):
    """The pairs to compare, and what to return about them."""

    pairs: list[Pair]
    stat_only: bool
    context_lines: int
    ignore_space: bool = False

    @property
    def size_bytes(self) -> int:
        """Size of all contents together."""
        return sum(side.size for pair in self.pairs for side in (pair.old, pair.new) if side is not None)


class PairPatch(msgspec.Struct, frozen=True):
    """``added`` and ``removed`` count lines: -1 for a binary or too large file. ``patch`` is empty if only counts were wanted."""

    pair: Pair
    added: int
    removed: int
    is_binary: bool
    patch: bytes

    @property
    def says_nothing(self) -> bool:
        """Whether the file has changed in nothing that was compared."""
        old, new = self.pair.old, self.pair.new
        is_same_kind = old is not None and new is not None and old.mode == new.mode and self.pair.old_path == self.pair.path
        return is_same_kind and not (self.added or self.removed or self.is_binary or self.pair.note)


class ComparisonOutcome(msgspec.Struct, frozen=True):
    """``too_long_at``: the path at which the patches exceeded MAX_PATCH_BYTES. ``patches`` is empty then."""

    patches: list[PairPatch]
    too_long_at: bytes | None = None


def compare(job: Job, spool_fd: int) -> ComparisonOutcome:
    """Return the patch of every pair, in the order of the pairs; none for a pair that differs only in what the job ignores."""
    patches: list[PairPatch] = []
    total = 0
    for pair in job.pairs:
        made = _compare(pair, job, spool_fd)
        if job.ignore_space and made.says_nothing:
            continue
        total += len(made.patch)
        if total > MAX_PATCH_BYTES:
            return ComparisonOutcome([], pair.path)
        patches.append(made)
    return ComparisonOutcome(patches)


def _compare(pair: Pair, job: Job, spool_fd: int) -> PairPatch:
    if pair.too_large:
        return PairPatch(pair, -1, -1, True, b"")
    objects = Objects()
    old, new = (
        objects.tree({path: (objects.blob(_bytes(side, spool_fd)), FileMode(side.mode))} if side is not None else {})
        for path, side in ((pair.old_path, pair.old), (pair.path, pair.new))
    )
    flags = DiffOption.INDENT_HEURISTIC | (DiffOption.NORMAL if job.stat_only else DiffOption.SHOW_BINARY)
    if job.ignore_space:
        flags |= DiffOption.IGNORE_WHITESPACE
    diff = old.diff_to_tree(new, flags, job.context_lines)
    if pair.old_path != pair.path:
        diff.find_similar(flags=DiffFind.FIND_RENAMES, rename_threshold=1)
    added = removed = 0
    is_binary, parts = False, []
    for patch in diff:  # two patches if a file was replaced by one of another type
        if patch is None:
            continue
        _, plus, minus = patch.line_stats
        added, removed = added + plus, removed + minus
        is_binary = is_binary or bool(patch.delta.is_binary)
        if not job.stat_only:
            parts.append(patch.data)
    return PairPatch(pair, -1 if is_binary else added, -1 if is_binary else removed, is_binary, b"".join(parts))


def _bytes(side: Content, spool_fd: int) -> bytes:
    return os.pread(spool_fd, side.size, side.offset) if side.offset >= 0 else _UNCHANGED


def main() -> None:
    """Read a Job from standard input and contents from the descriptor argv[1]; write the ComparisonOutcome to standard output."""
    job = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Job)
    sys.stdout.buffer.write(msgspec.msgpack.encode(compare(job, int(sys.argv[1]))))


if __name__ == "__main__":
    main()
