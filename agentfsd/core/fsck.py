"""Checks that what is stored is sound: names lead somewhere, contents are there, nothing is left over."""

import sqlite3
import stat
from collections.abc import Generator
from typing import TYPE_CHECKING

from agentfsd.core.inode import ROOT_ID
from agentfsd.core.tree import Tree
from agentfsd.metadata import layers
from agentfsd.metadata.rows import InodeRow
from agentfsd.metadata.store import Store

if TYPE_CHECKING:
    from agentfsd.core.overlay import Overlay


def check(overlay: "Overlay") -> Generator[tuple[int, int, str], None, list[str]]:
    """One sentence for each problem; reads everything, changes nothing. Each step finds things as they are then."""
    store = overlay.store
    problems: list[str] = []
    try:
        heads = overlay.heads()
        total = 2 + len(heads)
        problems += [f"database: {row[0]}" for row in store.db.execute("PRAGMA integrity_check") if row[0] != "ok"]
        yield 1, total, "database"
        problems += _check_layers(overlay)
        problems += _check_objects(overlay)
        for done, (label, tree) in enumerate(heads, 2):
            yield done, total, label
            if not tree.detached:  # else it was replaced since we began
                problems += [f"{label}: {problem}" for problem in _check_tree(store, tree)]
    except sqlite3.DatabaseError as exc:
        problems.append(f"database: {exc}; what comes after that was not checked")
    return problems


def _check_layers(overlay: "Overlay") -> list[str]:
    store = overlay.store
    known = layers.parents(store)
    problems = [
        f"layer {layer}: its parent {parent} is missing" for layer, parent in known.items() if parent and parent not in known
    ]
    for row in layers.branches(store):
        problems += [
            f"branch {row.name}: layer {layer} is missing" for layer in (row.head, row.base_layer) if layer and layer not in known
        ]
    problems += [
        f"snapshot {row.name}: layer {row.layer} is missing"
        for row in layers.snapshots(store)
        if row.layer and row.layer not in known
    ]
    alive = set(known) | set(layers.dead(store))
    for table in ("inode", "dentry", "object", "origin"):
        found = {row[0] for row in store.db.execute(f"SELECT DISTINCT layer FROM {table}")}
        problems += [f"{table}: rows of layer {layer}, which does not exist" for layer in found - alive - {0}]
    return problems


def _check_objects(overlay: "Overlay") -> list[str]:
    store = overlay.store
    rows = dict(store.db.execute("SELECT id, layer FROM object"))
    dead = set(layers.dead(store)) | {0}
    held = set(overlay.backstore.ids())
    problems = [
        f"object {number} is missing from the backstore"
        for number, layer in rows.items()
        if layer not in dead and number not in held
    ]
    problems += [f"object {number} belongs to nothing" for number in held - set(rows)]
    uses = "SELECT DISTINCT content, layer FROM inode WHERE content != 0 UNION SELECT base, layer FROM origin WHERE base != 0"
    used = {number for number, layer in store.db.execute(uses) if layer not in dead}
    problems += [f"object {number} has no row" for number in used - set(rows)]
    problems += [
        f"object {number} is used by nothing" for number, layer in rows.items() if layer not in dead and number not in used
    ]
    return problems


def _check_tree(store: Store, tree: Tree) -> list[str]:
    """Every stored name leads to a stored inode, and link counts agree with the names."""
    newest = _newest_inodes(store, tree)
    problems: list[str] = []
    links: dict[int, int] = {}
    for (directory, name), child in _newest_names(store, tree).items():
        if not child or newest.get(directory) is None or newest[directory].nlink == 0:
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


def _newest_inodes(store: Store, tree: Tree) -> dict[int, InodeRow]:
    newest: dict[int, InodeRow] = {}
    for row in store.all_inodes():
        if row.layer in tree.chain and (row.id not in newest or newest[row.id].layer < row.layer):
            newest[row.id] = row
    return newest


def _newest_names(store: Store, tree: Tree) -> dict[tuple[int, bytes], int]:
    newest: dict[tuple[int, bytes], tuple[int, int]] = {}
    for directory, name, layer, child in store.all_dentries():
        key = (directory, name)
        if layer in tree.chain and newest.get(key, (0, 0))[0] < layer:
            newest[key] = (layer, child)
    return {key: child for key, (_, child) in newest.items()}
