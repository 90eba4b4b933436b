"""Finds again, after the daemon was killed, what the kernel's node numbers stand for.

Directories are found at once, each in the one above it. There are ten times as many files, so a file is found when a request
names its node, or when a look-up finds the file. What the ledger says of a file is compared with the rows, which are right: the
daemon may have been killed between a transaction and its record.
"""

import stat
from collections import defaultdict
from collections.abc import Callable, Iterable, MutableMapping

import msgspec

from agentfsd.core.stored_places import find_placed
from agentfsd.core.tree import Inode, Tree
from agentfsd.fuse import node_records as kinds
from agentfsd.fuse.kernel_nodes import ROOT_NODE, DirNode, FileNode, KernelNode, TreeView, VirtualNode
from agentfsd.fuse.ledger import LedgerRecord
from agentfsd.fuse.node_records import GoneFile
from agentfsd.fuse.nodes import NodeTable
from agentfsd.metadata.rows import InodeRow

_gone_decoder = msgspec.msgpack.Decoder(GoneFile)


class RevivedNodes:
    """The nodes that the kernel has from the daemon before. It implements FormerNodes.

    Args:
        table: The connection's table, with the ledger of the daemon before.
        find_tree: Returns the tree of that id. OSError or Refusal if it has gone.
        nameless: Files without a name that were found again, by tree id and inode number: of all connections.
    """

    def __init__(
        self, table: NodeTable, find_tree: Callable[[str], Tree], nameless: MutableMapping[tuple[str, int], Inode]
    ) -> None:
        self._table, self._records, self._find_tree = table, table.records, find_tree
        self._nameless = nameless
        self._trees: dict[int, str] = {}
        self._made_of: dict[int, LedgerRecord] = {}  # directories and what is in .agentfs
        self._files: dict[int, LedgerRecord] = {}
        self._by_ino: dict[tuple[str, int], int] = {}
        self._gone_by_ino: dict[tuple[str, int], int] = {}  # likewise, files without a name
        self._gone: dict[int, LedgerRecord] = {}
        self._bound: dict[int, list[str]] = defaultdict(list)

    # -- reading the ledger

    def read(self, records: Iterable[LedgerRecord]) -> list[LedgerRecord]:
        """Take over all records of nodes; return the others."""
        orders, bound, others = [], [], []
        held: defaultdict[int, dict[bytes, int]] = defaultdict(dict)  # by node: names, and where their records are
        name_kind, file_kind, files = kinds.HELD_NAME, kinds.FILE, self._files
        for record in records:  # programs wait meanwhile, perhaps for 100,000 files
            at, kind, words, payload = record
            node_id = words[0]
            if kind == file_kind:
                files[node_id] = record
                held[words[2]].setdefault(payload.partition(b"\0")[0], 0)
            elif kind == name_kind:
                names = held[node_id]
                if names.get(payload):
                    self._records.ledger.drop(at)
                else:
                    names[payload] = at
            elif kind == kinds.TREE:
                self._trees[node_id] = record.payload.decode()
                self._records.tree_is(self._trees[node_id], node_id)
            elif kind in (kinds.DIRECTORY, kinds.VIEW_ROOT, kinds.VIRTUAL):
                self._note_directory(record)
            elif kind == kinds.GONE:
                self._gone[node_id] = record
                self._records.gone_at(node_id, record.at)
            elif kind == kinds.BOUND:
                bound.append(record)
            elif kind == kinds.ORDER:
                orders.append(record)
            else:
                others.append(record)
        self._enter(bound, held, orders)
        return others

    def _note_directory(self, record: LedgerRecord) -> None:
        """Keep the newer of two records of one directory: the daemon was killed while it replaced the older."""
        older = self._made_of.get(record.words[0])
        if older is not None and older.words[4] > record.words[4]:
            older, record = record, older
        self._made_of[record.words[0]] = record
        if older is not None:
            self._records.ledger.drop(older.at)

    def _enter(self, bound: list[LedgerRecord], held: dict[int, dict[bytes, int]], orders: list[LedgerRecord]) -> None:
        for record in bound:
            self._bound[record.words[0]].append(self._trees.get(record.words[5], ""))
            self._records.bound_at(record.words[0], record.at)
        self._leave_named()
        self._spare_contents()
        self._bind(self._table.root)
        for number in list(self._made_of):
            self._node(number)
        for record in orders:
            node = self._node(record.words[0])
            if isinstance(node, DirNode):
                node.order = record.payload.split(b"\0")
                self._records.ordered_at(node.id, record.at)
        for number, names in held.items():
            self._hold(number, names)
        for number, (_, _, (_, _, _, _, ino, tree_number), _) in self._files.items():
            by_ino = self._gone_by_ino if number in self._gone else self._by_ino
            by_ino[self._trees.get(tree_number, ""), ino] = number

    def _leave_named(self) -> None:
        """Drop what was recorded of files that have a name: O_TMPFILE files that got one, and files whose removal failed."""
        for number in list(self._gone):
            file = self._files.get(number)
            tree = self._tree(file.words[5]) if file is not None else None
            if file is not None and tree is not None and file.words[3] and self._placed(tree, file.words[3]) is not None:
                del self._gone[number]
                self._records.got_name(number)

    @staticmethod
    def _placed(tree: Tree, row_id: int) -> Inode | None:
        try:
            return find_placed(tree, row_id)
        except OSError:
            return None

    def _spare_contents(self) -> None:
        """Keep contents of files without names: garbage by the rows, but perhaps open in some process."""
        for record in self._gone.values():
            tree = self._tree(record.words[5])
            content = _gone_decoder.decode(record.payload).content
            if tree is not None and content:
                tree.doomed.hold(content)

    def _hold(self, directory_id: int, names: dict[bytes, int]) -> None:
        """Take over the names in a directory."""
        node = self._node(directory_id)
        self._records.ledger.drop(names.pop(b"", 0))
        if isinstance(node, DirNode):
            node.names.take_over(names)
            return
        for at in names.values():
            self._records.ledger.drop(at)

    # -- directories

    def _node(self, number: int) -> KernelNode | None:
        if number == ROOT_NODE:
            return self._table.root
        record = self._made_of.pop(number, None)
        if record is None:
            return self._table.entered(number)
        if record.kind == kinds.VIRTUAL:
            node: KernelNode | None = self._virtual(record)
        elif record.kind == kinds.VIEW_ROOT:
            node = self._view_root(record)
        else:
            node = self._directory(record)
        if node is None:
            self._records.ledger.drop(record.at)
            return None
        node.at, node.lookups = record.at, record.words[1]
        return node

    def _virtual(self, record: LedgerRecord) -> VirtualNode | None:
        number, _, parent_id, owner_id, *_ = record.words
        owner, parent = self._node(owner_id), self._node(parent_id)
        if not isinstance(owner, DirNode):
            return None
        kind, _, name = record.payload.partition(b"\0")
        node = VirtualNode(number, kind.decode(), name, owner)
        self._table.add_virtual(node, parent if isinstance(parent, VirtualNode) else None)
        return node

    def _view_root(self, record: LedgerRecord) -> DirNode | None:
        number, _, virtual_id, _, _, tree_number = record.words
        virtual, tree_id = self._node(virtual_id), self._trees.get(tree_number, "")
        if not isinstance(virtual, VirtualNode):
            return None
        view = TreeView(tree_id)
        view.root = DirNode(number, view, None, b"", self._records.ledger)
        tree = self._tree(tree_number)
        if tree is None:
            view.gone = True
        else:
            virtual.views[tree_id] = view
            self._table.bind(view.root, tree.root)
        self._table.enter(view.root)
        return view.root

    def _directory(self, record: LedgerRecord) -> DirNode:
        number, _, parent_id, is_detached, _, tree_number = record.words
        above = self._node(parent_id)
        parent = above if isinstance(above, DirNode) else self._table.root
        node = DirNode(number, parent.view, parent, record.payload, self._records.ledger)
        self._table.enter(node)
        private = self._trees.get(tree_number, "")
        if not is_detached and private:
            parent.private[private, node.name] = node
        elif not is_detached:
            parent.children[node.name] = node
        if private and private not in self._bound[number]:
            self._bound[number].append(private)
        self._bind(node, is_detached=bool(is_detached) or above is None)
        return node

    def _bind(self, node: DirNode, *, is_detached: bool = False) -> None:
        """Find the directory that each tree has at a node."""
        fixed = node.view.tree_id
        for tree_id in [fixed] if fixed else self._bound.pop(node.id, []):
            tree = self._tree_of(tree_id)
            inode = self._directory_at(node, tree, is_detached=is_detached) if tree is not None else None
            if inode is None:
                continue
            if inode.nlink and not is_detached:
                node.bound.setdefault(tree_id, inode)
                self._table.bind(node, inode)
            else:
                node.bound[tree_id] = inode

    def _directory_at(self, node: DirNode, tree: Tree, *, is_detached: bool) -> Inode | None:
        if node.parent is None:
            return tree.root
        above = node.parent.bound.get(tree.id)
        inode = None
        if above is not None and above.nlink and not is_detached:
            try:
                inode = tree.find(above, node.name)
            except OSError:
                inode = None
        if inode is not None and inode.is_dir:
            return inode
        return self._rebuilt(node.id)

    # -- files

    def numbers(self) -> list[int]:
        """Return the node of each file that no request has named yet."""
        return list(self._files)

    def find(self, number: int) -> KernelNode | None:
        """See FormerNodes."""
        record = self._files.get(number)
        tree = self._tree(record.words[5]) if record is not None else None
        inode = self._inode(record, tree) if record is not None and tree is not None else None
        return self._enter_file(record, inode) if record is not None and inode is not None else None

    def tree_replaced(self, tree: Tree) -> None:
        """See FormerNodes."""
        for number in [number for number, record in self._files.items() if self._trees.get(record.words[5]) == tree.id]:
            record = self._files[number]
            inode = self._inode(record, tree)
            if inode is not None:
                self._enter_file(record, inode)
            elif self._by_ino.get((tree.id, record.words[4])) == number:
                del self._by_ino[tree.id, record.words[4]]

    def find_file(self, inode: Inode) -> FileNode | None:
        """See FormerNodes."""
        key = inode.tree.id, inode.ino
        number = self._gone_by_ino.get(key) if self._nameless.get(key) is inode else self._by_ino.get(key)
        record = self._files.get(number) if number is not None else None
        if record is None:
            return None
        row_id = record.words[3]  # of a row that was never committed, if the daemon was killed then
        if inode.id and row_id not in (0, inode.id) and self._placed(inode.tree, row_id) is not None:
            return None
        return self._enter_file(record, inode)

    def forget(self, number: int, count: int) -> None:
        """See FormerNodes."""
        record = self._files.get(number)
        if record is None:
            return
        at = (record.at >> 3) + 2
        words = self._records.ledger.words
        words[at] = max(words[at] - count, 0)
        if words[at] <= 0:
            gone, tree = self._gone.pop(number, None), self._tree(record.words[5])
            if tree is not None and gone is not None:
                self._let_go(tree, gone)
            node = FileNode.__new__(FileNode)
            node.id, node.at = number, record.at
            self._records.forgotten(node)
            self._leave(record)

    @staticmethod
    def _let_go(tree: Tree, gone: LedgerRecord) -> None:
        """Spare the content of a file without a name no longer, as _spare_contents() did; it goes in a quiet moment."""
        content = _gone_decoder.decode(gone.payload).content
        if content:
            tree.doomed.let_go(content)

    def _enter_file(self, record: LedgerRecord, inode: Inode) -> FileNode:
        self._leave(record)
        gone = self._gone.pop(record.words[0], None)
        if gone is not None:
            self._let_go(inode.tree, gone)
        node = FileNode(record.words[0], inode)
        node.at, node.lookups = record.at, self._records.ledger.words[(record.at >> 3) + 2]
        node.has_pages = inode.is_file
        if inode.id:
            self._records.stored(node, inode.id)
        self._table.add_file(node)
        return node

    def _leave(self, record: LedgerRecord) -> None:
        number, key = record.words[0], (self._trees.get(record.words[5], ""), record.words[4])
        del self._files[number]
        for known in (self._by_ino, self._gone_by_ino):
            if known.get(key) == number:
                del known[key]
        if not self._files:
            self._table.former = None

    def _inode(self, record: LedgerRecord, tree: Tree) -> Inode | None:
        """Find a file by its name, else by its row, else by what was recorded when it lost its last name."""
        number, _, parent_id, row_id, ino, _ = record.words
        name, _, path = record.payload.partition(b"\0")
        parent = self._table.entered(parent_id)
        directory = parent.bound.get(tree.id) if isinstance(parent, DirNode) else None
        try:
            is_there = directory is not None and directory.tree is tree and directory.nlink
            inode = tree.find(directory, name) if directory is not None and is_there else None
            if inode is None and path:
                inode = tree.walk(path)
        except OSError:
            inode = None
        if inode is None or inode.ino != ino or inode.is_dir:
            inode = self._placed(tree, row_id) if row_id else None
        return inode if inode is not None else self._rebuilt(number)

    def _rebuilt(self, node_id: int) -> Inode | None:
        """Build a file or directory without a name, as it was recorded."""
        record = self._gone.get(node_id)
        tree = self._tree(record.words[5]) if record is not None else None
        if record is None or tree is None:
            return None
        gone = _gone_decoder.decode(record.payload)
        row = InodeRow(*gone.row)  # type: ignore[arg-type]
        known = self._nameless.get((tree.id, row.ino))
        if known is not None:  # another connection has it, too
            return known
        inode = Inode(tree, None if gone.linkable else tree.root, b"")
        inode.load(row, tree.store.object_layer(row.content) if row.content and row.content != gone.content else 0)
        inode.nlink, inode.linkable = 0, gone.linkable
        if gone.linkable:
            inode.id = 0
        if stat.S_ISDIR(inode.mode):
            inode.entries, inode.lower_path = {}, None
        elif gone.content:
            inode.file = tree.backstore.open(gone.content)
            tree.doom(inode, gone.content)
        self._nameless[tree.id, row.ino] = inode
        return inode

    # -- trees

    def _tree(self, number: int) -> Tree | None:
        return self._tree_of(self._trees.get(number, ""))

    def _tree_of(self, tree_id: str) -> Tree | None:
        try:
            return self._find_tree(tree_id) if tree_id else None
        except Exception:  # noqa: BLE001 - whatever says that it has gone
            return None
