"""A row of each table, as the rest of the daemon sees it."""

from typing import NamedTuple

WHITEOUT = 0  # stands in place of an inode number in a row of dentry

Touch = tuple[int, int, bytes, int]
"""A row that was written: (layer, directory, name, child) of a name, WHITEOUT for one that is gone; (layer, inode, b"", 0) of
what is no directory."""


def is_whiteout(child: int | None) -> bool:
    """Return whether a stored name hides what the lower or an older layer has under it. None: the name is not stored."""
    return child == WHITEOUT


class InodeRow(NamedTuple):
    """One version of an inode, column by column as schema.py explains them."""

    id: int
    layer: int
    ino: int
    mode: int
    uid: int
    gid: int
    nlink: int
    rdev: int
    atime_ns: int
    mtime_ns: int
    ctime_ns: int
    btime_ns: int
    content: int
    target: bytes | None
    xattrs: bytes | None
    lower_path: bytes | None
    lower_ino: int
    lower_dev: int
    lower_size: int
    lower_mtime: int
    lower_ctime: int
    linked: int


class LowerUse(NamedTuple):
    """A file's data, or a directory's other names, that a stored inode of one layer reads from *path* in the lower."""

    id: int
    layer: int
    path: bytes
    is_directory: bool


class BranchRow(NamedTuple):
    """A branch, column by column as schema.py explains them."""

    id: str
    name: str
    head: int
    base: str
    base_layer: int
    created_ns: int
    base_id: str = ""


class SnapshotRow(NamedTuple):
    """A snapshot, likewise."""

    id: str
    name: str
    branch: str
    branch_id: str
    layer: int
    parent: str
    created_ns: int
    tag: str
    author_pid: int
    file_count: int | None
    bytes_changed: int | None
    kind: str
    author: str


class OriginRow(NamedTuple):
    """What the lower had at a name when a branch changed it, likewise."""

    dir: int
    name: bytes
    layer: int
    lower_ino: int
    lower_dev: int
    lower_size: int
    lower_mtime: int
    lower_ctime: int
    since_ns: int
    base: int


class UnfinishedRow(NamedTuple):
    """A merge that left conflicts in its target, likewise."""

    id: int
    layer: int
    before: int
    record: bytes


class StepRow(NamedTuple):
    """A step of an agent's session, likewise."""

    id: int
    session: str
    agent: str
    branch_id: str
    turn: int
    call: int
    key: str
    title: str
    created_ns: int
    snapshot: str
    restores: int
    replaced: int
    home: str


class RunRow(NamedTuple):
    """A command that was run in a branch, likewise."""

    id: int
    branch_id: str
    command: str
    exit_code: int
    started_ns: int
    ended_ns: int
    changed: int


class NoteRow(NamedTuple):
    """A note about a branch, or an answer to one, likewise."""

    id: int
    branch_id: str
    answers: int
    resolved_ns: int
    news: int
    size: int
    by_agent: int
    created_ns: int
    author: str
    resolved_by: str
    path: bytes
    ino: int
    line: int
    lines: bytes
    text: str


class UndoRow(NamedTuple):
    """An entry of the undo log, likewise."""

    id: int
    kind: str
    branch_id: str
    branch: BranchRow
    snapshot: str
