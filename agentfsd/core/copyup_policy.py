"""Which mode and access list an object of the lower begins with when it is copied up: the settings named copyup.*.

They count once for each file and directory of a branch: when something of itself changes there for the first time, be it content,
attributes or a name. What the operation then asks for comes after, and wins.
"""

import stat
from collections.abc import Callable
from typing import NamedTuple

from agentfsd.core import acl, policy_settings
from agentfsd.core.inode import Inode
from agentfsd.metadata.row_store import Store, Transaction

_BITS = 0o777


class CopyUpRules(NamedTuple):
    """The settings named copyup.*, read."""

    mode_strategy: str
    acl_strategy: str
    umask: int
    file_mode: int
    dir_mode: int

    @classmethod
    def stored(cls, store: Store) -> "CopyUpRules":
        found = policy_settings.read(store)
        bits = (int(found[f"copyup.{name}"], 8) for name in ("umask", "file_mode", "dir_mode"))
        return cls(found["copyup.mode_strategy"], found["copyup.acl_strategy"], *bits)

    def mode_of(self, mode: int) -> int:
        """What the mode strategy makes of a mode, whatever access list there is.

        A umask takes permission bits only, as umask(2) does. A fixed mode is all there is of a file's; a directory keeps
        setgid and the sticky bit, which say whose the files in it are and who may remove them.
        """
        if self.mode_strategy == "clone&umask":
            return mode & ~self.umask
        if self.mode_strategy == "fixed":
            if stat.S_ISDIR(mode):
                return (mode & ~(_BITS | stat.S_ISUID)) | self.dir_mode
            return stat.S_IFMT(mode) | self.file_mode
        return mode


class CopyUpPolicy:
    """What copied-up objects of an overlay begin with. ``listeners`` hear of each that is to show another mode or list than in
    the lower.
    """

    def __init__(self, store: Store) -> None:
        self.rules = CopyUpRules.stored(store)
        self.listeners: list[Callable[[Inode], object]] = []

    def apply(self, tx: Transaction, inode: Inode, ctime_ns: int) -> None:
        """To an inode with the lower's mode and xattrs, which gets *ctime_ns* if either becomes another."""
        rules = self.rules
        if rules[:2] == ("clone", "clone") or not (inode.is_file or inode.is_dir):
            return
        assert inode.xattrs is not None
        mode, xattrs = _without_list(inode.mode, inode.xattrs, rules.acl_strategy)
        chosen = rules.mode_of(mode)
        if chosen != mode and acl.ACCESS in xattrs:
            xattrs = xattrs | {acl.ACCESS: acl.encode(acl.with_mode(acl.decode(xattrs[acl.ACCESS]), chosen))}
        if (chosen, xattrs) != (inode.mode, inode.xattrs):
            tx.set(inode, mode=chosen, xattrs=xattrs, ctime_ns=ctime_ns)
            for listener in self.listeners:
                listener(inode)


def _without_list(mode: int, xattrs: dict[bytes, bytes], strategy: str) -> tuple[int, dict[bytes, bytes]]:
    """Mode and xattrs after the ACL strategy. Mode bits cannot say what a directory's default list does: that goes in both."""
    if strategy == "clone":
        return mode, xattrs
    if acl.ACCESS in xattrs:
        mode = acl.without_list(acl.decode(xattrs[acl.ACCESS]), mode, fold=strategy == "map-basic")
    return mode, {name: value for name, value in xattrs.items() if name not in (acl.ACCESS, acl.DEFAULT)}
