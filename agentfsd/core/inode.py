"""One file, directory or link as one branch sees it, in memory. Its rules live in the modules beside this one."""

import os
import stat
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from agentfsd.metadata.rows import InodeRow
from agentfsd.types import ContentFile

if TYPE_CHECKING:
    from agentfsd.core.tree import Tree

ROOT_ID = 1
WHITEOUT = 0

# Numbers of what was made in the overlay start here: above any that a lower hands out, below 2**53, so that
# programs which hold inode numbers in a double (Node.js) can still tell two files apart.
NEW_INO_BASE = 1 << 52


class Attributes(NamedTuple):
    """What stat(2) shows; times in ns, ``blocks`` of 512 bytes."""

    ino: int
    mode: int
    nlink: int
    uid: int
    gid: int
    rdev: int
    size: int
    blocks: int
    atime_ns: int
    mtime_ns: int
    ctime_ns: int
    btime_ns: int


class LowerIdentity(NamedTuple):
    """How a lower object is told from whatever stands at its path later. ``dev`` is 0 for the lower root's own device."""

    ino: int
    dev: int
    size: int
    mtime_ns: int
    ctime_ns: int


NO_LOWER = LowerIdentity(0, 0, 0, 0, 0)


class Inode:
    """A node of a Tree. ``id`` is 0 until a row stands for it: until then all is read from the lower.

    ``entries`` (directories) maps names to inode ids, WHITEOUT for a deleted one; None: not loaded yet.
    ``file`` is the open content object, ``lower_fd`` the open lower file, while ``opens`` is above 0.
    ``content_layer`` is the layer that owns the object: it may be written in place only when that is the tree's head.
    """

    __slots__ = (
        "__weakref__",
        "anonymous",
        "atime_ns",
        "btime_ns",
        "content",
        "content_layer",
        "ctime_ns",
        "entries",
        "file",
        "gid",
        "id",
        "ino",
        "linkable",
        "linked",
        "lower",
        "lower_fd",
        "lower_path",
        "mode",
        "mtime_ns",
        "name",
        "nlink",
        "opens",
        "parent",
        "rdev",
        "row_layer",
        "target",
        "tree",
        "uid",
        "xattrs",
    )

    def __init__(self, tree: "Tree", parent: "Inode | None", name: bytes) -> None:
        self.tree = tree
        self.parent = parent
        self.name = name
        self.id = 0
        self.row_layer = 0
        self.ino = 0
        self.mode = 0
        self.uid = self.gid = self.rdev = 0
        self.nlink = 1
        self.atime_ns = self.mtime_ns = self.ctime_ns = self.btime_ns = 0
        self.content = 0
        self.content_layer = 0
        self.target: bytes | None = None
        self.xattrs: dict[bytes, bytes] | None = None
        self.lower_path: bytes | None = None
        self.lower = NO_LOWER
        self.linked = False
        self.entries: dict[bytes, int] | None = None
        self.file: ContentFile | None = None
        self.lower_fd = -1
        self.opens = 0
        self.linkable = False  # made without a name, and never had one
        self.anonymous = False  # content that no row refers to: it goes with the last close

    @property
    def is_dir(self) -> bool:
        return stat.S_ISDIR(self.mode)

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.mode)

    @property
    def path(self) -> bytes:
        """Where it is now, relative to the root of its tree; for a file one of its names."""
        parts = []
        node: Inode | None = self
        while node is not None and node.parent is not None:
            parts.append(node.name)
            node = node.parent
        return b"/".join(reversed(parts))

    @property
    def has_own_data(self) -> bool:
        """Whether its data is the overlay's; False while it is still read from the lower."""
        return self.content != 0 or self.anonymous

    @property
    def has_open_data(self) -> bool:
        return self.file is not None or self.lower_fd >= 0

    @property
    def has_live_times(self) -> bool:
        """Whether size's companion times are the object's own; a row newer than its sealed object has its own times."""
        return self.anonymous or (self.content != 0 and self.content_layer == self.row_layer)

    def load(self, row: InodeRow, content_layer: int) -> None:
        """Takes what a stored row says."""
        self.id, self.row_layer, self.ino, self.mode = row.id, row.layer, row.ino, row.mode
        self.uid, self.gid, self.nlink, self.rdev = row.uid, row.gid, row.nlink, row.rdev
        self.atime_ns, self.mtime_ns, self.ctime_ns = row.atime_ns, row.mtime_ns, row.ctime_ns
        self.btime_ns = row.btime_ns
        self.content, self.content_layer = row.content, content_layer
        self.target, self.lower_path, self.linked = row.target, row.lower_path, bool(row.linked)
        self.xattrs = _XATTRS.decode(row.xattrs) if row.xattrs else {}
        self.lower = LowerIdentity(row.lower_ino, row.lower_dev, row.lower_size, row.lower_mtime, row.lower_ctime)

    def row(self, layer: int) -> InodeRow:
        """What to store for it in *layer*."""
        xattrs = msgspec.msgpack.encode(self.xattrs) if self.xattrs else None
        return InodeRow(
            self.id, layer, self.ino, self.mode, self.uid, self.gid, self.nlink, self.rdev,
            self.atime_ns, self.mtime_ns, self.ctime_ns, self.btime_ns, self.content, self.target, xattrs,
            self.lower_path, *self.lower, int(self.linked),
        )  # fmt: skip

    def release_files(self) -> None:
        """Closes what is open for its data."""
        if self.file is not None:
            self.file.close()
            self.file = None
        if self.lower_fd >= 0:
            os.close(self.lower_fd)
            self.lower_fd = -1

    def __del__(self) -> None:
        self.release_files()


_XATTRS = msgspec.msgpack.Decoder(dict[bytes, bytes])
