"""Resolves a path for a caller: checks search permission on each directory, follows symlinks, refuses to leave the root.

Requests over the socket name whole paths. On the mount the kernel resolves them. Source: path_resolution(7).
"""

import errno
import stat
from typing import NamedTuple

from agentfsd.core import permissions
from agentfsd.core.permissions import Credentials
from agentfsd.core.tree import Inode, Tree
from agentfsd.domain_errors import Refusal, invalid
from agentfsd.types import CONTROL_DIR

PATH_MAX = 4096  # bytes
_LINKS_MAX = 40


class ResolvedPath(NamedTuple):
    """A name in a directory, and its inode.

    Attributes:
        directory: The directory; for the root, the root itself.
        name: The name; b"" for the root.
        inode: None if nothing has that name.
    """

    directory: Inode
    name: bytes
    inode: Inode | None

    @property
    def is_reserved(self) -> bool:
        """Whether this is the name of the control directory in the root: nothing can be made there."""
        return self.name == CONTROL_DIR and self.directory.parent is None


def find(tree: Tree, path: bytes, who: Credentials, *, follow: bool = True, shown_at: tuple[bytes, ...] = ()) -> ResolvedPath:
    """Resolve a path. Its last name need not exist.

    Args:
        tree: The tree to resolve it in.
        path: The path, relative to the root.
        who: The caller whose permissions count.
        follow: Whether to follow a symlink at the end of the path, even a dangling one.
        shown_at: Paths at which processes see the root. An absolute symlink to a place beneath one of them is followed.

    Raises:
        FileNotFoundError: A directory on the way does not exist.
        NotADirectoryError: Something on the way, or before a slash at the end, is no directory.
        OSError: EACCES, ELOOP, ENAMETOOLONG.
        Refusal: ``path-escape`` if the path leads out of the root; ``bad-path`` if it is absolute or holds a zero byte.
    """
    _check(path)
    here, todo, links = _place_of(tree.root), path.split(b"/")[::-1], 0
    while todo:
        name = todo.pop()
        if name in (b"", b"."):
            continue
        directory = _directory(here, who)
        here = _step(directory, name, who)
        link = here.inode
        if link is None or not stat.S_ISLNK(link.mode) or not (follow or any(todo)):
            continue
        links += 1
        if links > _LINKS_MAX:
            raise OSError(errno.ELOOP, "too many symlinks")
        if not any(todo) and not permissions.may_follow(directory, link, who):
            raise PermissionError(errno.EACCES, "the symlink is a stranger's, in a directory that everybody may write to")
        if who.ruled is not None:
            who.ruled.check_open(link, writes=False)
        target = tree.readlink(link)
        here = _place_of(directory)
        if target.startswith(b"/"):
            target, here = _beneath(target, shown_at), _place_of(tree.root)
        todo += target.split(b"/")[::-1]
    if path.endswith((b"/", b"/.")) and here.inode is not None and not (here.inode.is_dir or stat.S_ISLNK(here.inode.mode)):
        raise NotADirectoryError(errno.ENOTDIR, "not a directory")
    return here


def existing(place: ResolvedPath) -> Inode:
    """Return the inode of a resolved path; FileNotFoundError if there is none."""
    if place.inode is None:
        raise FileNotFoundError(errno.ENOENT, "no such file or directory")
    return place.inode


def _check(path: bytes) -> None:
    if b"\0" in path:
        raise invalid("a path cannot hold a zero byte", "leave it out", "bad-path")
    if path.startswith(b"/"):
        raise invalid("the path is absolute", "give one relative to the root, without a leading slash", "bad-path")
    if len(path) >= PATH_MAX:
        raise OSError(errno.ENAMETOOLONG, f"a path has at most {PATH_MAX - 1} bytes")


def _directory(here: ResolvedPath, who: Credentials) -> Inode:
    """Return the directory in which the next name is looked up, after checking that the caller may search it."""
    inode = existing(here)
    if not inode.is_dir:
        raise NotADirectoryError(errno.ENOTDIR, "not a directory")
    permissions.check(inode, permissions.EXECUTE, who)
    return inode


def _step(directory: Inode, name: bytes, who: Credentials) -> ResolvedPath:
    """Look up one name in a directory. What a rule hides from the caller is not there."""
    if name == b"..":
        if directory.parent is None:
            raise _escape()
        return _place_of(directory.parent)
    if name == CONTROL_DIR and directory.parent is None:
        return ResolvedPath(directory, name, None)
    found = directory.tree.find(directory, name)
    if found is not None and who.ruled is not None and who.ruled.hides(directory, name, is_dir=found.is_dir):
        found = None
    return ResolvedPath(directory, name, found)


def _place_of(directory: Inode) -> ResolvedPath:
    return ResolvedPath(directory.parent or directory, directory.name, directory)


def _beneath(target: bytes, shown_at: tuple[bytes, ...]) -> bytes:
    """Return an absolute symlink target as a path relative to the root; Refusal if it is outside."""
    for root in shown_at:
        if (target + b"/").startswith(root.rstrip(b"/") + b"/"):
            return target[len(root) :]
    raise _escape()


def _escape() -> Refusal:
    return Refusal(errno.EXDEV, "path-escape", "the path leads out of the root", "name what is beneath it")
