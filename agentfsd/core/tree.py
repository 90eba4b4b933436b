"""The namespace of one branch or snapshot, and its inodes. Other modules change them; inode_stat.py says what stat(2) shows.

A look-up takes one step however long the history is, because a directory's names are merged from all layers once, when they
are first needed.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Protocol
from weakref import WeakValueDictionary

import msgspec

from agentfsd.core import git_directories
from agentfsd.core.copyup_settings import CopyUpSettings
from agentfsd.core.doomed_contents import DoomedContents
from agentfsd.core.inode import NO_LOWER, ROOT_ID, LowerIdentity
from agentfsd.metadata import chain_rows, origin_rows
from agentfsd.metadata.prefetch import Prefetch
from agentfsd.metadata.row_store import Store
from agentfsd.metadata.rows import InodeRow, is_whiteout
from agentfsd.metadata.transaction import Transaction
from agentfsd.types import Backstore, ContentFile, Lower, LowerEntry

NAME_MAX = 255  # bytes
_XATTRS = msgspec.msgpack.Decoder(dict[bytes, bytes])


_SHOWN_OF_LOWER = (
    "id", "row_layer", "ino", "mode", "uid", "gid", "nlink", "rdev", "atime_ns", "mtime_ns", "ctime_ns", "btime_ns", "content",
    "content_layer", "target", "xattrs", "lower_path", "lower", "linked",
)  # fmt: skip


class Inode:
    """A node of a Tree. ``id`` is 0 while no row stores the inode; until then everything is read from the lower.

    ``entries`` of a directory maps each name to an inode id, or to a whiteout if the name is deleted (see is_whiteout()). It is
    None until loaded. While ``opens`` is above 0, ``file`` is the open content object and ``lower_fd`` the open lower file.
    ``content_layer`` is the layer that owns the content object, which may be written in place only if it is the tree's head.
    """

    __slots__ = (
        "__weakref__", "anonymous", "atime_ns", "btime_ns", "content", "content_layer", "ctime_ns", "doomed", "entries", "file",
        "gid", "id", "ino", "linkable", "linked", "lower", "lower_fd", "lower_path", "mode", "mtime_ns", "name", "nlink", "opens",
        "parent", "rdev", "row_layer", "ruled", "target", "tree", "uid", "xattrs",
    )  # fmt: skip

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
        self.linkable = False  # created without a name and never had one, so a link may give it one (O_TMPFILE)
        self.ruled: tuple[object, Any] = (None, None)  # of a directory: see rule_set.RuleSet.state_in()
        self.anonymous = False  # no row refers to its content: the object is `doomed`, or has no name
        self.doomed = 0  # the number of a content object that goes with this object

    @property
    def is_dir(self) -> bool:
        return stat.S_ISDIR(self.mode)

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.mode)

    @property
    def path(self) -> bytes:
        """Its present path, relative to the root of its tree; one of them if a file has hard links."""
        parts = []
        node: Inode | None = self
        while node is not None and node.parent is not None:
            parts.append(node.name)
            node = node.parent
        return b"/".join(reversed(parts))

    @property
    def has_own_data(self) -> bool:
        """Whether its data is in a content object of the overlay; False while it is still read from the lower."""
        return self.content != 0 or self.anonymous

    @property
    def has_open_data(self) -> bool:
        return self.file is not None or self.lower_fd >= 0

    @property
    def has_live_times(self) -> bool:
        """Whether the content object's times are the file's. A row newer than its sealed object stores times of its own."""
        return self.anonymous or (self.content != 0 and self.content_layer == self.row_layer)

    def load(self, row: InodeRow, content_layer: int) -> None:
        """Set the attributes from a stored row. *content_layer* is the layer that owns the row's content object."""
        self.id, self.row_layer, self.ino, self.mode = row.id, row.layer, row.ino, row.mode
        self.uid, self.gid, self.nlink, self.rdev = row.uid, row.gid, row.nlink, row.rdev
        self.atime_ns, self.mtime_ns, self.ctime_ns = row.atime_ns, row.mtime_ns, row.ctime_ns
        self.btime_ns = row.btime_ns
        self.content, self.content_layer = row.content, content_layer
        self.target, self.lower_path, self.linked = row.target, row.lower_path, bool(row.linked)
        self.xattrs = _XATTRS.decode(row.xattrs) if row.xattrs else {}
        self.lower = LowerIdentity(row.lower_ino, row.lower_dev, row.lower_size, row.lower_mtime, row.lower_ctime)

    def show_lower(self, like: "Inode") -> None:
        """Become what *like* is, which no row stores: the lower's. Open files stay open."""
        for slot in _SHOWN_OF_LOWER:
            setattr(self, slot, getattr(like, slot))

    def row(self, layer: int) -> InodeRow:
        """Return the row that stores the inode in *layer*."""
        xattrs = msgspec.msgpack.encode(self.xattrs) if self.xattrs else None
        return InodeRow(
            self.id, layer, self.ino, self.mode, self.uid, self.gid, self.nlink, self.rdev,
            self.atime_ns, self.mtime_ns, self.ctime_ns, self.btime_ns, self.content, self.target, xattrs,
            self.lower_path, *self.lower, int(self.linked),
        )  # fmt: skip

    def release_files(self) -> None:
        """Close the content object and the lower file."""
        if self.file is not None:
            self.file.close()
            self.file = None
        if self.lower_fd >= 0:
            os.close(self.lower_fd)
            self.lower_fd = -1

    def __del__(self) -> None:
        self.release_files()
        if self.doomed:
            self.tree.doomed.remove(self.doomed)


