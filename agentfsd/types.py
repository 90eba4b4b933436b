"""Plain records and protocols that several rooms share; nothing here does any work."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

DEFAULT_BRANCH = "main"
CONTROL_DIR = b".agentfs"


@dataclass(frozen=True, slots=True)
class LowerEntry:
    """One name in a lower directory: ``type`` is an S_IFMT value (0 when the file system does not say)."""

    name: bytes
    type: int
    ino: int


class Lower(Protocol):
    """Read-only access to the workspace. Paths are bytes relative to its root, ``b""`` the root itself, no leading slash.

    No call follows a symlink in any component and none leaves the root. Errors are OSError.
    Source: the LowerFS provider of the AgentFS specification.
    """

    frozen: bool  # whether it stays as it is: a frozen base, not the real directory

    @property
    def description(self) -> str:
        """The absolute path it was made from, for people and for the state's identity."""
        ...

    def stat(self, path: bytes) -> os.stat_result: ...
    def open(self, path: bytes) -> int:
        """A read-only descriptor (O_CLOEXEC, O_NOATIME where permitted); the caller closes it. Regular files only."""
        ...

    def stat_open(self, path: bytes, fd: int) -> os.stat_result:
        """The present state of the file behind a descriptor of open(), whatever its path leads to by now."""
        ...

    def open_to_give(self, path: bytes, flags: int) -> int:
        """A descriptor for somebody else: for reading, with open(2)'s other *flags*, and nothing makes it one for writing.

        What it leads to may be another file than open() finds (a file system that is mounted inside): compare. EPERM.
        """
        ...

    def readdir(self, path: bytes) -> list[LowerEntry]: ...
    def readlink(self, path: bytes) -> bytes: ...
    def getxattr(self, path: bytes, name: bytes) -> bytes: ...
    def listxattr(self, path: bytes) -> list[bytes]: ...
    def statvfs(self) -> os.statvfs_result: ...
    def damage(self) -> Iterator[str]:
        """What a frozen base has lost: a sentence for each path, and "" after each directory, where other work may run."""
        ...

    def close(self) -> None: ...


class LowerChange(NamedTuple):
    """What may have changed in *directory*: one name, or ``b""`` its own attributes, or None both these and every name.

    With None the directory is no longer watched: it went, or its path leads elsewhere; its name in the directory above is
    told too, and so is each watched directory below. LOWER_LOST stands for the whole lower.
    """

    directory: bytes
    name: bytes | None
    replaced: bool  # the name came, went, or leads to another file; else only attributes or content of the same file changed


LOWER_LOST = LowerChange(b"", None, True)  # nothing is watched any more, and all that was read is to be read anew


class LowerNews(Protocol):
    """Tells which names of watched lower directories changed; ``fd`` is readable when there is news, -1 for never."""

    fd: int

    def watch(self, path: bytes) -> bool:
        """True when changes directly in that directory will be reported from now on."""
        ...

    def forget(self, path: bytes) -> None: ...
    def news(self) -> list[LowerChange]: ...
    def close(self) -> None: ...


