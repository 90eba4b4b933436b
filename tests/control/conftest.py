"""A lower with links that lead anywhere, and a client that is its owner."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.control.file_conversations import Conversation
from tests.overlays import Opened


@pytest.fixture
def lower(tmp_path: Path) -> Path:
    made = tmp_path / "lower"
    (made / "sub").mkdir(parents=True)
    (made / "file").write_text("content")
    (made / "sub" / "inner").write_text("inner")
    for name, target in {
        "link": "sub/../file", "dangling": "sub/new", "out": "../outside", "etc": "/etc/passwd", "back": "/mnt/sub",
        "loop": "loop", "above": "/mnt/../etc",
    }.items():  # fmt: skip
        (made / name).symlink_to(target)
    os.mkfifo(made / "pipe")
    return made


@pytest.fixture
def root(lower: Path, opened: Opened) -> Iterator[Conversation]:
    made = Conversation(opened, os.geteuid(), os.getegid())
    yield made
    made.close()
    assert opened.overlay.fsck() == []
