"""Processes that end with the test."""

from collections.abc import Iterator

import pytest

from tests.binding.processes import Child


@pytest.fixture
def children() -> Iterator[list[Child]]:
    made: list[Child] = []
    yield made
    for child in made:
        child.end()
