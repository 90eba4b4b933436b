"""One mount for all tests of a file here."""

from collections.abc import Iterator

import pytest

from agentfs_client.control import ControlClient
from tests.cli.observing.observed import ADDRESS, Shared, at_home
from tests.mounted import needs_fuse


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """One mount for all that can share it."""
    needs_fuse()
    mounted = Shared(tmp_path_factory.mktemp("observed"), None, "--metrics", ADDRESS, "--log-format", "json")
    (mounted.lower / "file").write_text("lower\n")
    with pytest.MonkeyPatch.context() as patch:
        at_home(mounted, patch)
        mounted.mount()
    yield mounted
    mounted.end()


@pytest.fixture
def branches(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shared]:
    """The branches *one* and *two*, new for each test."""
    at_home(shared, monkeypatch)
    with ControlClient.connect(shared.record().socket) as daemon:
        for name in ("one", "two"):
            daemon.create_branch(name)
    yield shared
    with ControlClient.connect(shared.record().socket) as daemon:
        for name in {branch.name for branch in daemon.list_branches()} & {"one", "two"}:
            daemon.discard(name)
