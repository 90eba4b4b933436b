"""Test suites that any backend can run with pytest. This package's own backends pass them.

    class TestMine(FilesystemValidationSuite):
        @pytest.fixture
        def fs(self, tmp_path):
            return MyFilesystem(tmp_path)

Each test gets an empty file system. A subclass can override the fixtures ``read_only_fs`` and ``mounted_fs``, and the class
attributes of `suite_settings.Settings`. Tests of features that a backend lacks are skipped, and say why.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import pytest

_TOPICS = (
    "archives",
    "binary",
    "byte_streams",
    "changing",
    "globbing",
    "grepping",
    "limits",
    "listing",
    "memory_use",
    "moving",
    "paths",
)
_MORE_TOPICS = ("reading", "readonly", "settings", "snapshots", "text_streams", "wording", "writing")
pytest.register_assert_rewrite(*(f"agentfs_files.testing.suite_{topic}" for topic in (*_TOPICS, *_MORE_TOPICS)))

from agentfs_files.filesystem.filesystem_protocol import Filesystem  # noqa: E402 - after the registration that it must not precede
from agentfs_files.testing.suite_archives import ArchiveTests  # noqa: E402
from agentfs_files.testing.suite_binary import BinaryTests  # noqa: E402
from agentfs_files.testing.suite_byte_streams import ByteReaderTests, ByteWriterTests  # noqa: E402
from agentfs_files.testing.suite_changing import ChangingTests  # noqa: E402
from agentfs_files.testing.suite_globbing import GlobbingTests  # noqa: E402
from agentfs_files.testing.suite_grepping import FileGlobTests, GreppingTests  # noqa: E402
from agentfs_files.testing.suite_limits import LimitTests  # noqa: E402
from agentfs_files.testing.suite_listing import LookingTests  # noqa: E402
from agentfs_files.testing.suite_memory_use import MemoryTests  # noqa: E402
from agentfs_files.testing.suite_moving import MovingTests  # noqa: E402
from agentfs_files.testing.suite_paths import MountPointTests, PathTests, StreamPathTests  # noqa: E402
from agentfs_files.testing.suite_reading import ReadingTests  # noqa: E402
from agentfs_files.testing.suite_readonly import ReadOnlyTests  # noqa: E402
from agentfs_files.testing.suite_snapshots import BinarySnapshotTests, DiffTests, SnapshotTests  # noqa: E402
from agentfs_files.testing.suite_text_streams import TextReaderTests, TextWriterTests  # noqa: E402
from agentfs_files.testing.suite_wording import WordingTests  # noqa: E402
from agentfs_files.testing.suite_writing import WritingTests  # noqa: E402


class FilesystemValidationSuite(
    ReadingTests,
    WritingTests,
    BinaryTests,
    LookingTests,
    GlobbingTests,
    GreppingTests,
    FileGlobTests,
    ChangingTests,
    MovingTests,
    StreamPathTests,
    MountPointTests,
    LimitTests,
    ReadOnlyTests,
    WordingTests,
    ByteReaderTests,
    ByteWriterTests,
    TextReaderTests,
    TextWriterTests,
    MemoryTests,
    BinarySnapshotTests,
    DiffTests,
    ArchiveTests,
):
    """Tests of the whole protocol, including streams. Source: the file system protocol, version 3, Testing."""

    @pytest.fixture
    def fs(self) -> Filesystem:
        """An empty file system that can be written."""
        raise NotImplementedError(f"{type(self).__name__} needs a fixture `fs` that returns an empty file system")


class FilesystemProtocolTests(
    ReadingTests,
    WritingTests,
    LookingTests,
    GlobbingTests,
    GreppingTests,
    ChangingTests,
    PathTests,
    SnapshotTests,
    DiffTests,
    ABC,
):
    """Tests of the operations on text, with a factory instead of a fixture. A backend without bytes and streams passes them, too.
    Source: the file system protocol, version 1, Testing.
    """

    @abstractmethod
    def create_filesystem(self) -> Any:
        """Return an empty file system that can be written. If it has close(), it is closed after the test."""

    @pytest.fixture
    def fs(self) -> Iterator[Filesystem]:
        made = self.create_filesystem()
        yield made
        close = getattr(made, "close", None)
        if close is not None:
            close()
