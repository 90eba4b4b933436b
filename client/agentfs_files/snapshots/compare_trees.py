"""Compare two lists of entries: which files were added, changed and deleted."""

import os
from collections.abc import Iterable

from agentfs_files.filesystem.records import FilesystemDiff
from agentfs_files.snapshots.restore_plan import Same, is_same_file
from agentfs_files.snapshots.snapshot_tree import SnapshotEntry


def diff_entries(base: Iterable[SnapshotEntry], target: Iterable[SnapshotEntry], is_same: Same) -> FilesystemDiff:
    """Compare everything but directories by type and content; modes, owners and times do not count. Name bytes that are not UTF-8
    become surrogates, as usual in Python.
    """
    old = {entry.path: entry for entry in base if not entry.is_dir}
    new = {entry.path: entry for entry in target if not entry.is_dir}
    common = old.keys() & new.keys()
    modified = {path for path in common if not is_same_file(old[path], new[path], is_same)}
    return FilesystemDiff(_names(new.keys() - common), _names(modified), _names(old.keys() - common), len(common) - len(modified))


def _names(paths: Iterable[bytes]) -> tuple[str, ...]:
    return tuple(os.fsdecode(path) for path in sorted(paths))
