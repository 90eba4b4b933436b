"""What a user's type checker knows of the client, checked by `mypy --strict` in scripts/check; and it runs as well."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import assert_type
from uuid import UUID

import pytest

from agentfs_client import (
    ArchivableFilesystem,
    ByteReader,
    ByteWriter,
    DiffableFilesystem,
    FileEntry,
    FileStat,
    Filesystem,
    FilesystemDiff,
    FilesystemSnapshot,
    GlobMatch,
    GrepMatch,
    HostFilesystem,
    InMemoryBackend,
    InMemoryFilesystem,
    ReadBytesResult,
    ReadResult,
    SnapshotableFilesystem,
    SnapshotManager,
    TextReader,
    WriteResult,
)
from agentfs_files.testing.suites import FilesystemProtocolTests, FilesystemValidationSuite


def copy(source: Filesystem, target: Filesystem, path: str) -> WriteResult:
    """Any backend does for either."""
    with source.open_read(path) as reader, target.open_write(path, mode="create") as writer:
        assert_type(reader, ByteReader)
        assert_type(writer, ByteWriter)
        assert_type(reader.chunks(1 << 10), Iterator[bytes])
        assert_type(writer.write_all(reader), int)
    with target.open_text(path) as text:
        assert_type(text, TextReader)
        assert_type([line for line in text.lines(strip=True)], list[str])
    return target.write(path, "end\n", mode="append")


def look(fs: Filesystem) -> Sequence[GrepMatch]:
    assert_type(fs.read("file.txt", limit=-1), ReadResult)
    assert_type(fs.read_bytes("file.txt", offset=1), ReadBytesResult)
    assert_type(fs.stat("file.txt"), FileStat)
    assert_type(fs.list(), Sequence[FileEntry])
    assert_type(fs.glob("**/*.txt"), Sequence[GlobMatch])
    assert_type(fs.exists("file.txt"), bool)
    assert_type((fs.root, fs.read_only, fs.mount_point), tuple[str, bool, str | None])
    return fs.grep("text", glob="*.txt", max_matches=1)


def keep(fs: DiffableFilesystem) -> FilesystemDiff:
    before = fs.snapshot(tag="before")
    assert_type(before, FilesystemSnapshot)
    assert_type(fs.current_snapshot_id, UUID | None)
    fs.restore(before)
    return fs.diff(before)


def test_backends_fit_the_protocols(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    memory, host = InMemoryFilesystem({"file.txt": "text\n"}), HostFilesystem(tmp_path / "root", mount_point="/workspace")
    wide: list[DiffableFilesystem] = [memory, host]
    archivable: list[ArchivableFilesystem] = [memory, host]
    narrow: list[SnapshotableFilesystem] = [*wide]
    assert copy(memory, host, "file.txt").bytes_written == 4
    assert [match.line_number for match in look(host)] == [1]
    assert [keep(fs).unchanged_count for fs in wide] == [1, 1]
    assert [fs.export_archive(tmp_path / "archive.zip") for fs in archivable] == [1, 1]
    assert len(narrow) == 2
    host.cleanup()
    host.close()


def test_snapshots_by_name_of_whatever_has_archives(tmp_path: Path) -> None:
    minimal, whole = SnapshotManager(InMemoryBackend(), tmp_path), SnapshotManager(InMemoryFilesystem(), tmp_path)
    assert_type(minimal.filesystem.write("a", "x"), int)
    assert_type(whole.filesystem.write("a", "y"), WriteResult)
    assert minimal.snapshot("one").file_count == 1
    assert whole.restore(minimal.list_snapshots()[0].archive_path) == 1
    assert whole.filesystem.read("a").content == "x"


class TestByFixture(FilesystemValidationSuite):
    """As the documentation shows it; one test stands for them all, which run elsewhere."""

    large_file_bytes = 0
    __test__ = False

    @pytest.fixture
    def fs(self) -> Filesystem:
        return InMemoryFilesystem()


class TestByFactory(FilesystemProtocolTests):
    __test__ = False

    def create_filesystem(self) -> Filesystem:
        return InMemoryFilesystem()


def test_suites_can_be_made() -> None:
    makers: list[Callable[[], FilesystemValidationSuite | FilesystemProtocolTests]] = [TestByFixture, TestByFactory]
    assert [type(make()).__name__ for make in makers] == ["TestByFixture", "TestByFactory"]
    with pytest.raises(TypeError, match="create_filesystem"):
        FilesystemProtocolTests()  # type: ignore[abstract]
