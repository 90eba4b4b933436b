"""One mount for all tests of a file here, and a branch of it for each test."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mounted import Mounted, needs_fuse, needs_namespaces
from tests.system.connections.connected import Places, build


@pytest.fixture(scope="module")
def one_mount(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounted]:
    needs_fuse()
    needs_namespaces()
    with pytest.MonkeyPatch.context() as environment:
        base = tmp_path_factory.mktemp("connections")
        for name in ("AGENTFS_STATE_HOME", "AGENTFS_RUNTIME_DIR"):
            environment.setenv(name, str(base / name))
        mounted = Mounted(base)
        build(mounted.lower)
        mounted.mount()
        yield mounted
        try:
            assert mounted.fsck() == []
            assert "Error" not in Path(mounted.state, "daemon.log").read_text()
        finally:
            mounted.end()


_numbers = itertools.count(1)


@pytest.fixture
def places(one_mount: Mounted, monkeypatch: pytest.MonkeyPatch) -> Iterator[Places]:
    """A branch of its own for each test; whoever changes the lower puts it back."""
    for name in ("AGENTFS_STATE_HOME", "AGENTFS_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(one_mount.path.parent / name))
    made = Places(one_mount, f"b{next(_numbers)}")
    one_mount.cli("branch create", made.branch)
    yield made
    made.end()


@pytest.fixture
def lower(one_mount: Mounted) -> Path:
    """A directory of the lower for one test alone."""
    made = one_mount.lower / f"d{next(_numbers)}"
    build(made)
    return made
