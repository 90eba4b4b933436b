from collections.abc import Iterator

import pytest

from tests.confinement.world import ORDINARY, World
from tests.mounted import needs_checkout_outside_tmp, needs_fuse, needs_namespaces, needs_open_checkout, needs_root


@pytest.fixture(scope="session", params=[0, ORDINARY], ids=["root", "ordinary"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """One world for the tests of all files here, each of which takes branches of its own."""
    needs_root()
    needs_fuse()
    needs_namespaces()
    needs_open_checkout()
    needs_checkout_outside_tmp()
    with World(request.param) as made:
        yield made
