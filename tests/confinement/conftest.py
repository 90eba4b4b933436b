import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

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


@pytest.fixture(autouse=True)
def turn() -> Iterator[int]:
    """A lock that tests share. A test that silences a daemon takes it alone: an ordinary user's runs cannot start beside one."""
    fd = os.open(Path(tempfile.gettempdir()) / "agentfsd-tests-silent-daemons.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH)
        yield fd
    finally:
        os.close(fd)
