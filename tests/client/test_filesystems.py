"""The suites that are shipped, run on the backends that need nothing but this machine."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentfs_files.backends.host import HostFilesystem
from agentfs_files.backends.in_memory import InMemoryFilesystem
from agentfs_files.filesystem.filesystem_protocol import Filesystem
from agentfs_files.testing.suites import FilesystemProtocolTests, FilesystemValidationSuite

_FILES = {"file.txt": "content\n", "dir/inner.txt": "content\n"}


class TestInMemoryFilesystem(FilesystemValidationSuite):
    keeps_content_in_memory = True

    @pytest.fixture
    def fs(self) -> Filesystem:
        return InMemoryFilesystem()

    @pytest.fixture
    def read_only_fs(self) -> Filesystem:
        return InMemoryFilesystem(dict(_FILES), read_only=True)

    @pytest.fixture
    def mounted_fs(self) -> Filesystem:
        return InMemoryFilesystem(mount_point="/workspace")


class _OnHost(FilesystemValidationSuite):
    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        return tmp_path

    @pytest.fixture
    def fs(self, root: Path) -> Iterator[Filesystem]:
        yield from _ended(HostFilesystem(root))

    @pytest.fixture
    def read_only_fs(self, root: Path) -> Iterator[Filesystem]:
        for path, content in _FILES.items():
            (root / path).parent.mkdir(exist_ok=True)
            (root / path).write_text(content)
        yield from _ended(HostFilesystem(root, read_only=True))

    @pytest.fixture
    def mounted_fs(self, root: Path) -> Iterator[Filesystem]:
        yield from _ended(HostFilesystem(root, mount_point="/workspace"))


def _ended(fs: HostFilesystem) -> Iterator[Filesystem]:
    yield fs
    fs.cleanup()
    fs.close()


class TestHostFilesystemOnDisk(_OnHost):
    pass


class TestHostFilesystemOnTmpfs(_OnHost):
    @pytest.fixture
    def root(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
            yield Path(name)


class TestProtocolOfVersionOne(FilesystemProtocolTests):
    def create_filesystem(self) -> Filesystem:
        return InMemoryFilesystem()
