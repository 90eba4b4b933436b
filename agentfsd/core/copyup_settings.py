"""Mode and access list that copy-up gives a file or directory: the settings named copyup.*.

They count once for each file and directory of a branch: when something of itself changes there for the first time, be it content,
attributes or a name. What the operation then asks for comes after, and wins.
"""

import stat
from typing import NamedTuple

from agentfsd.core import acl, declared_settings
from agentfsd.metadata.row_store import Store

_BITS = 0o777


class CopyUpRules(NamedTuple):
    """The parsed values of the settings named copyup.*."""

    mode_strategy: str
    acl_strategy: str
    umask: int
    file_mode: int
    dir_mode: int

    @classmethod
    def stored(cls, store: Store) -> "CopyUpRules":
        values = declared_settings.read(store)
        bits = (int(values[f"copyup.{name}"], 8) for name in ("umask", "file_mode", "dir_mode"))
        return cls(values["copyup.mode_strategy"], values["copyup.acl_strategy"], *bits)

    def mode_of(self, mode: int) -> int:
        """Apply the mode strategy to a mode, without regard to the access list.

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

    def initial(self, mode: int, xattrs: dict[bytes, bytes]) -> tuple[int, dict[bytes, bytes]]:
        """Return the first mode and xattrs of a copied-up file or directory, given those it has in the lower."""
        if self[:2] == ("clone", "clone"):
            return mode, xattrs
        mode, xattrs = _without_list(mode, xattrs, self.acl_strategy)
        chosen = self.mode_of(mode)
        if chosen != mode and acl.ACCESS in xattrs:
            xattrs = xattrs | {acl.ACCESS: acl.encode(acl.with_mode(acl.decode(xattrs[acl.ACCESS]), chosen))}
        return chosen, xattrs


class CopyUpSettings:
    """The rules that count now for an overlay: a transaction replaces them."""

    def __init__(self, store: Store) -> None:
        self.rules = CopyUpRules.stored(store)


def _without_list(mode: int, xattrs: dict[bytes, bytes], strategy: str) -> tuple[int, dict[bytes, bytes]]:
    """Mode and xattrs after the ACL strategy. Mode bits cannot say what a directory's default list does: that goes in both."""
    if strategy == "clone":
        return mode, xattrs
    if acl.ACCESS in xattrs:
        mode = acl.without_list(acl.decode(xattrs[acl.ACCESS]), mode, fold=strategy == "map-basic")
    return mode, {name: value for name, value in xattrs.items() if name not in (acl.ACCESS, acl.DEFAULT)}
