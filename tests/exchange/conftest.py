"""A tree with everything in it, and a place to make it anew."""

from pathlib import Path

import pytest

from tests.exchange.trees import make_rich_tree


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.mkdir()
    make_rich_tree(path)
    return path


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "target"
    path.mkdir()
    return path
