"""Find the other names of a directory in the mount table: bind mounts of it, of directories above it, and of what is in it."""

import os
from collections.abc import Sequence
from typing import NamedTuple

from agentfs_host.mount_table import Mounted, is_within


class Alias(NamedTuple):
    """Another name. ``path`` shows what is at ``below`` in the directory; "" is the directory itself."""

    path: str
    below: str


def aliases(directory: str, table: Sequence[Mounted]) -> list[Alias]:
    """Find all other names of a resolved *directory*. Names that another mount hides are left out."""
    own = _mount_of(directory, table)
    if own is None:
        return []
    place = _join(own.root, os.path.relpath(directory, own.mountpoint))
    others = []
    for mounted in table:
        if mounted is own or mounted.device != own.device:
            continue
        if is_within(place, mounted.root):
            alias = Alias(_join(mounted.mountpoint, os.path.relpath(place, mounted.root)), "")
        elif is_within(mounted.root, place):
            alias = Alias(mounted.mountpoint, os.path.relpath(mounted.root, place))
        else:
            continue
        if not is_within(alias.path, directory) and _mount_of(alias.path, table) is mounted and _is_same(alias, directory):
            others.append(alias)
    return others


def _mount_of(path: str, table: Sequence[Mounted]) -> Mounted | None:
    best: Mounted | None = None
    for mounted in table:
        if is_within(path, mounted.mountpoint) and (best is None or len(mounted.mountpoint) >= len(best.mountpoint)):
            best = mounted
    return best


def _is_same(alias: Alias, directory: str) -> bool:
    try:
        return os.path.samefile(alias.path, _join(directory, alias.below))
    except OSError:
        return False


def _join(directory: str, below: str) -> str:
    return os.path.normpath(os.path.join(directory, below))
