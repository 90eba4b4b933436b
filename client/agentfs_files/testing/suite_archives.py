"""Tests of export_archive() and import_archive(): one ZIP format for every file system."""

import json
import zipfile
from pathlib import Path

import pytest

from agentfs_files.backends.in_memory import InMemoryFilesystem
from agentfs_files.filesystem.filesystem_errors import ArchiveError
from agentfs_files.filesystem.filesystem_protocol import ArchivableFilesystem, Filesystem
from agentfs_files.testing.suite_settings import Settings, contents, fill


class ArchiveTests(Settings):
    """Tests of archives. A subclass supplies the fixture ``fs``."""

    @pytest.fixture
    def archivable(self, fs: Filesystem) -> ArchivableFilesystem:
        if not isinstance(fs, ArchivableFilesystem):
            pytest.skip(f"{type(fs).__name__} has no archives")
        return fs

    @pytest.fixture
    def place(self, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """Return a directory for archives outside the file system, which may be in tmp_path."""
        return tmp_path_factory.mktemp("archives")

    def test_archive_has_the_common_form(self, archivable: ArchivableFilesystem, place: Path) -> None:
        fill(archivable, {"src/main.py": "print()\n", "README.md": "zwölf", ".hidden": ""})
        assert archivable.export_archive(place / "new" / "state.fs.zip") == 3
        with zipfile.ZipFile(place / "new" / "state.fs.zip") as archive:
            names = {name for name in archive.namelist() if not name.endswith("/")}
            assert names == {"manifest.json", "files/src/main.py", "files/README.md", "files/.hidden"}
            assert archive.read("files/README.md").decode() == "zwölf"
            manifest = json.loads(archive.read("manifest.json"))
        assert (manifest["version"], manifest["file_count"], manifest["total_bytes"]) == ("1", 3, 14)
        assert manifest["created_at"]

    def test_import_replaces_everything(self, archivable: ArchivableFilesystem, place: Path) -> None:
        fs = archivable
        fill(fs, {"file.txt": "original", "dir/kept": "x"})
        fs.write_bytes("data.bin", bytes(range(256)))
        assert fs.export_archive(place / "a.zip") == 3
        fill(fs, {"file.txt": "modified", "dir/added": "x", "other/added": "x"})
        fs.delete("dir/kept")
        assert fs.import_archive(place / "a.zip") == 3
        assert fs.read_bytes("data.bin").content == bytes(range(256))
        fs.delete("data.bin")
        assert contents(fs) == {"dir/kept": "x", "file.txt": "original"}
        assert not fs.exists("other")

    def test_archives_go_from_one_backend_to_another(self, archivable: ArchivableFilesystem, place: Path) -> None:
        memory = InMemoryFilesystem({"src/main.py": "print('hello')", "README.md": "# Project"})
        memory.export_archive(place / "out.zip")
        archivable.import_archive(place / "out.zip")
        assert contents(archivable) == contents(memory)
        archivable.export_archive(place / "back.zip")
        other = InMemoryFilesystem({"old": "x"})
        other.import_archive(place / "back.zip")
        assert contents(other) == contents(memory)

    @pytest.mark.parametrize("name", ["files/../../evil", "files//etc/evil", "/evil", "../evil", "files/a/../../../evil"])
    def test_archive_that_leads_out_changes_nothing(self, archivable: ArchivableFilesystem, place: Path, name: str) -> None:
        archivable.write("file", "old")
        with zipfile.ZipFile(place / "evil.zip", "w") as archive:
            archive.writestr("files/good", "x")
            archive.writestr(name, "x")
            archive.writestr("manifest.json", json.dumps({"version": "1", "file_count": 2, "total_bytes": 2}))
        with pytest.raises(ArchiveError):
            archivable.import_archive(place / "evil.zip")
        assert contents(archivable) == {"file": "old"}

    def test_what_is_no_archive_changes_nothing(self, archivable: ArchivableFilesystem, place: Path) -> None:
        archivable.write("file", "old")
        (place / "no.zip").write_bytes(b"PK no archive")
        with pytest.raises(ArchiveError):
            archivable.import_archive(place / "no.zip")
        with pytest.raises(FileNotFoundError):
            archivable.import_archive(place / "missing.zip")
        assert contents(archivable) == {"file": "old"}
