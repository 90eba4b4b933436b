"""An overlay without a mount, over real directories, for tests of core and control."""

import os
from pathlib import Path

from agentfsd.backstore.hostfs import HostBackstore
from agentfsd.core import data, directory_entries
from agentfsd.core.directory_entries import Owner
from agentfsd.core.ids import IdMaker
from agentfsd.core.overlay import Overlay
from agentfsd.core.tree import Inode, Tree
from agentfsd.lower.frozen_bases import FrozenBases
from agentfsd.lower.host_lower import HostLower
from agentfsd.metadata.row_store import Store

OWNER = Owner(os.geteuid(), os.getegid())


class Opened:
    """A state directory and a lower below *base*, open until close()."""

    def __init__(self, base: Path) -> None:
        self.base = base
        (base / "lower").mkdir(exist_ok=True)
        self.open()

    def open(self) -> None:
        self.lower = HostLower(str(self.base / "lower"))
        self.backstore = HostBackstore(str(self.base / "objects"))
        self.store = Store.open(str(self.base / "meta.db"), "lower")
        self.bases = FrozenBases(str(self.base / "bases"), self.lower)
        self.overlay = Overlay(self.store, self.lower, self.backstore, open_base=self.bases.open)

    def close(self) -> None:
        self.overlay.lowers.close()
        self.store.close()
        self.backstore.close()
        self.lower.close()

    def reopen(self) -> None:
        self.close()
        self.open()

    def freeze(self) -> str:
        """Make a frozen base, and return its id."""
        base = IdMaker().make()
        self.bases.freeze(base)
        return base

    def tree(self, ref: str = "main") -> Tree:
        return self.overlay.trees.of(ref)

    def write(self, path: str, content: bytes, ref: str = "main") -> Inode:
        """Makes or replaces a file."""
        tree = self.tree(ref)
        parent, _, name = path.encode().rpartition(b"/")
        directory = tree.walk(parent)
        inode = tree.find(directory, name) or directory_entries.make(tree, directory, name, 0o100644, OWNER)
        data.open_(inode, os.O_WRONLY | os.O_TRUNC)
        data.write(inode, content, 0)
        data.release(inode)
        return inode

    def read(self, path: str, ref: str = "main") -> bytes:
        inode = self.tree(ref).walk(path.encode())
        data.open_(inode, os.O_RDONLY)
        try:
            return data.read(inode, 1 << 20, 0)
        finally:
            data.release(inode)

    def mkdir(self, path: str, ref: str = "main") -> Inode:
        tree = self.tree(ref)
        parent, _, name = path.encode().rpartition(b"/")
        return directory_entries.make(tree, tree.walk(parent), name, 0o040755, OWNER)

    def unlink(self, path: str, ref: str = "main") -> None:
        tree = self.tree(ref)
        parent, _, name = path.encode().rpartition(b"/")
        directory_entries.unlink(tree, tree.walk(parent), name)

    def reap(self) -> None:
        while self.overlay.layers.reap():
            pass
