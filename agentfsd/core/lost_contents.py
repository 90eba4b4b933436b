"""Names the files, branches and snapshots whose content is lost or damaged, for reports of a consistency check."""

import re
from collections.abc import Generator, Iterable

from agentfsd.core.open_trees import OpenTrees
from agentfsd.core.tree import Tree, join
from agentfsd.escape import printable
from agentfsd.metadata.row_store import Store
from agentfsd.metadata.rows import InodeRow, is_whiteout

_OBJECT = re.compile(r"object (\d+) (is lost|has|does not hold|cannot be read)")
_SHOWN = 5  # at most so many branches and snapshots are named

Users = dict[bytes, list[str]]  # who has a content, by its path there


def naming(trees: OpenTrees, problems: list[str], total: int) -> Generator[tuple[int, int, str], None, list[str]]:
    """Return *problems*; each that is about an object also names the files that use it, and what the user can do."""
    users: dict[int, Users] = {int(match[1]): {} for match in map(_OBJECT.match, problems) if match}
    for label, tree in trees.named() if users else ():
        yield total, total, label
        if not tree.detached:
            _look(trees.parts.store, tree, label, users)
    return [_say(problem, users) for problem in problems]


def _look(store: Store, tree: Tree, label: str, users: dict[int, Users]) -> None:
    inodes = newest_inodes(store, tree)
    rows = [row for row in inodes.values() if row.content in users and row.nlink]
    if not rows:
        return
    names = {
        child: key for key, child in newest_names(store, tree).items() if not is_whiteout(child) and _is_there(inodes, key[0])
    }
    for row in rows:
        users[row.content].setdefault(_path(row, inodes, names), []).append(label)


def _is_there(inodes: dict[int, InodeRow], directory: int) -> bool:
    return directory in inodes and inodes[directory].nlink > 0


def _path(row: InodeRow, inodes: dict[int, InodeRow], names: dict[int, tuple[int, bytes]]) -> bytes:
    """Return one path of the inode, from the root."""
    below, at, seen = b"", row.id, set[int]()
    while at in names and at not in seen:  # a damaged database may lead in a circle
        seen.add(at)
        at, name = names[at]
        below = join(name, below) if below else name
    above = inodes[at].lower_path if at in inodes else None
    return join(above, below) if above and below else below or above or b""


def _say(problem: str, found: dict[int, Users]) -> str:
    match = _OBJECT.match(problem)
    if match is None:
        return problem
    users = found[int(match[1])]
    if not users:
        return f"{problem} (no branch and no snapshot shows it)"
    files = ", and ".join(f"file {path.decode(errors='backslashreplace')!r} of {some(labels)}" for path, labels in users.items())
    in_branch = any(label.startswith("branch ") for labels in users.values() for label in labels)
    advice = "restore it from another state, or remove it" if in_branch else "it goes when the snapshot is deleted"
    return f"{problem} ({files}); {advice}"


def some(labels: Iterable[str]) -> str:
    every = [printable(label) for label in labels]
    more = f" and {len(every) - _SHOWN} more" if len(every) > _SHOWN else ""
    return ", ".join(every[:_SHOWN]) + more


def newest_inodes(store: Store, tree: Tree) -> dict[int, InodeRow]:
    newest: dict[int, InodeRow] = {}
    for row in store.all_inodes():
        if row.layer in tree.chain and (row.id not in newest or newest[row.id].layer < row.layer):
            newest[row.id] = row
    return newest


def newest_names(store: Store, tree: Tree) -> dict[tuple[int, bytes], int]:
    newest: dict[tuple[int, bytes], tuple[int, int]] = {}
    for directory, name, layer, child in store.all_dentries():
        key = (directory, name)
        if layer in tree.chain and newest.get(key, (0, 0))[0] < layer:
            newest[key] = (layer, child)
    return {key: child for key, (_, child) in newest.items()}
