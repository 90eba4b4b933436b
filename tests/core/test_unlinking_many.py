"""Several names of one directory that go in one transaction."""

import errno
import os
import sqlite3

import pytest

from agentfsd.core import data, directory_entries, inode_stat
from agentfsd.core.tree import Inode, Tree
from agentfsd.metadata.row_store import Store
from tests.overlays import Opened


@pytest.fixture
def files(opened: Opened) -> Opened:
    """Three files in a directory of the lower, two of them names of one file, and one that the branch made."""
    directory = opened.base / "lower" / "d"
    directory.mkdir()
    (directory / "one").write_text("one")
    (directory / "two").write_text("two")
    os.link(directory / "two", directory / "second name")
    opened.write("d/own", b"own")
    return opened


def found(tree: Tree, *names: bytes) -> dict[bytes, Inode]:
    return {name: tree.lookup(tree.walk(b"d"), name) for name in names}


def test_all_go_and_stay_away(files: Opened) -> None:
    tree = files.tree()
    directory = tree.walk(b"d")
    held = tree.lookup(directory, b"two")
    data.open_(held, os.O_RDONLY)
    gone = found(tree, b"one", b"two", b"second name", b"own")
    assert gone[b"two"] is gone[b"second name"]
    directory_entries.unlink_all(tree, directory, gone)
    assert [inode.nlink for inode in gone.values()] == [0, 0, 0, 0]
    assert tree.names(directory) == []
    assert data.read(held, 10, 0) == b"two"
    data.release(held)
    files.reopen()
    assert files.tree().names(files.tree().walk(b"d")) == []
    assert sorted(os.listdir(files.base / "lower" / "d")) == ["one", "second name", "two"]


def test_one_that_is_a_directory_keeps_all(files: Opened) -> None:
    files.mkdir("d/inner")
    tree = files.tree()
    directory = tree.walk(b"d")
    with pytest.raises(IsADirectoryError):
        directory_entries.unlink_all(tree, directory, found(tree, b"one", b"inner"))
    assert sorted(tree.names(directory)) == [b"inner", b"one", b"own", b"second name", b"two"]


def test_one_that_fails_brings_all_back(files: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = files.tree()
    directory = tree.walk(b"d")
    put, calls = Store.put_dentry, []

    def fail_at_the_third(store: Store, *row: object) -> None:
        calls.append(row)
        if len(calls) == 3:
            raise sqlite3.OperationalError("disk I/O error")
        put(store, *row)  # type: ignore[arg-type]

    monkeypatch.setattr(Store, "put_dentry", fail_at_the_third)
    with pytest.raises(OSError) as caught:
        directory_entries.unlink_all(tree, directory, found(tree, b"one", b"two", b"second name"))
    assert caught.value.errno in (errno.EIO, errno.ENOSPC)
    assert sorted(tree.names(directory)) == [b"one", b"own", b"second name", b"two"]
    assert inode_stat.attributes(tree.lookup(directory, b"two")).nlink == 2
    files.reopen()
    assert files.read("d/one") == b"one"
