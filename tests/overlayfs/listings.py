"""What is in a branch and in a real directory, path by path, in one form that tests can compare."""

import os
import stat
from typing import NamedTuple

from agentfsd.core.copyup import content_fd
from agentfsd.core.inode_attributes import all_xattrs
from agentfsd.core.inode_stat import attributes
from agentfsd.core.tree import Inode, Tree
from agentfsd.overlayfs.on_disk import CONTROL_DIR


class Listed(NamedTuple):
    """One path. ``twin``: the first path of the same file. ``links``: 0 for a directory. ``mtime_ns``: 0 if not asked for."""

    mode: str
    uid: int
    gid: int
    rdev: int
    content: bytes | None
    xattrs: dict[bytes, bytes]
    twin: bytes
    links: int
    mtime_ns: int


Listing = dict[bytes, Listed]


def of_tree(tree: Tree, *, times: bool) -> Listing:
    """What a branch or snapshot has. *times*: those of files count in any case."""
    found: Listing = {}
    links: dict[int, bytes] = {}

    def visit(node: Inode, path: bytes) -> None:
        for name in sorted(tree.names(node)):
            child, below = tree.lookup(node, name), path + b"/" + name
            now = attributes(child)
            content: bytes | None = None
            if child.is_file:
                content = _content(child)
            elif stat.S_ISLNK(now.mode):
                content = tree.readlink(child)
            first = links.setdefault(now.ino, below) if now.nlink > 1 and not child.is_dir else below
            mtime_ns = now.mtime_ns if times or child.is_file else 0
            found[below] = Listed(
                oct(now.mode), now.uid, now.gid, now.rdev, content, all_xattrs(tree, child), first,
                0 if child.is_dir else now.nlink, mtime_ns,
            )  # fmt: skip
            if child.is_dir:
                visit(child, below)

    visit(tree.root, b"")
    return found


def _content(inode: Inode) -> bytes:
    fd = content_fd(inode)
    try:
        return os.pread(fd, 1 << 21, 0)
    finally:
        os.close(fd)


def of_directory(root: bytes, *, times: bool) -> Listing:
    """What a real directory has."""
    found: Listing = {}
    links: dict[int, bytes] = {}

    def visit(path: bytes) -> None:
        for name in sorted(os.listdir(root + path)):
            below = path + b"/" + name
            now = os.lstat(root + below)
            content: bytes | None = None
            if stat.S_ISREG(now.st_mode):
                with open(root + below, "rb") as file:
                    content = file.read()
            elif stat.S_ISLNK(now.st_mode):
                content = os.readlink(root + below)
            is_dir = stat.S_ISDIR(now.st_mode)
            first = links.setdefault(now.st_ino, below) if now.st_nlink > 1 and not is_dir else below
            xattrs = {
                os.fsencode(key): os.getxattr(root + below, key, follow_symlinks=False)
                for key in os.listxattr(root + below, follow_symlinks=False)
            }
            mtime_ns = now.st_mtime_ns if times or stat.S_ISREG(now.st_mode) else 0
            found[below] = Listed(
                oct(now.st_mode), now.st_uid, now.st_gid, now.st_rdev, content, xattrs, first, 0 if is_dir else now.st_nlink,
                mtime_ns,
            )  # fmt: skip
            if is_dir and below != b"/" + CONTROL_DIR:
                visit(below)

    visit(b"")
    return found


def without_links(found: Listing) -> Listing:
    """A run sees the content object as one more link of a file."""
    return {path: what._replace(links=0) for path, what in found.items()}


def without_times(found: Listing) -> Listing:
    return {path: what._replace(mtime_ns=0) for path, what in found.items()}


def differences(one: Listing, other: Listing) -> list[str]:
    """What differs, path by path, for a person."""
    lines = []
    for path in sorted(one.keys() | other.keys()):
        a, b = one.get(path), other.get(path)
        if a is None or b is None:
            lines.append(f"{path!r}: only in the {'second' if a is None else 'first'}")
        elif a != b:
            fields = [f"{name} {x!r} / {y!r}" for name, x, y in zip(Listed._fields, a, b, strict=True) if x != y]
            lines.append(f"{path!r}: {'; '.join(fields)}")
    return lines


def check_same(one: Listing, other: Listing) -> None:
    """AssertionError with all that differs."""
    found = differences(one, other)
    if found:
        raise AssertionError("\n".join(found))
