"""Frees layers that nothing refers to: marks or merges them at once, and removes rows and objects later in small steps."""

import contextlib

from agentfsd.core.tree import Parts, Tree, exists_in, join
from agentfsd.domain_errors import DamagedContent
from agentfsd.metadata import layer_rows
from agentfsd.metadata.row_store import GARBAGE, Store
from agentfsd.metadata.rows import is_whiteout
from agentfsd.metadata.transaction import Transaction
from agentfsd.types import Backstore


def let_go(tx: Transaction, parts: Parts, layer: int, held: set[int], trees: list[Tree]) -> None:
    """Free a layer that has lost a reference, and then its ancestors, as far as nothing else needs them.

    A layer without children is marked dead, and step() removes it later. A layer with one child is merged into the child.
    A layer with several children stays.

    Args:
        tx: The open transaction.
        parts: The store, lower and backstore.
        layer: The layer; 0 does nothing.
        held: The layers that are still referred to.
        trees: All open trees.
    """
    store = parts.store
    while layer and layer not in held:
        known = layer_rows.parents(store)
        if layer not in known:
            return
        children = [child for child, parent in known.items() if parent == layer]
        if len(children) > 1:
            return
        parent = known[layer]
        if children:
            _merge(tx, parts, layer, children[0], trees)
        else:
            layer_rows.mark_dead(store, layer)
        layer = parent


def _merge(tx: Transaction, parts: Parts, layer: int, child: int, trees: list[Tree]) -> None:
    """Merge a layer into its only child, in the database and in the open trees."""
    # The child gets the objects, whose own times count from then on (Inode.has_live_times): give them those of the child's rows.
    for number, atime_ns, mtime_ns in layer_rows.times_to_stamp(parts.store, layer, child):
        with contextlib.suppress(DamagedContent):
            content = parts.backstore.open(number)
            try:
                content.utime(atime_ns, mtime_ns)
            finally:
                content.close()
    may_show = bool(layer_rows.bases(parts.store))  # a frozen base may have the name
    idle = [] if may_show else layer_rows.idle_whiteouts(parts.store, layer, child)
    layer_rows.merge_down(parts.store, layer, child)
    for directory, name in idle:
        _drop_whiteout(tx, parts, directory, name, child, trees)
    layer_rows.drop_tombstones(parts.store, child)
    for tree in trees:
        if layer not in tree.chain:
            continue
        tx.set(tree, chain=tree.chain - {layer}, prefetch=None)
        for inode in tree.loaded():
            if inode.content_layer == layer:
                tx.set(inode, content_layer=child)
            if inode.row_layer == layer:
                tx.set(inode, row_layer=child)


def _drop_whiteout(tx: Transaction, parts: Parts, directory: int, name: bytes, layer: int, trees: list[Tree]) -> None:
    """Delete a whiteout of the merged layer, unless the lower has the name and would show it again."""
    rows = [row for row in parts.store.inode_versions(directory) if row.layer in layer_rows.chain(parts.store, layer)]
    path = max(rows, key=lambda row: row.layer).lower_path if rows else None
    if path is not None and exists_in(parts.lower, join(path, name)):
        return
    parts.store.delete_dentry(directory, name, layer)
    for tree in trees:
        inode = tree.known(directory) if layer in tree.chain else None
        if inode is not None and inode.entries is not None and is_whiteout(inode.entries.get(name)):
            tx.put(inode.entries, name, None)


def step(store: Store, backstore: Backstore, limit: int, read: set[int]) -> bool:
    """Remove garbage and dead layers: up to *limit* objects, or up to *limit* rows of each table.

    Args:
        store: The database.
        backstore: The content objects.
        limit: The greatest number of objects or rows.
        read: Objects to keep for now: a process may read them through a file that it opened before the tree was replaced.

    Returns:
        Whether more may be left.
    """
    if _remove_objects(store, backstore, GARBAGE, limit, read):
        return True
    for layer in layer_rows.dead(store):
        if _remove_objects(store, backstore, layer, limit, read):
            return True
        if not store.objects_of(layer, 1):
            with store.transaction():
                layer_rows.reap(store, layer, limit)
            return True
    return False


def _remove_objects(store: Store, backstore: Backstore, layer: int, limit: int, read: set[int]) -> bool:
    """Remove objects of a layer, then their rows; return whether there were any.

    In this order a crash in between leaves no object without a row.
    """
    numbers = [number for number in store.objects_of(layer, limit + len(read)) if number not in read]
    for number in numbers:
        backstore.remove(number)
    if numbers:
        with store.transaction():
            store.delete_objects(numbers)
    return bool(numbers)
