"""The suites that are shipped, run on a container with busybox: the least that a backend of containers can count on."""

from collections.abc import Iterator

import pytest

from agentfs_files.backends.podman import PodmanFilesystem
from agentfs_files.filesystem.filesystem_protocol import Filesystem
from agentfs_files.testing.suites import FilesystemValidationSuite
from tests.containers import podman_service


@pytest.fixture(scope="module")
def container_fs() -> Iterator[PodmanFilesystem]:
    with podman_service() as service, service.client() as client:
        container = service.run(client)
        with PodmanFilesystem(container) as filesystem:
            yield filesystem
        container.remove(force=True)


class TestPodmanFilesystem(FilesystemValidationSuite):
    @pytest.fixture
    def fs(self, container_fs: PodmanFilesystem) -> Filesystem:
        container_fs.delete(".", recursive=True)
        container_fs._current = None  # as a new one; a shell for each test would take longer than all tests
        return container_fs

    @pytest.fixture
    def read_only_fs(self, container_fs: PodmanFilesystem) -> Iterator[Filesystem]:
        container_fs.delete(".", recursive=True)
        container_fs.write("file.txt", "content\n")
        container_fs.write("dir/inner.txt", "content\n")
        with PodmanFilesystem(container_fs._container, read_only=True) as filesystem:
            yield filesystem

    @pytest.fixture
    def mounted_fs(self, fs: Filesystem) -> Filesystem:
        return fs
