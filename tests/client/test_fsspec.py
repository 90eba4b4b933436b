"""fsspec over file systems: its own test suites, in memory and in a branch of a real mount, and what those do not ask."""

from collections.abc import Iterator

import fsspec
import pytest
from fsspec.tests.abstract import (
    AbstractCopyTests,
    AbstractFixtures,
    AbstractGetTests,
    AbstractOpenTests,
    AbstractPipeTests,
    AbstractPutTests,
)

from agentfs_client.backends.memory import InMemoryFilesystem
from agentfs_client.integrations.fsspec import AgentFSFileSystem
from tests.mounted import Mounted, needs_fuse


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounted]:
    needs_fuse()
    with pytest.MonkeyPatch.context() as environment:
        base = tmp_path_factory.mktemp("fsspec")
        for name in ("AGENTFS_STATE_HOME", "AGENTFS_RUNTIME_DIR"):
            environment.setenv(name, str(base / name))
        mounted = Mounted(base).mount()
        mounted.cli("branch create", "b")
        yield mounted
        mounted.end()


@pytest.fixture(scope="module")
def branches(daemon: Mounted) -> Iterator[AgentFSFileSystem]:
    made = fsspec.filesystem("agentfs", mount=str(daemon.path))
    yield made
    made.close()
    AgentFSFileSystem.clear_instance_cache()


class Memory(AbstractFixtures):
    @pytest.fixture
    def fs(self) -> AgentFSFileSystem:
        return AgentFSFileSystem(filesystem=InMemoryFilesystem())

    @pytest.fixture
    def fs_path(self) -> str:
        return ""


class Branch(AbstractFixtures):
    @pytest.fixture
    def fs(self, branches: AgentFSFileSystem) -> AgentFSFileSystem:
        return branches

    @pytest.fixture
    def fs_path(self) -> str:
        return "b"


class Suites(AbstractCopyTests, AbstractGetTests, AbstractPutTests, AbstractOpenTests, AbstractPipeTests):
    pass


class TestMemory(Suites, Memory):
    pass


class TestBranch(Suites, Branch):
    pass
