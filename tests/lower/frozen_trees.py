"""A lower and its frozen bases, and all that a Lower shows."""

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from agentfs_host.extents import extents
from agentfsd.core.tree import Tree
from agentfsd.lower.frozen_bases import FrozenBases
from agentfsd.lower.frozen_lower import FrozenLower
from agentfsd.lower.host_lower import HostLower
from agentfsd.types import Lower
from tests.lower.commit_trees import make_lower, make_wanted

Seen = dict[bytes, tuple[object, ...]]
_FIELDS = [
    name for name in dir(os.stat_result) if name.startswith("st_") and name not in ("st_atime", "st_atime_ns", "st_blocks")
]  # reading may move access times, and blocks are counted anew when dirty pages are written


class Freezer:
    """A lower in *base*/root, and the bases beside it."""

    def __init__(self, base: Path, lower: HostLower | None = None) -> None:
        self.root, self.place = base / "root", base / "bases"
        self.root.mkdir(exist_ok=True)
        self.lower = lower or HostLower(str(self.root))
        self.bases = FrozenBases(str(self.place), self.lower)

    def freeze(self, base_id: str = "one") -> FrozenLower:
        self.bases.freeze(base_id)
        return self.bases.open(base_id)


@contextmanager
def closing(base: Path) -> Iterator[Freezer]:
    made = Freezer(base)
    try:
        yield made
    finally:
        made.lower.close()


def make_every_kind(root: Path) -> None:
    """A tree with every kind of file and attribute."""
    before = root.parent / "before"
    make_lower(before, 40)
    make_wanted(root, before, 40)
    (root / "empty").mkdir()
    deep = root / "deep"
    for number in range(30):
        deep /= f"{number}"
    deep.mkdir(parents=True)
    (deep / "bottom").write_text("bottom")


def as_seen(lower: Lower, device: int | None = None) -> Seen:
    """All that a Lower shows of everything in it, by path; *device*: st_dev of the root."""
    root = lower.stat(b"").st_dev if device is None else device
    found: Seen = {}
    paths = [b""]
    while paths:
        path = paths.pop()
        status = lower.stat(path)
        found[path] = (*_attributes(lower, path, status, root), *_content(lower, path, status))
        if stat.S_ISDIR(status.st_mode):
            paths += [path + b"/" + entry.name if path else entry.name for entry in lower.readdir(path)]
    return found


def _attributes(lower: Lower, path: bytes, status: os.stat_result, root: int) -> tuple[object, ...]:
    identity = Tree.identify(cast(Tree, SimpleNamespace(root_dev=root)), status)
    xattrs = {name: lower.getxattr(path, name) for name in lower.listxattr(path)}
    shown = tuple(sorted((name, getattr(status, name)) for name in _FIELDS))
    return identity, sorted(xattrs.items()), shown


def _content(lower: Lower, path: bytes, status: os.stat_result) -> tuple[object, ...]:
    if stat.S_ISLNK(status.st_mode):
        return (lower.readlink(path),)
    if stat.S_ISDIR(status.st_mode):
        return (sorted((entry.name, entry.type, entry.ino) for entry in lower.readdir(path)),)
    if not stat.S_ISREG(status.st_mode):
        return ()
    fd = lower.open(path)
    with open(fd, "rb") as file:
        assert lower.stat_open(path, fd).st_ino == status.st_ino
        return hashlib.sha256(file.read()).hexdigest(), list(extents(fd, 0, status.st_size))


def different(one: Seen, two: Seen) -> list[str]:
    """Readable; empty when they are equal."""
    return [
        f"{path!r}: {one.get(path)}\n / {two.get(path)}"
        for path in sorted(one.keys() | two.keys())
        if one.get(path) != two.get(path)
    ]


def errno_of(act: Callable[[], object]) -> int:
    """The errno with which a call fails, 0 if it does not."""
    try:
        act()
    except OSError as exc:
        return exc.errno or -1
    return 0
