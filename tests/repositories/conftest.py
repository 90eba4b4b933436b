"""Branches in which agents use git, over a repository with a few files."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.repositories.agents import Agents, start


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Agents]:
    made = Agents(tmp_path)
    start(made.lower, {"a": "a\n", "b": "b\n", "text": "".join(f"line {number}\n" for number in range(20))})
    yield made
    made.close()
