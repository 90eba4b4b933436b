"""Finds which directory of a branch a directory of an upper is, wherever both are, and brings back what the branch lacks."""

import errno

import msgspec

from agentfsd.core import copyup, entry_rows, hard_links, inode_stat
from agentfsd.core.inode import ROOT_ID
from agentfsd.core.inode_attributes import all_xattrs
from agentfsd.core.requested_changes import ChangeReporter
from agentfsd.core.tree import Inode, Tree, join
from agentfsd.metadata.rows import is_whiteout
from agentfsd.metadata.transaction import Transaction
from agentfsd.overlayfs.upper_scan import Found

# What looking beneath says of a path that leads nowhere. Others tell nothing: what is there may be there again.
_NOTHING = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EACCES, errno.EPERM, errno.EINVAL, errno.EXDEV)


def path_beneath(found: Found, above: bytes | None) -> bytes | None:
    """Return the path in the layers beneath of what a directory of the upper shows of them; None if it shows nothing.

    *above* is that of the directory that holds it.
    """
    if found.marks.redirect.startswith(b"/"):
        return found.marks.redirect[1:]
    if above is None or found.marks.opaque:
        return None
    return join(above, found.marks.redirect or found.name)


class TwinDirectories:
    """Directories of one branch and of an upper.

    Args:
        tree: The branch.
        base: What lies beneath the upper.
        numbers: Inode ids in the branch by inode number of the upper's directory, as far as they are known. A number may belong
            to another directory by now, so it counts only where both show the same of the layers beneath.
    """

    def __init__(self, tree: Tree, base: Tree, numbers: dict[int, int]) -> None:
        self._tree, self._base, self._numbers = tree, base, numbers

    def beneath(self, path: bytes | None) -> Inode | None:
        """Return the directory that the layers beneath have at a path, if they have one."""
        try:
            node = self._base.walk(path) if path is not None else None
        except OSError as exc:
            if exc.errno not in _NOTHING:
                raise
            return None
        return node if node is not None and node.is_dir else None

    def find(self, found: Found, beneath: Inode | None, here: Inode | None) -> Inode | None:
        """Return the directory of the branch that a directory of the upper is, if the branch has it.

        Args:
            found: The directory of the upper.
            beneath: What it shows of the layers beneath.
            here: What the branch has at its name.
        """
        number = self._numbers.get(found.status.st_ino, 0)
        if beneath is None:
            return self._made_in_run(number, here)
        if here is not None and here.is_dir and self._shows(here, beneath):
            return here
        if beneath.id:
            node = self._locate(beneath.id)
            if node is None and here is not None and here.is_dir and here.lower_path == beneath.lower_path:
                return here  # the branch has got another state since the run began
            return node
        return self._of_lower(number, beneath)

    def _made_in_run(self, number: int, here: Inode | None) -> Inode | None:
        if not number or self._base.find_stored(number) is not None:
            return None
        node = here if here is not None and here.id == number else self._locate(number)
        if node is None or node.parent is None:
            return None
        is_own = node.lower_path is None or self._tree.joins_lower(node.parent, node.name)
        return node if is_own else None

    def _shows(self, node: Inode, beneath: Inode) -> bool:
        if beneath.id:
            return node.id == beneath.id
        return node.lower_path == beneath.lower_path

    def _of_lower(self, number: int, beneath: Inode) -> Inode | None:
        """Return the directory of the branch that shows a directory of the bare lower."""
        node = self._locate(number) if number else None
        if node is not None and node.lower_path == beneath.lower_path:
            return node
        assert beneath.lower_path is not None
        found = self._below(self._tree.root, beneath.path, beneath.lower_path)
        above, names = beneath.lower_path, b""
        while found is None and above:  # it, or a directory above it, was renamed
            for place in map(self._locate, self._tree.store.directories_of_lower(above)):
                if found is None and place is not None and place.lower_path == above:
                    found = self._below(place, names, beneath.lower_path)
            above, _, name = above.rpartition(b"/")
            names = join(name, names) if names else name
        return found

    def _below(self, node: Inode, names: bytes, lower_path: bytes) -> Inode | None:
        """Return the directory at a path below another, if it shows that directory of the lower."""
        for name in names.split(b"/") if names else ():
            found = self._tree.find(node, name) if node.is_dir else None
            if found is None:
                return None
            node = found
        return node if node.is_dir and node.lower_path == lower_path else None

    def _locate(self, number: int) -> Inode | None:
        """Return a stored directory, with its place; None if the branch has none of that number."""
        node = self._tree.known(number)
        if node is not None and (node.parent is not None or number == ROOT_ID):
            return node if node.is_dir and node.nlink else None
        for path in hard_links.stored(self._tree, number):
            parent, _, name = path.rpartition(b"/")
            try:
                directory = self._tree.walk(parent)
                node = self._tree.find(directory, name)
            except (FileNotFoundError, NotADirectoryError):
                continue
            if node is not None and node.id == number and node.is_dir:
                node.parent, node.name = directory, name
                return node
        return None

    # -- what the branch lacks: a directory that was on its way from one place to another when the last look passed both

    def revive(self, beneath: Inode, directory: Inode, name: bytes, by: ChangeReporter) -> Inode:
        """Give the branch again what the layers beneath have, at *name* in *directory*."""
        with self._tree.store.transaction() as tx:
            copyup.materialize(tx, directory, itself=False)
            made = self._revive(tx, beneath, directory, name)
            entry_rows.count_subdirectory(tx, directory, 1)
            copyup.save(tx, directory)
        by.names_changed(directory, name)
        by.tell("created", made)
        return made

    def _revive(self, tx: Transaction, beneath: Inode, directory: Inode, name: bytes) -> Inode:
        """Do so, without changing the directory's link count. Directories may be deeper than Python's stack."""
        revived = self._put(tx, beneath, directory, name)
        todo = [(beneath, revived)]
        while todo:
            old, made = todo.pop()
            for below, child in self._base.entries(old).items() if old.is_dir and old.id else ():
                if is_whiteout(child):
                    copyup.set_entry(tx, made, below, child)
                    continue
                there = self._tree.find_stored(child)
                if there is None:
                    inode = self._base.inode(child, old, below)
                    todo.append((inode, self._put(tx, inode, made, below)))
                elif not there.is_dir:
                    copyup.materialize(tx, there)
                    tx.set(there, nlink=there.nlink + 1)
                    copyup.save(tx, there)
                    copyup.set_entry(tx, made, below, child)
        return revived

    def _put(self, tx: Transaction, beneath: Inode, directory: Inode, name: bytes) -> Inode:
        """Store what the layers beneath have under its old number, at a name."""
        tree, now, xattrs = self._tree, inode_stat.attributes(beneath), all_xattrs(self._base, beneath)
        row = beneath.row(tree.head)._replace(
            id=beneath.id or tree.store.next_id("inode"), ino=now.ino, mode=now.mode, uid=now.uid, gid=now.gid,
            nlink=now.nlink if beneath.is_dir else 1, atime_ns=now.atime_ns, mtime_ns=now.mtime_ns, ctime_ns=now.ctime_ns,
            xattrs=msgspec.msgpack.encode(xattrs) if xattrs else None,
        )  # fmt: skip
        tree.store.put_inode(row)
        copyup.set_entry(tx, directory, name, row.id)
        made = tree.known(row.id)
        if made is None:
            tx.when_undone(lambda: tree.forget([row.id]))
            return tree.inode(row.id, directory, name)
        made.target = row.target
        tx.set(
            made, row_layer=row.layer, ino=row.ino, mode=row.mode, uid=row.uid, gid=row.gid, nlink=row.nlink, rdev=row.rdev,
            atime_ns=row.atime_ns, mtime_ns=row.mtime_ns, ctime_ns=row.ctime_ns, content=row.content,
            content_layer=tree.store.object_layer(row.content) if row.content else 0, xattrs=xattrs, lower_path=row.lower_path,
            lower=beneath.lower, linked=bool(row.linked), anonymous=False, entries=None, parent=directory, name=name,
        )  # fmt: skip
        return made
