"""Name the version of a path that a person saw, so that nothing is decided about another one."""

import hashlib
import stat

from agentfsd.core import inode_stat
from agentfsd.core.tree import Inode
from agentfsd.core.whole_contents import content_of

_HASH_DIGITS = 64
_READ_BYTES = 16 << 20  # of a larger file the content is not read


def name_of(inode: Inode | None) -> str:
    """Return a text that is another one as soon as the path is another: for a file its SHA-256, in hex, comes first."""
    if inode is None:
        return "none"
    shown = inode_stat.attributes(inode)
    look = f"{shown.mode:o} {shown.uid} {shown.gid}"
    if inode.is_file and shown.size <= _READ_BYTES:
        return f"{hashlib.sha256(content_of(inode)).hexdigest()} {look}"
    if stat.S_ISLNK(inode.mode):
        return f"symlink {inode.tree.readlink(inode).hex()} {look}"
    return f"changed {shown.ctime_ns} {shown.size} {look}"


def is_still(inode: Inode | None, seen: str) -> bool:
    """Return whether a path is as it was *seen*: a name of a version, or of a file only the SHA-256 of its content."""
    name = name_of(inode)
    return seen == name or (len(seen) == _HASH_DIGITS and name.startswith(f"{seen} "))