class ContentFile(Protocol):
    """An open content object. Its own size, times and holes are authoritative. Not tied to any branch.

    ``stays``: the file behind the descriptor is the object for as long as it is open. ``is_readonly``: nobody may open the object
    for writing, because of its mode.
    """

    stays: bool
    is_readonly: bool

    def fileno(self) -> int:
        """The descriptor that holds the content now (a spill may replace it: do not keep it)."""
        ...

    def pread(self, size: int, offset: int) -> bytes: ...
    def pwrite(self, data: bytes | memoryview, offset: int) -> int:
        """Writes *data*; fewer bytes than that only when the room ran out midway, ENOSPC and the like when none fitted."""
        ...

    def truncate(self, size: int) -> None: ...
    def stat(self) -> os.stat_result: ...
    def utime(self, atime_ns: int, mtime_ns: int) -> None: ...
    def touch_atime(self) -> bool:
        """Moves the access time and nothing else, as a read does under relatime; False where access times are off."""
        ...

    def sync(self, data_only: bool) -> None: ...
    def allocate(self, mode: int, offset: int, length: int) -> None:
        """fallocate(2): room in advance, holes, zeroes, by its FALLOC_FL bits; EOPNOTSUPP."""
        ...

    def give_name(self, object_id: int) -> None:
        """Makes what create_unnamed() gave an object of that number; FileExistsError."""
        ...

    def copy_from(self, source_fd: int, from_offset: int, to_offset: int, length: int) -> int:
        """copy_file_range(2) into it; shares blocks where clone() does. Bytes copied, perhaps fewer than *length*."""
        ...

    def start_writeback(self) -> None:
        """Has what was written begin its way to the disk; does not wait."""
        ...

    def reopen(self, flags: int) -> int:
        """A further descriptor of the content, for somebody else, with open(2)'s *flags*; the caller closes it. EOPNOTSUPP.

        One for reading alone cannot be made into one for writing; EPERM where that cannot be promised.
        """
        ...

    def is_open_elsewhere(self) -> bool:
        """Whether anybody but this has it open or mapped, in any process; True where nobody knows."""
        ...

    def close(self) -> None: ...


class Aside(NamedTuple):
    """Content that was set aside. ``size`` in bytes."""

    path: str
    object_id: int
    size: int
    mtime_ns: int


class Backstore(Protocol):
    """Where the contents of changed files live, by object number. Knows nothing of names, branches or snapshots."""

    @property
    def kind(self) -> str: ...
    @property
    def persistent(self) -> bool:
        """True when content survives the daemon's death (hostfs, ramdisk); False when it goes with it (memory)."""
        ...

    @property
    def native_snapshots(self) -> str:
        """What clones of objects are: ``reflink``, they share their blocks, or ``none``, copies."""
        ...

    @property
    def place(self) -> str:
        """The directory that its files lie in; in memory, that of what is too large for it."""
        ...

    def create(self, object_id: int) -> ContentFile:
        """A new empty object; FileExistsError when there is one."""
        ...

    def create_unnamed(self) -> ContentFile:
        """Empty content that goes with its descriptor unless it is given a name; EOPNOTSUPP."""
        ...

    def open(self, object_id: int) -> ContentFile:
        """Opens for reading and writing; DamagedContent when it is missing, or is no regular file of ours."""
        ...

    def stat(self, object_id: int) -> os.stat_result:
        """DamagedContent as open() has it."""
        ...

    def clone(self, source_fd: int, object_id: int, max_copy_bytes: int | None = None) -> ContentFile:
        """A new object with the content of *source_fd*: reflink where it may, else a copy, holes kept. No trace on failure.

        *max_copy_bytes*: EFBIG where there is no reflink and more data than that.

        Safe to call in a worker thread.
        """
        ...

    def take(self, directory: int, name: bytes, object_id: int) -> os.stat_result:
        """Makes a regular file on the same file system an object, which is then the same file, and returns its status.

        *directory* is a descriptor. FileNotFoundError when there is no such file; OSError where that is impossible.
        """
        ...

    def share(self, object_id: int, new_id: int) -> bool:
        """Gives an object that nobody writes any more a second number. False if that cannot be: clone() it then.

        Removing one number leaves the content under the other. FileExistsError as create() has it.
        """
        ...

    def remove(self, object_id: int) -> None:
        """Forgets an object (no error when it is gone already); descriptors that are open keep working."""
        ...

    def ids(self) -> Iterator[int]:
        """The numbers under which there is a regular file."""
        ...

    def set_aside(self, object_id: int) -> None:
        """Takes what is there under a number out of the way, and keeps it: nobody can explain it."""
        ...

    def aside(self) -> list["Aside"]:
        """What was set aside."""
        ...

    def take_back(self, object_id: int) -> bool:
        """Puts what was set aside last under that number in its place again; False without any, or when the place is taken."""
        ...

    def discard_aside(self) -> None:
        """Removes what was set aside."""
        ...

    def statvfs(self) -> os.statvfs_result: ...
    def usage(self) -> dict[str, int]:
        """``objects`` and ``bytes`` held; memory adds ``spilled_objects`` and ``spilled_bytes``."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class BranchInfo:
    """What people and programs may know of a branch. ``base`` names the ref it was made from, "" for the bare lower."""

    name: str
    id: str
    base: str
    created_ns: int
    last: str = ""  # id of the newest snapshot in its history


@dataclass(frozen=True, slots=True)
class SnapshotSummary:
    """An immutable point of a branch. ``parent`` is the id of the snapshot before it, "" for none."""

    name: str
    id: str
    branch: str
    parent: str
    created_ns: int
    tag: str
    author_pid: int
    file_count: int
    bytes_changed: int
    kind: str = ""  # why it was taken when nobody named it: run, safety, merge
    author: str = ""  # command of the process that asked
    merged: tuple[str, ...] = ()  # ids of snapshots of other branches that were merged since the parent


@dataclass(frozen=True, slots=True)
class StepSummary:
    """A moment of an agent's session: before a prompt (``call`` is 0) or before a call of a tool.

    ``snapshot`` (its id is ``snapshot_id``) holds the branch's state of that moment. ``key`` is the harness's name for the call.
    ``replaced``: a restore or an undo had replaced the branch's files since the session's step before. ``home_id``: the branch in
    which the session goes on when it is resumed.
    """

    id: int
    session: str
    agent: str
    branch: str
    branch_id: str
    turn: int
    call: int
    key: str
    title: str
    created_ns: int
    snapshot: str
    snapshot_id: str
    replaced: bool
    home_id: str


@dataclass(frozen=True, slots=True)
class PathChange:
    """One path that differs between two refs.

    ``status``: A added, M content, D deleted, R renamed (and perhaps changed), T type, m mode or owner, x xattrs.
    ``what``: all that differs, of content, type, mode, owner, xattrs.
    """

    status: str
    path: bytes
    old_size: int  # bytes; -1 where there is no such side, 0 for what is no regular file
    new_size: int
    lower_moved: bool = False  # the lower changed since the branch changed this path
    old_path: bytes = b""  # of what was renamed
    what: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, as the kernel says. ``pid`` is a process (not a thread) in the daemon's pid namespace, 0 when outside."""

    pid: int
    uid: int
    gid: int


