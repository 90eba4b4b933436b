"""Find out by comparing entries what must change in a tree to restore a snapshot. Nothing is written here."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from agentfs_files.snapshots.snapshot_tree import SnapshotEntry

Same = Callable[[SnapshotEntry, SnapshotEntry], bool]  # (wanted, present) -> whether two regular files have the same content


@dataclass(slots=True)
class RestorePlan:
    """The steps of a restore.

    ``replace`` holds the topmost paths to create anew, each with its entries, itself first. ``remove`` holds the topmost paths to
    remove. ``adjust`` holds (wanted, present) for files and directories that stay with other attributes.
    """

    replace: dict[bytes, list[SnapshotEntry]] = field(default_factory=dict)
    remove: list[bytes] = field(default_factory=list)
    adjust: list[tuple[SnapshotEntry, SnapshotEntry]] = field(default_factory=list)

    def touched(self) -> set[bytes]:
        """Return the directories in which a name changes."""
        return {path.rpartition(b"/")[0] for path in (*self.replace, *self.remove)}


def make_plan(
    wanted: Iterable[SnapshotEntry], present: Mapping[bytes, SnapshotEntry], unreadable: set[bytes], is_same: Same
) -> RestorePlan:
    """Compare two lists of entries. Both must be in the order of a scan: a directory, then all of its content, then its next
    sibling.
    """
    entries = list(wanted)
    staying = _files_that_stay(entries, present, is_same)
    plan = RestorePlan()
    top = b""
    for entry in entries:
        if top and entry.path.startswith(top + b"/"):
            plan.replace[top].append(entry)
            continue
        there = present.get(entry.path)
        if there is None or not _stays(entry, there, staying, unreadable):
            top = entry.path
            plan.replace[top] = [entry]
        elif entry.attributes() != there.attributes():
            plan.adjust.append((entry, there))
    paths = {entry.path for entry in entries}
    top = b""
    for path in present:
        if top and path.startswith(top + b"/"):
            continue
        if path in plan.replace:
            top = path
        elif path not in paths:
            top = path
            plan.remove.append(path)
    return plan


def _stays(entry: SnapshotEntry, there: SnapshotEntry, staying: set[bytes], unreadable: set[bytes]) -> bool:
    if entry.is_dir:
        return there.is_dir and there.path not in unreadable
    return entry.path in staying


def is_same_file(entry: SnapshotEntry, there: SnapshotEntry, is_same: Same) -> bool:
    """Tell whether two entries that are not directories are equal in type, content, target and device."""
    if entry.mode >> 12 != there.mode >> 12:
        return False
    if entry.is_file:
        return entry.size == there.size and is_same(entry, there)
    return entry.target == there.target and entry.rdev == there.rdev


def _files_that_stay(entries: list[SnapshotEntry], present: Mapping[bytes, SnapshotEntry], is_same: Same) -> set[bytes]:
    """Return the paths whose file is already right. Either all names of a file stay or none; no file stays for two."""
    names: dict[int, list[SnapshotEntry]] = {}
    groups: list[list[SnapshotEntry]] = []
    for entry in entries:
        if entry.is_dir:
            continue
        if not entry.group:
            groups.append([entry])
        elif entry.group in names:
            names[entry.group].append(entry)
        else:
            groups.append(names.setdefault(entry.group, [entry]))
    inside = Counter(there.inode for there in present.values() if there.group)
    staying: set[bytes] = set()
    claimed: set[int] = set()
    for group in groups:
        there = [found for entry in group if (found := present.get(entry.path)) is not None]
        if len(there) < len(group) or not is_same_file(group[0], there[0], is_same):
            continue
        if there[0].group and not _is_ours(group, there, inside, claimed):
            continue
        if len(group) > 1 and not _is_one_file(there):
            continue
        staying.update(entry.path for entry in group)
    return staying


def _is_one_file(there: list[SnapshotEntry]) -> bool:
    return all(entry.group and entry.inode == there[0].inode for entry in there)


def _is_ours(group: list[SnapshotEntry], there: list[SnapshotEntry], inside: Counter[int], claimed: set[int]) -> bool:
    """Tell whether a file with several names may stay: for one group only, and with new attributes only if all of its names are
    inside the root.
    """
    first = there[0]
    if first.inode in claimed:
        return False
    if group[0].attributes() != first.attributes() and inside[first.inode] < first.links:
        return False
    claimed.add(first.inode)
    return True
