"""A tree over a frozen lower shows and records what the original had, open files included."""

import os
from pathlib import Path

from agentfsd.core import data, inode_stat
from agentfsd.core.overlay import Overlay
from agentfsd.lower.frozen_bases import FrozenBases
from tests.overlays import Opened


def test_open_files_and_copies_have_the_identity_of_the_original(opened: Opened) -> None:
    original = opened.base / "lower" / "file"
    original.write_text("before")
    expected = inode_stat.attributes(opened.tree().walk(b"file"))
    identity = opened.tree().walk(b"file").lower
    bases = FrozenBases(str(opened.base / "bases"), opened.lower)
    bases.freeze("one")
    replace_file(original, "after")
    opened.overlay = Overlay(opened.store, bases.open("one"), opened.backstore)
    inode = opened.tree().walk(b"file")
    data.open_(inode, os.O_RDONLY)
    assert inode_stat.attributes(inode) == expected
    assert data.read(inode, 100, 0) == b"before"
    data.write(inode, b"written", 0)
    assert (inode.ino, inode.lower) == (expected.ino, identity)
    data.release(inode)
    assert original.read_text() == "after"


def replace_file(path: Path, text: str) -> None:
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").rename(path)
