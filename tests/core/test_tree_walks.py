"""Walks to paths of a tree that nobody else uses, so that no inode is in memory before."""

from collections.abc import Container

import pytest

from agentfsd.metadata import chain_rows
from agentfsd.metadata.row_store import Store
from tests.overlays import Opened


def test_walks_to_siblings_load_the_names_of_their_directory_once(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    opened.mkdir("deep")
    opened.mkdir("deep/directory")
    for number in range(20):
        opened.write(f"deep/directory/{number}", b"")
    opened.reopen()
    loaded: list[int] = []
    load = chain_rows.names_in

    def names_in(store: Store, directory: int, chain: Container[int]) -> dict[bytes, int]:
        loaded.append(directory)
        return load(store, directory, chain)

    monkeypatch.setattr(chain_rows, "names_in", names_in)
    tree = opened.tree()
    for number in range(20):
        tree.walk(b"deep/directory/%d" % number)
    assert len(loaded) == len(set(loaded))
