"""Which rows count in a chain of layers: of each inode and each name, the row of the newest layer."""

from collections.abc import Container

from agentfsd.metadata.row_store import Store
from agentfsd.metadata.rows import InodeRow


def newest_of(rows: list[InodeRow], chain: Container[int]) -> InodeRow | None:
    """Return the version of an inode that counts; None if the chain has none of *rows*."""
    mine = [row for row in rows if row.layer in chain]
    return max(mine, key=lambda row: row.layer) if mine else None


def newest(store: Store, inode_id: int, chain: Container[int]) -> InodeRow | None:
    """Return the row of an inode; None if the chain has none."""
    return next((row for row in store.newer_versions_first(inode_id) if row.layer in chain), None)


def names_in(store: Store, directory: int, chain: Container[int]) -> dict[bytes, int]:
    """Return the child of each name stored for a directory: the number of an inode, or a whiteout."""
    layers: dict[bytes, int] = {}
    children: dict[bytes, int] = {}
    for name, layer, child in store.dentries(directory):
        if layer in chain and layer > layers.get(name, 0):
            layers[name] = layer
            children[name] = child
    return children
