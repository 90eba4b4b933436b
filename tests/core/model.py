"""A file tree as plain dictionaries: what the overlay must look like after any sequence of operations."""

import copy
import errno
import stat
from dataclasses import dataclass, field

Path = tuple[bytes, ...]


@dataclass(eq=False)
class Node:
    kind: int
    mode: int = 0o644
    data: bytes = b""
    target: bytes = b""
    xattrs: dict[bytes, bytes] = field(default_factory=dict)
    children: dict[bytes, "Node"] = field(default_factory=dict)

    @property
    def is_dir(self) -> bool:
        return self.kind == stat.S_IFDIR


class Model:
    """One tree. Every operation returns an errno, 0 for success, and changes nothing when it fails."""

    def __init__(self, root: Node | None = None) -> None:
        self.root = root or Node(stat.S_IFDIR, 0o755)

    def copy(self) -> "Model":
        return Model(copy.deepcopy(self.root))

    def get(self, path: Path) -> Node | None:
        node: Node | None = self.root
        for name in path:
            node = node.children.get(name) if node is not None and node.is_dir else None
        return node

    def _parent(self, path: Path) -> Node | int:
        node = self.root
        for name in path[:-1]:
            if not node.is_dir:
                return errno.ENOTDIR
            if name not in node.children:
                return errno.ENOENT
            node = node.children[name]
        return node if node.is_dir else errno.ENOTDIR

    def make(self, path: Path, node: Node) -> int:
        parent = self._parent(path)
        if isinstance(parent, int):
            return parent
        if path[-1] in parent.children:
            return errno.EEXIST
        parent.children[path[-1]] = node
        return 0

    def find(self, path: Path) -> Node | int:
        if not path:
            return self.root
        parent = self._parent(path)
        return parent if isinstance(parent, int) else parent.children.get(path[-1], errno.ENOENT)

    def link(self, old: Path, new: Path) -> int:
        node = self.find(old)
        if isinstance(node, int):
            return node
        parent = self._parent(new)
        if isinstance(parent, int):
            return parent
        if new[-1] in parent.children:
            return errno.EEXIST
        if node.is_dir:
            return errno.EPERM
        parent.children[new[-1]] = node
        return 0

    def unlink(self, path: Path) -> int:
        node = self.find(path)
        if isinstance(node, int):
            return node
        if node.is_dir:
            return errno.EISDIR
        return self._remove(path)

    def rmdir(self, path: Path) -> int:
        node = self.find(path)
        if isinstance(node, int):
            return node
        if not node.is_dir:
            return errno.ENOTDIR
        return errno.ENOTEMPTY if node.children else self._remove(path)

    def _remove(self, path: Path) -> int:
        parent = self._parent(path)
        assert isinstance(parent, Node)
        del parent.children[path[-1]]
        return 0

    def rename(self, old: Path, new: Path, flags: int) -> int:
        node, parent = self.find(old), self._parent(new)
        if isinstance(node, int):
            return node
        if isinstance(parent, int):
            return parent
        target = parent.children.get(new[-1])
        if flags == 1 and target is not None:
            return errno.EEXIST
        if new[: len(old)] == old and len(new) > len(old):
            return errno.EINVAL
        if flags == 2:
            return self._exchange(old, new, node, target)
        if target is node:
            return 0
        refusal = self._replaceable(node, target) if target is not None else 0
        if refusal:
            return refusal
        self._remove(old)
        parent.children[new[-1]] = node
        return 0

    @staticmethod
    def _replaceable(node: Node, target: Node) -> int:
        if target.is_dir and not node.is_dir:
            return errno.EISDIR
        if target.is_dir and target.children:
            return errno.ENOTEMPTY
        return errno.ENOTDIR if node.is_dir and not target.is_dir else 0

    def _exchange(self, old: Path, new: Path, node: Node, target: Node | None) -> int:
        if target is None:
            return errno.ENOENT
        if old[: len(new)] == new and len(old) > len(new):
            return errno.EINVAL
        one, two = self._parent(old), self._parent(new)
        assert isinstance(one, Node) and isinstance(two, Node)
        one.children[old[-1]], two.children[new[-1]] = target, node
        return 0

    def links(self) -> dict[int, int]:
        """How many names each node has, by identity."""
        counts: dict[int, int] = {}
        todo = [self.root]
        while todo:
            for child in todo.pop().children.values():
                counts[id(child)] = counts.get(id(child), 0) + 1
                if child.is_dir:
                    todo.append(child)
        return counts
