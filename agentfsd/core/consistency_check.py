"""Checks the stored state: each name leads to an inode, each content object exists, and no object or row is unused."""

import sqlite3
import stat
from collections.abc import Generator

from agentfsd.core import content_checksums, lost_contents
from agentfsd.core.inode import ROOT_ID
from agentfsd.core.open_trees import OpenTrees
from agentfsd.core.tree import Tree
from agentfsd.domain_errors import DamagedContent
from agentfsd.metadata import check_rows, checksum_rows, inspection, layer_rows
from agentfsd.metadata.inspection import describe_pages
from agentfsd.metadata.row_store import GARBAGE, Store
from agentfsd.metadata.rows import is_whiteout

_PAGE = 500  # objects that one step checks
_AT_ONCE_BYTES = 4 << 20  # SQLite checks the structure of a smaller database in one step, while all requests wait


Steps = Generator[tuple[int, int, str], None, list[str]]


def check(trees: OpenTrees, *, scrub: bool = False, alone: bool = False) -> Steps:
    """Check the whole state in steps and change nothing. Each step checks the state as it is at that time.

    Args:
        trees: The trees of the overlay.
        scrub: Also read the content of sealed objects that have a checksum, and compare.
        alone: No request is waiting, so also check the structure of a large database, which SQLite does in one step.

    Yields:
        (done, total, what).

    Returns:
        One sentence for each problem.
    """
    store = trees.parts.store
    problems: list[str] = []
    try:
        heads = trees.named()
        total = 2 + len(heads)
        problems += yield from _check_database(trees, total, alone)
        problems += _check_layers(trees)
        problems += yield from _check_objects(trees, total)
        problems += yield from _check_bases(trees, total)
        for done, (label, tree) in enumerate(heads, 2):
            yield done, total, label
            if not tree.detached:  # else the tree was replaced since the check began
                problems += [f"{label}: {problem}" for problem in _check_tree(store, tree)]
        if scrub:
            problems += yield from _scrub(trees)
        problems = yield from lost_contents.naming(trees, problems, total)
    except sqlite3.DatabaseError as exc:
        problems.append(f"database: {exc}; what comes after that was not checked")
    return [inspection.plain(problem) for problem in problems]


def _check_database(trees: OpenTrees, total: int, alone: bool) -> Steps:
    """Check the structure of the database, and each page against its checksum.

    If checking the structure would take long, the checksums must do: pages that match them are as SQLite wrote them.
    """
    store = trees.parts.store
    problems: list[str] = []
    if alone or check_rows.size_bytes(store) <= _AT_ONCE_BYTES:
        problems = [f"database: {problem}" for problem in check_rows.structural_problems(store)]
    elif trees.parts.backstore.persistent and (store.db.pages is None or not store.db.pages.is_sound):
        problems = ["database: its pages have no checksums (the disk was full), and it is too large for another check while "
                    "it is in use: unmount it, then 'agentfsd fsck --state DIR'"]  # fmt: skip
    wrong: list[int] = []
    for some in store.db.pages.wrong() if store.db.pages is not None else ():
        wrong += some
        yield 1, total, "database"
    return [*problems, *([f"database: {describe_pages(wrong)} not as written"] if wrong else [])]


def _scrub(trees: OpenTrees) -> Steps:
    problems, total = [], checksum_rows.count(trees.parts.store)
    for done, problem in enumerate(content_checksums.scrubbing(trees.parts.store, trees.parts.backstore)):
        problems += [problem] if problem else []
        yield min(done, total), total, "contents"
    return problems


def _check_layers(trees: OpenTrees) -> list[str]:
    store = trees.parts.store
    known = layer_rows.parents(store)
    problems = [
        f"layer {layer}: its parent {parent} is missing" for layer, parent in known.items() if parent and parent not in known
    ]
    for row in layer_rows.branches(store):
        problems += [
            f"branch {row.name}: layer {layer} is missing" for layer in (row.head, row.base_layer) if layer and layer not in known
        ]
    problems += [
        f"snapshot {row.name}: layer {row.layer} is missing"
        for row in layer_rows.snapshots(store)
        if row.layer and row.layer not in known
    ]
    alive = set(known) | set(layer_rows.dead(store))
    for table, used in check_rows.layers_in_use(store).items():
        problems += [f"{table}: rows of layer {layer}, which does not exist" for layer in used - alive - {GARBAGE}]
    return problems


def _check_objects(trees: OpenTrees, total: int) -> Steps:
    store = trees.parts.store
    rows = check_rows.object_layers(store)
    dead = set(layer_rows.dead(store)) | {GARBAGE}
    held = set(trees.parts.backstore.ids())
    problems: list[str] = []
    last = 0
    alive = sorted(number for number, layer in rows.items() if layer not in dead)
    for at in range(0, len(alive), _PAGE):
        problems += _look_at(trees, alive[at : at + _PAGE], last)
        last = alive[min(at + _PAGE, len(alive)) - 1]
        yield 1, total, "contents"
    rows = check_rows.object_layers(store)
    problems += [f"object {number} belongs to nothing" for number in held.intersection(trees.parts.backstore.ids()) - set(rows)]
    dead = set(layer_rows.dead(store)) | {GARBAGE}
    used = {number for number, layer in check_rows.objects_in_use(store) if layer not in dead}
    problems += [f"object {number} has no row" for number in used - set(rows)]
    problems += [
        f"object {number} is used by nothing" for number, layer in rows.items() if layer not in dead and number not in used
    ]
    return problems


def _check_bases(trees: OpenTrees, total: int) -> Steps:
    """Check that the frozen bases have what their indexes say. Nothing can be read of a branch whose base is lost."""
    problems: list[str] = []
    for base, labels in trees.bases().items():
        for problem in trees.damage_of(base):
            if problem:
                problems.append(f"{lost_contents.some(labels)}: {problem}")
            yield 1, total, "frozen bases"
    return problems


def _look_at(trees: OpenTrees, numbers: list[int], above: int) -> list[str]:
    """Check that each of some objects exists, is a regular file of ours, and still has its size if it was sealed."""
    store, problems = trees.parts.store, []
    sizes = {seal.object: seal.size for seal in checksum_rows.known(store, above, len(numbers)) if seal.object <= numbers[-1]}
    for number in numbers:
        try:
            size = trees.parts.backstore.stat(number).st_size
        except DamagedContent as exc:
            if store.object_layer(number):  # else the object was removed since the last step
                problems.append(f"object {number} is lost: {exc.strerror}")
            continue
        if size != sizes.get(number, size):
            problems.append(f"object {number} has {size} bytes, and had {sizes[number]} when it was sealed")
    return problems


def _check_tree(store: Store, tree: Tree) -> list[str]:
    """Check that every stored name leads to a stored inode, and that link counts agree with the names."""
    newest = lost_contents.newest_inodes(store, tree)
    problems: list[str] = []
    links: dict[int, int] = {}
    for (directory, name), child in lost_contents.newest_names(store, tree).items():
        if is_whiteout(child) or newest.get(directory) is None or newest[directory].nlink == 0:
            continue
        row = newest.get(child)
        if row is None or row.nlink == 0:
            problems.append(f"{name!r} in directory {directory} leads to inode {child}, which is not there")
            continue
        links[child] = links.get(child, 0) + 1
    for number, row in newest.items():
        if number == ROOT_ID or row.nlink == 0:
            continue
        names = links.get(number, 0)
        if stat.S_ISDIR(row.mode):
            if names != 1:
                problems.append(f"directory {number} has {names} names")
        elif not row.linked and names != row.nlink:
            problems.append(f"inode {number} has {names} names but counts {row.nlink}")
    return problems
