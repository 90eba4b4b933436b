"""Restore a directory: prepare everything new beside it, then exchange names, and exchange them back if one fails.

The root remains the same directory, and a file that is already right remains the same inode.
"""

import os
from functools import partial

import msgspec

from agentfs_files.filesystem.filesystem_errors import SnapshotRestoreError
from agentfs_files.snapshots.build import Builder
from agentfs_files.snapshots.index import Index
from agentfs_files.snapshots.kept_attributes import settle
from agentfs_files.snapshots.restore_plan import RestorePlan, make_plan
from agentfs_files.snapshots.snapshot_tree import Scan, SnapshotEntry, horizon, is_settled, open_file
from agentfs_files.snapshots.strategy import Strategy
from agentfs_files.snapshots.swap import HalfDoneError, Stage, swap
from agentfs_host.descent import Descent


def restore(beneath: Descent, strategy: Strategy, ref: str, index: Index) -> list[SnapshotEntry]:
    """Restore a snapshot, and return what is then known of the root, for the index. After an error the root is unchanged, unless
    the message says otherwise.
    """
    wanted = strategy.load(ref)
    scan = Scan(beneath, index.known(), is_lenient=True)
    present = {entry.path: entry for entry in scan}
    plan = make_plan(wanted, present, scan.unreadable, Comparison(beneath, strategy, ref).is_same)
    _refuse_mounts(plan, scan.foreign)
    stage = Stage(beneath, strategy.home)
    try:
        made = _prepare(stage, strategy, ref, plan)
        known = _known_after(wanted, present, plan, made)
        swap(beneath, stage, plan, present, {entry.path: entry for entry in wanted})
    except HalfDoneError:
        raise
    except BaseException:
        stage.remove()
        raise
    stage.remove()
    if stage.is_in_root:
        settle(beneath.fd(b""), wanted[0])
    return known


class Comparison:
    """Tell whether a file of the root has the content of a snapshot: by the content's name if it is known, else by reading."""

    def __init__(self, beneath: Descent, strategy: Strategy, ref: str) -> None:
        self._beneath, self._strategy, self._ref = beneath, strategy, ref

    def is_same(self, wanted: SnapshotEntry, present: SnapshotEntry) -> bool:
        if present.content and present.content == wanted.content:
            return True
        if present.content and self._strategy.is_exact:
            return False
        try:
            fd = open_file(self._beneath, wanted.path)
        except PermissionError:
            return False
        if fd is None:
            return False
        try:
            return self._strategy.holds(self._ref, wanted, fd)
        finally:
            os.close(fd)


def _refuse_mounts(plan: RestorePlan, foreign: set[bytes]) -> None:
    for path in (*plan.replace, *plan.remove):
        for mount in foreign:
            if mount == path or mount.startswith(path + b"/"):
                raise SnapshotRestoreError(
                    f"{os.fsdecode(path)} would have to go, but something is mounted at {os.fsdecode(mount)}: unmount it first"
                )


def _prepare(stage: Stage, strategy: Strategy, ref: str, plan: RestorePlan) -> dict[bytes, os.stat_result]:
    """Build every topmost path of the plan in the stage, named by its number. Return the stat of each file when it
    was complete.
    """
    if not plan.replace:
        return {}
    places = {entry.path: stage.name(top) + entry.path[len(top) :] for top, entries in plan.replace.items() for entry in entries}
    with Descent(stage.fd) as target:
        builder = Builder(target, places.__getitem__)
        builder.build([entry for entries in plan.replace.values() for entry in entries], partial(strategy.fill, ref))
    return builder.made


def _known_after(
    wanted: list[SnapshotEntry], present: dict[bytes, SnapshotEntry], plan: RestorePlan, made: dict[bytes, os.stat_result]
) -> list[SnapshotEntry]:
    """Return entries with signatures from before the swap, so that any later change to a file shows in its change time."""
    settled_before = horizon()
    adjusted = {entry.path for entry, _ in plan.adjust}
    known = []
    for entry in wanted:
        info = made.get(entry.path)
        if info is not None:
            is_certain = entry.path not in plan.replace and is_settled(info.st_ctime_ns, settled_before) and not entry.xattrs
            ctime_ns = info.st_ctime_ns if is_certain else 0
            known.append(
                msgspec.structs.replace(
                    entry, inode=info.st_ino, ctime_ns=ctime_ns, mode=info.st_mode, uid=info.st_uid, gid=info.st_gid
                )
            )
        elif entry.is_file and entry.path in present and entry.path not in adjusted:
            known.append(msgspec.structs.replace(present[entry.path], content=entry.content))
        else:
            known.append(msgspec.structs.replace(entry, ctime_ns=0))
    return known
