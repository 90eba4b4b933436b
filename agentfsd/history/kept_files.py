"""Keeps for other branches and for snapshots what a commit takes out of the lower while they still read it from there.

A file or directory that a branch has only renamed is read from its old path in the lower. A renamed file is kept in sealed layers
as well, since snapshots and the common states of later merges show it. No names can be added to a sealed layer: what is in a
renamed directory is kept for branches only.
"""

import errno
import stat
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from agentfsd.core import copyup, hard_links
from agentfsd.core.overlay import Overlay
from agentfsd.core.tree import Inode, Tree
from agentfsd.history.commit import Plan
from agentfsd.history.kept_directories import Progress, keep_all
from agentfsd.history.paths import directories_above
from agentfsd.lower.commit_plan import ABSENT, Put, Remove
from agentfsd.metadata import layer_rows
from agentfsd.metadata.rows import LowerUse
from agentfsd.types import Lower


def keep_for_others(overlay: Overlay, branch_id: str, committed: Tree, plan: Plan) -> Progress:
    """Copy up what other branches and snapshots have moved, before a commit removes or replaces it in the lower.

    Call this before the first step is taken. It yields (done, total, what).

    Args:
        overlay: The overlay.
        branch_id: The branch that is committed. Its newest state keeps nothing: settling.py adapts it.
        committed: The frozen tree that is committed.
        plan: What the commit does.
    """
    going = _going(committed.lower, plan)
    moving = _moving(committed, plan)
    uses = {use for use in overlay.store.uses_of_lower() if going.concern(use)}
    done = {committed.head}
    frozen = overlay.lowers.frozen_layers()  # a frozen base keeps what it has
    for other in overlay.trees.branch_ids() if uses else ():
        head = overlay.refs.branch(other).head
        done.add(head)
        if other != branch_id and head not in frozen:
            tree = overlay.trees.of_branch(other)
            yield from _keep(tree, uses, going, moving)
    files = {use for use in uses if not use.is_directory}
    for layer in sorted({use.layer for use in files} - done - frozen, reverse=True):
        if layer in layer_rows.parents(overlay.store):  # else freed since
            with overlay.trees.writable_at(layer) as tree:
                yield from _keep(tree, files, going, moving)


class _Going(NamedTuple):
    """What leaves the lower.

    Attributes:
        removed: Paths that go with everything in them.
        replaced: Paths of files that others replace.
        above: The directories above all *removed*.
    """

    removed: set[bytes]
    replaced: set[bytes]
    above: set[bytes]

    def takes(self, path: bytes) -> bool:
        """Return whether a path goes."""
        return path in self.removed or not self.removed.isdisjoint(directories_above(path))

    def concern(self, use: LowerUse) -> bool:
        """Return whether a stored file or directory may read something that goes."""
        return self.takes(use.path) or use.path in (self.above if use.is_directory else self.replaced)


def _going(lower: Lower, plan: Plan) -> _Going:
    removed, replaced = set[bytes](), set[bytes]()
    for step in plan.steps:
        if isinstance(step, Remove):
            removed.add(step.path)
        elif isinstance(step, Put) and step.expected != ABSENT:
            (removed if _is_directory(lower, step.path) else replaced).add(step.path)
    return _Going(removed, replaced, {above for path in removed for above in directories_above(path)})


def _is_directory(lower: Lower, path: bytes) -> bool:
    try:
        return stat.S_ISDIR(lower.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _moving(committed: Tree, plan: Plan) -> dict[bytes, bytes]:
    """Return what the lower has at another path after the commit, as it is now: the new path by the old one."""
    moving = {}
    for one in plan.same:
        inode = committed.stored(one.inode) if one.inode else None
        if one.source is not None and one.source != one.path and (inode is None or not inode.has_own_data):
            moving[one.source] = one.path
    return moving


def _keep(tree: Tree, uses: set[LowerUse], going: _Going, moving: Mapping[bytes, bytes]) -> Progress:
    shown = sorted(use for use in uses if use.layer in tree.chain)
    for done, use in enumerate(shown):
        inode = tree.find_stored(use.id)
        if inode is not None and not inode.has_own_data and inode.lower_path == use.path:
            for path in _names(tree, inode):
                if use.is_directory and path != use.path:
                    yield from _keep_directory(inode, going, moving)
                elif not use.is_directory and (path != use.path or use.path not in going.replaced):
                    _own(inode)
                    break
        yield done, len(shown), "keeping what other branches moved"


def _own(inode: Inode) -> None:
    """Copy a file up, unless somebody has removed it from the lower: then nothing is left to keep."""
    try:
        copyup.own_content(inode)
    except OSError as exc:
        if exc.errno != errno.ESTALE:
            raise


def _names(tree: Tree, inode: Inode) -> Iterator[bytes]:
    for name in hard_links.stored(tree, inode.id):
        try:
            shown = tree.walk(name)
        except OSError:
            continue
        if shown is inode:
            yield name


def _keep_directory(directory: Inode, going: _Going, moving: Mapping[bytes, bytes]) -> Progress:
    """Keep what goes of a directory that was moved."""
    path, tree = directory.lower_path, directory.tree
    assert path is not None
    if going.takes(path):
        yield from keep_all(directory, moving.get(path), moving)
        return
    for gone in sorted(going.removed):
        if gone.startswith(path + b"/"):
            node: Inode | None = directory
            for name in gone[len(path) + 1 :].split(b"/"):
                node = tree.find(node, name) if node is not None and node.is_dir else None
            if node is not None and node.lower_path == gone:
                yield from keep_all(node, None, moving)
