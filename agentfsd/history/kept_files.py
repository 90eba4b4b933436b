"""Keeps for other branches what a commit takes out of the lower while they still read it from there."""

from collections.abc import Generator, Iterable

from agentfsd.core import copyup, hard_links
from agentfsd.core.overlay import Overlay
from agentfsd.core.tree import Inode, Tree
from agentfsd.lower.commit_plan import ABSENT, Put, Remove, Step


def keep_for_others(overlay: Overlay, branch_id: str, steps: Iterable[Step]) -> Generator[tuple[int, int, str], None, None]:
    """Copy files of the lower up in branches that have moved them, before a commit removes or replaces them.

    A file that a branch has only renamed is read from its old path in the lower. Call this before the first step is taken; it
    yields (done, total, what).

    Args:
        overlay: The overlay.
        branch_id: The branch that is committed. It keeps nothing: settling.py adapts it.
        steps: What the commit does.
    """
    removed, replaced = set[bytes](), set[bytes]()
    for step in steps:
        if isinstance(step, Remove):
            removed.add(step.path)
        elif isinstance(step, Put) and step.expected != ABSENT:
            replaced.add(step.path)
    read = [(number, path) for number, path in overlay.store.files_of_lower() if path in replaced or _is_below(path, removed)]
    for other in overlay.trees.branch_ids() if read else ():
        if other == branch_id:
            continue
        tree = overlay.trees.of_branch(other)
        for done, (number, path) in enumerate(read):
            inode = tree.find_stored(number)
            if inode is not None and not inode.has_own_data and inode.lower_path == path:
                _keep(tree, inode, path, also_there=path not in replaced)
            yield done, len(read), "keeping what other branches moved"


def _is_below(path: bytes, tops: set[bytes]) -> bool:
    parts = path.split(b"/")
    return any(b"/".join(parts[:depth]) in tops for depth in range(1, len(parts) + 1))


def _keep(tree: Tree, inode: Inode, path: bytes, *, also_there: bool) -> None:
    """Give a file a content of its own. *also_there*: also if the branch shows it at its path in the lower."""
    for name in hard_links.stored(tree, inode.id):
        try:
            shown = tree.walk(name)
        except OSError:
            continue
        if shown is inode and (also_there or name != path):
            copyup.own_content(inode)
            return