class ControlChannel(Protocol):
    """One open of the control file: requests in, replies out, on one descriptor."""

    async def write(self, data: bytes) -> None:
        """Takes one request and has its reply ready when it returns; OSError for what cannot be answered in words."""
        ...

    def read(self, size: int) -> bytes:
        """The next bytes of the pending reply; b"" when all of it was read."""
        ...

    def close(self) -> None: ...


class ControlOpener(Protocol):
    """Makes a ControlChannel for a caller, and the texts behind ``.agentfs/status`` and ``status.json``."""

    def open(self, caller: Caller) -> ControlChannel: ...
    async def status_text(self, caller: Caller) -> bytes: ...
    async def status_json(self, caller: Caller) -> bytes: ...


@dataclass(frozen=True, slots=True)
class BranchView:
    """What one run gets to see its branch by. ``mount``: a descriptor of a mount that is nowhere yet; ``user_namespace``: one of
    the user namespace to enter first, if any. ``io``: how files get to it; ``joined``: other runs use that connection as well.
    ``leave()`` is to be called once, when the run has ended."""

    io: str
    joined: bool
    mount: int
    user_namespace: int | None
    leave: Callable[[], None]


@dataclass(frozen=True, slots=True)
class HomeView:
    """What one run gets to see its branch's layer over the home directory by.

    Attributes:
        mount: A descriptor of a mount that is nowhere yet.
        leave: To be called once, when the run has ended.
    """

    mount: int
    leave: Callable[[], None]
