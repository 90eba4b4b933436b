"""Limit what an archive, whoever made it, may set on this machine."""

import os
import stat
from dataclasses import replace

from agentfs_files.archive.unpack import Archive
from agentfs_files.trees.tree_source import Chunks, TreeEntry, walk


class Permitted:
    """An archive without dangerous attributes.

    It has no setuid bits, devices, FIFOs or sockets, and only extended attributes of the user namespace. If this process is root,
    everything belongs to the owner of *root*, the target directory; else to this user. Symlinks stay, but the code that writes
    them does not follow them.
    """

    def __init__(self, archive: Archive, root: os.stat_result) -> None:
        self._archive = archive
        self._owner = (root.st_uid, root.st_gid) if os.geteuid() == 0 else (None, None)

    @property
    def file_count(self) -> int:
        """Number of files and symlinks."""
        return sum(1 for entry in walk(self) if not entry.is_dir)

    def root(self) -> TreeEntry:
        """Return the root without attributes, so that the target directory keeps its own."""
        return TreeEntry(b"", stat.S_IFDIR | 0o700, loose=True)

    def children(self, directory: TreeEntry) -> list[TreeEntry]:
        found = self._archive.children(directory)
        return [self._permitted(entry) for entry in found if entry.is_dir or entry.is_file or entry.is_link]

    def chunks(self, entry: TreeEntry) -> Chunks:
        return self._archive.chunks(entry)

    def _permitted(self, entry: TreeEntry) -> TreeEntry:
        bits = stat.S_ISGID | stat.S_ISVTX | 0o777 if entry.is_dir else 0o777
        mode = stat.S_IFMT(entry.mode) | entry.mode & bits
        xattrs = {name: value for name, value in (entry.xattrs or {}).items() if name.startswith("user.")}
        uid, gid = self._owner
        return replace(entry, mode=mode, uid=uid, gid=gid, xattrs=xattrs or None)