class TreeEvents(Protocol):
    """Receives what happens to the inodes of a tree. OverlayEvents implements it."""

    def copied_up(self, inode: Inode) -> None:
        """Report that a copied-up inode shows another mode or access list than the lower's object."""
        ...

    def gets_row(self, inode: Inode) -> None:
        """Report, before the transaction is committed, that an inode has been given its id."""
        ...

    def loses_names(self, inode: Inode) -> None:
        """Report, before the transaction is committed, that an inode has no name any more."""
        ...


class Borrower(Protocol):
    """Has a branch on loan: programs change it without the daemon, and what they did is brought into it from time to time."""

    def keep_originals(self, tx: Transaction, sealed: int) -> None:
        """Before a layer is sealed for good: give it copies of the contents that programs may still write."""
        ...


class Parts(NamedTuple):
    """The parts that all trees of one overlay share."""

    store: Store
    lower: Lower
    backstore: Backstore
    root_dev: int
    copyup_settings: CopyUpSettings
    events: TreeEvents
    doomed: DoomedContents


class Tree:
    """The merged view of a chain of layers over the lower. Single-threaded; every call is one atomic step."""

    def __init__(
        self, parts: Parts, tree_id: str, head: int, chain: Iterable[int], *, read_only: bool, on_base: bool = False
    ) -> None:  # fmt: skip
        """Open a view. *on_base*: the lower is the frozen base of that chain, so that the tree has seen all that it has."""
        self.store, self.lower, self.backstore, self.root_dev, self.copyup_settings, self.events, self.doomed = parts
        self.id = tree_id
        self.head = head
        self.chain = frozenset(chain)
        self.read_only, self.on_base = read_only, on_base
        self.external_writers: dict[Inode, int] = {}  # number of external writers of each file: see external_writers.py
        self.external_readers: set[Inode] = set()  # files of which a process has a real descriptor, only for reading
        self.external_writers_noted = False
        self.switched_files: list[Inode] = []  # open files that moved to this tree's successor and have other content there
        self.prefetch: Prefetch | None = None
        self.lent: Borrower | None = None  # while it is, nobody else changes the tree
        self._is_taken_over = False
        self.detached = False  # replaced by another state, or deleted: requests for its inodes get ESTALE
        self._by_id: WeakValueDictionary[int, Inode] = WeakValueDictionary()
        self._by_lower: WeakValueDictionary[object, Inode] = WeakValueDictionary()
        self._walked: Inode | None = None
        self.root = self._load_root()

    def _load_root(self) -> Inode:
        root = Inode(self, None, b"")
        row = chain_rows.newest(self.store, ROOT_ID, self.chain)
        if row is not None:
            root.load(row, 0)
        else:
            root.lower_path = b""
            status = self.lower.stat(b"")
            root.mode, root.lower = status.st_mode, self.identify(status)
            root.entries = {}
        self._by_id[ROOT_ID] = root
        return root

    @property
    def is_lent(self) -> bool:
        """Whether only its borrower may change the tree."""
        return self.lent is not None and not self._is_taken_over

    @contextlib.contextmanager
    def taking_over(self) -> Iterator[None]:
        """Permit changes to a tree that is lent, for the time of the block."""
        self._is_taken_over = True
        try:
            yield
        finally:
            self._is_taken_over = False

    # -- finding

    def find(self, directory: Inode, name: bytes) -> Inode | None:
        """Find the inode of *name*; None if there is no such name.

        Raises:
            NotADirectoryError: *directory* is none.
            OSError: ENAMETOOLONG.
        """
        entry = self.search(directory, name)
        return entry[0] if entry is not None else None

    def lookup(self, directory: Inode, name: bytes) -> Inode:
        """Find the inode of *name* as find() does, but raise FileNotFoundError if there is no such name."""
        entry = self.search(directory, name)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, "no such name")
        return entry[0]

    def search(self, directory: Inode, name: bytes) -> tuple[Inode, os.stat_result | None] | None:
        """Find the inode of *name*, and the stat result of the lower object if the search needed it."""
        if len(name) > NAME_MAX:
            raise OSError(errno.ENAMETOOLONG, "name too long")
        entries = directory.entries
        child = (self.entries(directory) if entries is None else entries).get(name)
        if child is not None:
            if not is_whiteout(child):
                return self.inode(child, directory, name), None
            if not self._reappears(directory, name):
                return None
        if directory.lower_path is None:
            return None
        path = join(directory.lower_path, name)
        try:
            status = self.lower.stat(path)
        except (FileNotFoundError, NotADirectoryError):  # NotADirectoryError: a program has changed the lower meanwhile
            return None
        return self._lower_inode(directory, name, path, status), status

    def walk(self, path: bytes) -> Inode:
        """Find the inode at a path relative to the root, without following symlinks. Raises as lookup() does."""
        node = directory = self.root
        for name in path.split(b"/"):
            if name:
                directory, node = node, self.lookup(node, name)
        self._walked = directory  # held until the next walk, or a walk to each of many siblings would load their names each time
        return node

    def names(self, directory: Inode) -> list[bytes]:
        """Return the merged listing, without ``.`` and ``..``."""
        entries = self.entries(directory)
        names = [name for name, child in entries.items() if not is_whiteout(child)]
        if directory.lower_path is not None:
            names += [entry.name for entry in self._lower_names(directory.lower_path) if self.shows_lower(directory, entry.name)]
        return names

    def kinds(self, directory: Inode) -> Iterator[tuple[bytes, int]]:
        """Yield the merged listing with the type (S_IFMT) of each name, without a stat of each file of the lower."""
        entries = self.entries(directory)
        for name, child in list(entries.items()):
            if not is_whiteout(child):
                yield name, stat.S_IFMT(self.inode(child, directory, name).mode)
        for entry in self._lower_names(directory.lower_path) if directory.lower_path is not None else ():
            if not self.shows_lower(directory, entry.name):
                continue
            if entry.type:
                yield entry.name, entry.type
            elif (found := self.find(directory, entry.name)) is not None:
                yield entry.name, stat.S_IFMT(found.mode)

    def shows_lower(self, directory: Inode, name: bytes) -> bool:
        """Tell whether what *directory* shows at *name* is the lower's, or would be if the lower had something there."""
        child = self.entries(directory).get(name)
        return child is None or (is_whiteout(child) and self._reappears(directory, name))

    def joins_lower(self, directory: Inode, name: bytes) -> bool:
        """Tell whether *name* is for one of git's directories that always show the lower's names, too: see git_directories.py."""
        if name in git_directories.OBJECT_DIRECTORIES:
            database = directory.parent if directory.name == b"objects" else None
        else:
            database = directory if name in git_directories.INNER_DATABASES else None
        return database is not None and all(self.find(database, each) is not None for each in git_directories.IN_EVERY_DATABASE)

    def _reappears(self, directory: Inode, name: bytes) -> bool:
        if directory.lower_path is None or not self.joins_lower(directory, name):
            return False
        row = origin_rows.find(self.store, directory.id, name, self.chain)
        try:
            found = self.lower.stat(join(directory.lower_path, name))
        except (FileNotFoundError, NotADirectoryError):
            return False
        return stat.S_ISDIR(found.st_mode) and (row is None or row[3:8] != self.identify(found))

    def _lower_names(self, path: bytes) -> list[LowerEntry]:
        try:
            return self.lower.readdir(path)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def is_empty(self, directory: Inode) -> bool:
        return not self.names(directory)

    def entries(self, directory: Inode) -> dict[bytes, int]:
        """Return the stored names of a directory; see Inode. They are loaded at the first call."""
        entries = directory.entries
        if entries is None:
            if not stat.S_ISDIR(directory.mode):
                raise NotADirectoryError(errno.ENOTDIR, "not a directory")
            entries = directory.entries = chain_rows.names_in(self.store, directory.id, self.chain) if directory.id else {}
        return entries

    def inode(self, inode_id: int, parent: Inode | None, name: bytes) -> Inode:
        """Return a stored inode that was reached as *name* in *parent*.

        Raises:
            OSError: EIO if the inode has no row.
        """
        known = self._by_id.get(inode_id)
        if known is None:
            rows = self.prefetch.inodes.get(inode_id) if self.prefetch is not None else None
            row = chain_rows.newest(self.store, inode_id, self.chain) if rows is None else chain_rows.newest_of(rows, self.chain)
            if row is None:
                raise OSError(errno.EIO, f"inode {inode_id} is missing from the metadata: run agentfsd fsck")
            known = self._remember(Inode(self, parent, name), row)
        elif parent is not None and known.parent is not parent and not known.is_dir:
            known.parent, known.name = parent, name
        return known

    def _remember(self, inode: Inode, row: InodeRow) -> Inode:
        layer = self.prefetch.objects.get(row.content) if self.prefetch is not None else None
        inode.load(row, layer if layer is not None else self.store.object_layer(row.content) if row.content else 0)
        self._by_id[inode.id] = inode
        return inode

    def adopt(self, inode: Inode) -> None:
        """Register an inode that has just been given its id."""
        self._by_id[inode.id] = inode
        self.events.gets_row(inode)

    def doom(self, inode: Inode, number: int) -> None:
        """Let a content object live as long as the Inode that has it. A row says already that it is garbage."""
        if inode.doomed:
            self.doomed.remove(inode.doomed)
        self.doomed.hold(number)
        whole = self.store.whole
        if whole is None:
            inode.anonymous, inode.content, inode.doomed = True, 0, number
            return
        whole.set(inode, anonymous=True, content=0, doomed=number)  # until it ends, it keeps the Inode, and so the content
        whole.when_undone(lambda: self.doomed.let_go(number))

    def forget(self, inode_ids: Iterable[int]) -> None:
        """Forget inodes whose rows a failed transaction has taken back: their numbers will be given to others."""
        for number in inode_ids:
            self._by_id.pop(number, None)

    def find_stored(self, inode_id: int) -> Inode | None:
        """Return a stored inode; None if it has no name left in this tree."""
        known = self._by_id.get(inode_id)
        if known is not None:
            return known if known.nlink else None
        row = chain_rows.newest(self.store, inode_id, self.chain)
        return self.inode(inode_id, None, b"") if row is not None and row.nlink else None

    def in_use(self) -> list[Inode]:
        """Return the inodes other than directories that have a name and are open."""
        known = [*self._by_id.values(), *self._by_lower.values()]
        return [inode for inode in known if not inode.is_dir and inode.nlink and (inode.opens or inode.has_open_data)]

    def take_in(self, inode: Inode, twin: Inode) -> None:
        """Move *inode* from the tree that this one replaces into this tree, in the place of *twin*, which is the same file."""
        inode.tree, inode.parent, inode.name = self, twin.parent, twin.name
        if not twin.id:
            inode.show_lower(twin)
            for key in [key for key, known in self._by_lower.items() if known is twin]:
                self._by_lower[key] = inode
            return
        row = chain_rows.newest(self.store, twin.id, self.chain)
        assert row is not None
        self._remember(inode, row)

    def stored(self, inode_id: int) -> Inode | None:
        """Return a stored inode, whether or not it has a name; None if this tree has no row of that id."""
        known = self._by_id.get(inode_id)
        if known is None:
            row = chain_rows.newest(self.store, inode_id, self.chain)
            known = self._remember(Inode(self, self.root, b""), row) if row is not None else None
        return known

    def known(self, inode_id: int) -> Inode | None:
        """Return a stored inode if it is in memory, else None."""
        return self._by_id.get(inode_id)

    def in_memory(self, directory: Inode, name: bytes, lower_path: bytes) -> Inode | None:
        """Return the inode of *name* if it is in memory and its data may still be that of *lower_path* in the lower."""
        child = (directory.entries or {}).get(name)
        if child is not None:
            known = self._by_id.get(child)
            return known if known is not None and not known.has_own_data else None
        return self._by_lower.get(lower_path)

    def loaded(self) -> list[Inode]:
        """Return the stored inodes that are in memory."""
        return list(self._by_id.values())

    def from_lower(self) -> list[Inode]:
        """Return the inodes in memory that have no row and are read from the lower."""
        return [inode for inode in self._by_lower.values() if not inode.id]

    # -- unmodified lower objects

    def _lower_inode(self, parent: Inode, name: bytes, path: bytes, status: os.stat_result) -> Inode:
        """Return the inode of the lower's *path*: the same Inode as long as the lower has the same object there."""
        identity = self.identify(status)
        linked = status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode)
        key: object = (identity.ino, identity.dev) if linked else path
        known = self._by_lower.get(key)
        if known is None and linked:
            known = self._linked_inode(identity, parent, name)
        if known is not None and self._still_same(known, identity, status.st_mode):
            if not known.is_dir or known.parent is None:
                known.parent, known.name = parent, name
            return known
        inode = Inode(self, parent, name)
        inode.mode, inode.ino = status.st_mode, identity.shown_ino
        inode.lower_path, inode.lower, inode.linked = path, identity, linked
        self._by_lower[key] = inode
        return inode

    @staticmethod
    def _still_same(known: Inode, identity: LowerIdentity, mode: int) -> bool:
        if stat.S_IFMT(known.mode) != stat.S_IFMT(mode) or known.lower[:2] != identity[:2]:
            return False
        if known.id:  # copied up under another hard link: the same file only while the lower has not changed it
            return known.lower == identity and known.nlink > 0
        if stat.S_ISLNK(mode) and known.lower != identity:
            return False  # a new symlink may have got the same number, and the kernel caches targets
        known.lower = identity
        return True

    def _linked_inode(self, identity: LowerIdentity, parent: Inode, name: bytes) -> Inode | None:
        """Return the inode of a lower object that was copied up under another of its hard links; None if it was not."""
        if not self.chain:
            return None
        for version in self.store.origin_versions(identity.ino, identity.dev):
            if version.layer in self.chain:
                return self.inode(version.id, parent, name)
        return None

    def identify(self, status: os.stat_result) -> LowerIdentity:
        dev = 0 if status.st_dev == self.root_dev else status.st_dev
        return LowerIdentity(status.st_ino, dev, status.st_size, status.st_mtime_ns, status.st_ctime_ns)

    # -- symlinks

    def readlink(self, inode: Inode) -> bytes:
        """Return a symlink's target.

        Raises:
            OSError: EINVAL if the inode is no symlink.
        """
        if not stat.S_ISLNK(inode.mode):
            raise OSError(errno.EINVAL, "not a symlink")
        if inode.target is not None:
            return inode.target
        assert inode.lower_path is not None
        return self.lower.readlink(inode.lower_path)


def join(directory: bytes, name: bytes) -> bytes:
    return directory + b"/" + name if directory else name


def exists_in(lower: Lower, path: bytes) -> bool:
    try:
        lower.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
