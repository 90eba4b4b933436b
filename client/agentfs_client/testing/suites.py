"""Test suites that any backend can be run against, with pytest; this package's own backends are.

    class TestMine(FilesystemValidationSuite):
        @pytest.fixture
        def fs(self, tmp_path):
            return MyFilesystem(tmp_path)

Each test gets an empty file system. Further fixtures, ``read_only_fs`` and ``mounted_fs``, and the class attributes of
`settings.Settings` are the subclass's to override; tests of what a backend does not have are skipped, and say why.
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
    "looking",
    "memory_use",
    "moving",
    "paths",
)
_MORE_TOPICS = ("reading", "readonly", "settings", "snapshots", "text_streams", "wording", "writing")
pytest.register_assert_rewrite(*(f"agentfs_client.testing.{topic}" for topic in (*_TOPICS, *_MORE_TOPICS)))

from agentfs_client.filesystem.protocol import Filesystem  # noqa: E402 - after the registration that it must not precede
from agentfs_client.testing.archives import ArchiveTests  # noqa: E402
from agentfs_client.testing.binary import BinaryTests  # noqa: E402
from agentfs_client.testing.byte_streams import ByteReaderTests, ByteWriterTests  # noqa: E402
from agentfs_client.testing.changing import ChangingTests  # noqa: E402
from agentfs_client.testing.globbing import GlobbingTests  # noqa: E402
from agentfs_client.testing.grepping import FileGlobTests, GreppingTests  # noqa: E402
from agentfs_client.testing.limits import LimitTests  # noqa: E402
from agentfs_client.testing.looking import LookingTests  # noqa: E402
from agentfs_client.testing.memory_use import MemoryTests  # noqa: E402
from agentfs_client.testing.moving import MovingTests  # noqa: E402
from agentfs_client.testing.paths import MountPointTests, PathTests, StreamPathTests  # noqa: E402
from agentfs_client.testing.reading import ReadingTests  # noqa: E402
from agentfs_client.testing.readonly import ReadOnlyTests  # noqa: E402
from agentfs_client.testing.snapshots import BinarySnapshotTests, DiffTests, SnapshotTests  # noqa: E402
from agentfs_client.testing.text_streams import TextReaderTests, TextWriterTests  # noqa: E402
from agentfs_client.testing.wording import WordingTests  # noqa: E402
from agentfs_client.testing.writing import WritingTests  # noqa: E402


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
    """The whole protocol, with its streams. Source: the file system protocol, version 3, Testing."""

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
    """The operations on text, with a factory instead of a fixture: a backend without bytes and streams passes, too. Source: the
    file system protocol, version 1, Testing."""

    @abstractmethod
    def create_filesystem(self) -> Any:
        """An empty file system that can be written; closed after the test where it has close()."""

    @pytest.fixture
    def fs(self) -> Iterator[Filesystem]:
        made = self.create_filesystem()
        yield made
        close = getattr(made, "close", None)
        if close is not None:
            close()
