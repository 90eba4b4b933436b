"""Snapshots as archives under chosen names, over a file system that packs its one file into a real ZIP."""

import os
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import msgspec
import pytest

from agentfs_files.filesystem.filesystem_protocol import ArchivableFilesystem
from agentfs_files.snapshots.manager import SnapshotManager


class OneFile:
    """The least that has archives."""

    def __init__(self, text: str = "") -> None:
        self.text = text

    def export_archive(self, path: str | os.PathLike[str]) -> int:
        manifest = {"version": "1", "created_at": datetime.now(UTC), "file_count": 1, "total_bytes": len(self.text)}
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("manifest.json", msgspec.json.encode(manifest))
            archive.writestr("files/file.txt", self.text)
        return 1

    def import_archive(self, path: str | os.PathLike[str]) -> int:
        with zipfile.ZipFile(path) as archive:
            self.text = archive.read("files/file.txt").decode()
        return 1


def manager(filesystem: OneFile, directory: Path | None) -> SnapshotManager:
    return SnapshotManager(cast(ArchivableFilesystem, filesystem), directory)


def test_rollback_goes_back_and_forth(tmp_path: Path) -> None:
    filesystem = OneFile("v1")
    snapshots = manager(filesystem, tmp_path)
    first = snapshots.snapshot("s1")
    filesystem.text = "v2"
    second = snapshots.snapshot("s2")
    filesystem.text = "v3"
    assert snapshots.rollback("s1") == 1
    assert filesystem.text == "v1"
    snapshots.rollback("s2")
    assert filesystem.text == "v2"
    assert snapshots.list_snapshots() == (first, second)
    assert snapshots.get("s1") == first
    assert first.archive_path == tmp_path / "s1.fs.zip"
    assert first.total_bytes == first.archive_path.stat().st_size
    assert (first.file_count, first.created_at.tzinfo) == (1, UTC)


def test_same_name_again_replaces_the_snapshot(tmp_path: Path) -> None:
    filesystem = OneFile("v1")
    snapshots = manager(filesystem, tmp_path)
    for text in ("v1", "v2"):
        filesystem.text = text
        snapshots.snapshot("s")
    filesystem.text = "v3"
    snapshots.rollback("s")
    assert filesystem.text == "v2"
    assert len(snapshots.list_snapshots()) == 1


def test_unknown_and_deleted_names(tmp_path: Path) -> None:
    snapshots = manager(OneFile(), tmp_path)
    info = snapshots.snapshot("s1")
    with pytest.raises(KeyError, match="there are: s1"):
        snapshots.rollback("s2")
    assert snapshots.delete("s1")
    assert not info.archive_path.exists()
    assert not snapshots.delete("s1")
    assert snapshots.get("s1") is None
    with pytest.raises(KeyError):
        snapshots.rollback("s1")


@pytest.mark.parametrize("name", ["", " ", "..", "a/b", "../up", "/etc/x", "a\\b", "a\0b", "a\nb", "\ud800", "ä" * 101])
def test_names_that_are_no_file_names_are_refused(tmp_path: Path, name: str) -> None:
    snapshots = manager(OneFile(), tmp_path / "made")
    with pytest.raises(ValueError, match="name of a snapshot"):
        snapshots.snapshot(name)
    assert not (tmp_path / "made").exists()


def test_later_process_finds_the_snapshots_of_an_earlier_one(tmp_path: Path) -> None:
    filesystem = OneFile("v1")
    earlier = manager(filesystem, tmp_path)
    earlier.snapshot("turn-5 ä")
    earlier.snapshot("turn-6")
    (tmp_path / "damaged.fs.zip").write_bytes(b"PK")
    (tmp_path / "notes.txt").write_text("x")
    with zipfile.ZipFile(tmp_path / "other.fs.zip", "w") as archive:
        archive.writestr("manifest.json", "{}")
    later = manager(OneFile(), tmp_path)
    assert [info.snapshot_id for info in later.list_snapshots()] == ["turn-5 ä", "turn-6"]
    assert later.list_snapshots()[0].file_count == 1
    later.rollback("turn-5 ä")
    assert cast(OneFile, later.filesystem).text == "v1"


def test_restore_takes_an_archive_from_anywhere(tmp_path: Path) -> None:
    OneFile("from elsewhere").export_archive(tmp_path / "session.fs.zip")
    filesystem = OneFile()
    assert manager(filesystem, tmp_path / "unused").restore(tmp_path / "session.fs.zip") == 1
    assert filesystem.text == "from elsewhere"
    assert not (tmp_path / "unused").exists()


def test_each_has_a_directory_of_its_own_unless_one_is_named() -> None:
    one, two = manager(OneFile("1"), None), manager(OneFile("2"), None)
    first, second = one.snapshot("s"), two.snapshot("s")
    assert first.archive_path != second.archive_path
    for info in (first, second):
        info.archive_path.unlink()
        info.archive_path.parent.rmdir()
