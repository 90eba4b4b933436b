"""The suites that are shipped, run on the backends that need nothing but this machine."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentfs_files.backends.base_filesystem import BaseFilesystem
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


@pytest.mark.parametrize("make", [lambda _: InMemoryFilesystem(), HostFilesystem])
def test_a_file_system_is_a_context_manager(make: Callable[[Path], BaseFilesystem], tmp_path: Path) -> None:
    with make(tmp_path) as fs:
        fs.write("file", "x")
    fs.close()


def test_bytes_that_are_written_as_text_are_refused_with_the_method_for_bytes() -> None:
    fs = InMemoryFilesystem()
    with pytest.raises(TypeError, match="takes text, not bytes; write_bytes"):
        fs.write("dir/file", b"")  # type: ignore[arg-type]
    assert not fs.exists("dir")
