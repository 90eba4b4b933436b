"""The suite that every backend passes, on branches of one daemon: through the mount, and over its socket."""

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentfs_files.backends.branch import BranchFilesystem
from agentfs_files.filesystem.filesystem_protocol import Filesystem
from agentfs_files.testing.suites import FilesystemValidationSuite
from tests.mounted import Mounted, needs_fuse

_numbers = itertools.count()


@pytest.fixture(scope="module")
def branch_mount() -> Iterator[Mounted]:
    needs_fuse()
    with tempfile.TemporaryDirectory(prefix="agentfsd-contract-") as base:
        mounted = Mounted(Path(base))
        try:
            yield mounted.mount()
        finally:
            mounted.end()


class _OnBranch(FilesystemValidationSuite):
    @pytest.fixture
    def where(self, branch_mount: Mounted) -> dict[str, str]:
        return {"mount": str(branch_mount.path)}

    @pytest.fixture
    def branch(self) -> str:
        return f"b{next(_numbers)}"

    @pytest.fixture
    def fs(self, where: dict[str, str], branch: str) -> Iterator[Filesystem]:
        with BranchFilesystem(branch, **where, create=True, count_files=True) as fs:
            yield fs

    @pytest.fixture
    def read_only_fs(self, fs: Filesystem, where: dict[str, str], branch: str) -> Iterator[Filesystem]:
        fs.write("file.txt", "content\n")
        fs.write("dir/inner.txt", "content\n")
        with BranchFilesystem(branch, **where, read_only=True) as read_only:
            yield read_only

    @pytest.fixture
    def mounted_fs(self, where: dict[str, str], branch: str) -> Iterator[Filesystem]:
        with BranchFilesystem(branch, **where, create=True, mount_point="/workspace") as fs:
            yield fs


class TestBranchOnTheMount(_OnBranch):
    pass


class TestBranchOverTheSocket(_OnBranch):
    @pytest.fixture
    def where(self, branch_mount: Mounted) -> dict[str, str]:
        return {"socket": branch_mount.record().socket}
