"""What the specifications show of file systems, streams, snapshots and archives, called the same way. In brackets: their
sections. What the tool operations call FilesystemSnapshot is SnapshotManager here. (Prompts and sessions: test_spec_examples.py.)
"""

import json
import zipfile
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

import pytest

from agentfs_client import (
    FILESYSTEM_TOOLS,
    DiffableFilesystem,
    HostBackend,
    HostFilesystem,
    HostFilesystemConfig,
    HostMount,
    InMemoryBackend,
    InMemoryFilesystem,
    MarkdownSection,
    MinimalFilesystem,
    PathEscapeError,
    Prompt,
    PromptTemplate,
    SnapshotInfo,
    SnapshotManager,
    SnapshotRestoreError,
    SnapshotStrategy,
)

BY_GIT = HostFilesystemConfig(snapshot_strategy=SnapshotStrategy.GIT)


@pytest.fixture(params=["memory", "host"])
def filesystem(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DiffableFilesystem]:
    if request.param == "memory":
        yield InMemoryFilesystem()
        return
    (tmp_path / "root").mkdir()
    host = HostFilesystem(_root=str(tmp_path / "root"), config=BY_GIT)
    yield host
    host.cleanup()
    host.close()


# -- streams


def test_large_files_in_chunks(filesystem: DiffableFilesystem) -> None:
    """[Reading large files, as bytes; writing large files]"""
    data = bytes(range(256)) * 600
    with filesystem.open_write("large.bin", mode="create") as writer:
        for start in range(0, len(data), 50_000):
            writer.write(data[start : start + 50_000])
    with filesystem.open_read("large.bin") as reader:
        sizes = [len(chunk) for chunk in reader.chunks(size=65_536)]
    assert sizes == [65_536, 65_536, len(data) - 131_072]
    with filesystem.open_read("large.bin") as reader:
        reader.seek(1024)
        assert reader.read(256) == data[1024:1280]
        assert reader.position == 1280
    with filesystem.open_write("counted.bin") as writer:
        assert writer.write_all(str(number).encode() for number in range(12)) == 14


def test_copy_of_any_size(filesystem: DiffableFilesystem) -> None:
    """[Copying files]"""
    filesystem.write_bytes("source.bin", bytes(200_000))
    with filesystem.open_read("source.bin") as source, filesystem.open_write("target.bin") as target:
        target.write_all(source)
    assert filesystem.read_bytes("target.bin").content == bytes(200_000)


def test_lines_as_they_are_read(filesystem: DiffableFilesystem) -> None:
    """[Reading large files, as text]"""
    filesystem.write("log.txt", "started\nERROR one \nfine\nERROR two\n")
    with filesystem.open_text("log.txt") as reader:
        found = [(reader.line_number, line) for line in reader.lines(strip=True) if "ERROR" in line]
    assert found == [(2, "ERROR one"), (4, "ERROR two")]


def test_streams_give_what_reading_at_once_gives(filesystem: DiffableFilesystem) -> None:
    """[Migration guide]"""
    filesystem.write("a.txt", "one\ntwo\n")
    with filesystem.open_read("a.txt") as reader:
        assert b"".join(reader) == filesystem.read_bytes("a.txt").content
    with filesystem.open_text("a.txt") as text:
        assert list(text.lines(strip=True)) == filesystem.read("a.txt").content.splitlines()


# -- snapshots


def test_changes_between_snapshots_and_the_way_back(filesystem: DiffableFilesystem) -> None:
    """[Usage examples of both versions' snapshots]"""
    fs = filesystem
    fs.write("config.py", "DEBUG = True")
    fs.write("app.py", "from config import DEBUG")
    snapshot_v1 = fs.snapshot(tag="initial")
    fs.write("config.py", "DEBUG = False")
    fs.write("tests.py", "import pytest")
    snapshot_v2 = fs.snapshot(tag="with-tests")
    diff = fs.diff(snapshot_v1, snapshot_v2)
    assert (diff.added, diff.modified, diff.deleted, diff.unchanged_count) == (("tests.py",), ("config.py",), (), 1)
    fs.restore(snapshot_v1)
    assert fs.read("config.py").content == "DEBUG = True"
    assert not fs.exists("tests.py")
    fs.restore(snapshot_v2)
    assert fs.read("config.py").content == "DEBUG = False"
    assert fs.exists("tests.py")
    assert (snapshot_v1.tag, snapshot_v1.file_count, snapshot_v2.parent_id) == ("initial", 2, snapshot_v1.snapshot_id)


def test_snapshots_in_memory_share_what_did_not_change() -> None:
    """[Copy-on-write: the example in action]"""
    fs = InMemoryFilesystem()
    fs.write("large_file.txt", "x" * 1_000_000)
    snap1 = fs.snapshot()
    fs.write("small_file.txt", "hello")
    snap2 = fs.snapshot()
    fs.write("large_file.txt", "y" * 1_000_000)
    assert (snap1.total_bytes, snap2.total_bytes) == (1_000_000, 1_000_005)
    assert (snap1.commit_ref, snap1.root_path, snap1.git_dir) == ("mem-1", "/", None)
    fs.restore(snap1)
    assert fs.read_bytes("large_file.txt").content[:3] == b"xxx"
    assert not fs.exists("small_file.txt")


def test_repository_lies_outside_and_serves_another_instance(tmp_path: Path) -> None:
    """[HostFilesystem implementation: external storage, strict rollback, cleanup, restore across sessions]"""
    root, storage = tmp_path / "project", tmp_path / "git-storage"
    root.mkdir()
    first = HostFilesystem(_root=str(root), _mount_point="/workspace", _git_dir=str(storage))
    assert (first.root, first.mount_point, first.read_only) == (str(root), "/workspace", False)
    first.write("/workspace/.gitignore", "*.log\n")
    snapshot = first.snapshot()
    again = first.snapshot()
    assert (snapshot.git_dir, first.git_dir, snapshot.root_path) == (str(storage), str(storage), str(root))
    assert len(snapshot.commit_ref) == len(again.commit_ref) == 40
    assert snapshot.commit_ref != again.commit_ref
    assert not (root / ".git").exists()
    (root / "debug.log").write_text("ignored by git")
    second = HostFilesystem(_root=str(root))
    assert second.git_dir is None
    second.restore(snapshot)
    assert [entry.name for entry in second.list()] == [".gitignore"]
    assert second.git_dir == str(storage)
    second.close()
    first.cleanup()
    first.cleanup()
    first.close()
    assert not storage.exists()
    with pytest.raises(SnapshotRestoreError):
        HostFilesystem(_root=str(root)).restore(snapshot)


def test_only_so_many_snapshots_of_a_directory_are_kept(tmp_path: Path) -> None:
    """[Configuration for host filesystem snapshots; retention: tagged ones stay]"""
    (tmp_path / "root").mkdir()
    config = HostFilesystemConfig(
        snapshot_strategy=SnapshotStrategy.COPY, snapshot_dir=str(tmp_path / "snapshots"), max_snapshots=1
    )
    fs = HostFilesystem(_root=str(tmp_path / "root"), config=config)
    tagged, old, new = fs.snapshot(tag="kept"), fs.snapshot(), fs.snapshot()
    fs.restore(tagged)
    fs.restore(new)
    with pytest.raises(SnapshotRestoreError):
        fs.restore(old)
    fs.close()
    assert HostFilesystemConfig() == HostFilesystemConfig(snapshot_strategy=None, snapshot_dir=None, max_snapshots=10)


# -- what the examples are made of


def test_section_that_copies_files_in_by_itself(tmp_path: Path) -> None:
    """[Section implementation]"""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.py").write_text("pass\n")
    (tmp_path / "src" / "main.pyc").write_text("")

    class Section(MarkdownSection[None]):
        def __init__(self, mounts: Sequence[HostMount], allowed_host_roots: Sequence[Path]) -> None:
            self._filesystem = InMemoryFilesystem()
            self.copied = sum(self._filesystem.hydrate_from_host(each, allowed_roots=allowed_host_roots) for each in mounts)
            super().__init__(title="Files", key="files", template="Work on them.", tools=FILESYSTEM_TOOLS)

        @property
        def filesystem(self) -> InMemoryFilesystem:
            return self._filesystem

    section = Section([HostMount("src", include_glob=("*.py",))], [tmp_path])
    assert section.copied == 1
    assert [match.path for match in section.filesystem.glob("**")] == ["src/main.py"]
    assert Prompt(PromptTemplate[None](ns="a", key="b", sections=[section])).filesystem() is section.filesystem
    with pytest.raises(PathEscapeError):
        Section([HostMount("/etc")], [tmp_path])


def test_fields_of_a_file_system_in_memory() -> None:
    """[InMemoryFilesystem]"""
    fs = InMemoryFilesystem({"a": "x"}, _read_only=True, _mount_point="/workspace")
    assert (fs.root, fs.read_only, fs.mount_point, fs.read("/workspace/a").content) == ("/", True, "/workspace", "x")
    with pytest.raises(PermissionError):
        fs.write("b", "")


# -- eight methods, and snapshots by name


@pytest.fixture(params=["memory", "host"])
def fs(request: pytest.FixtureRequest, tmp_path: Path) -> MinimalFilesystem:
    if request.param == "memory":
        return InMemoryBackend()
    (tmp_path / "workspace").mkdir()
    return HostBackend(tmp_path / "workspace")


def test_eight_methods(fs: MinimalFilesystem) -> None:
    """[Filesystem protocol and data types of the tool operations]"""
    assert fs.write("src/main.py", "print('zwölf')\nprint(12)\n") == 26
    fs.write("README.md", "# Project\n")
    content = fs.read("src/main.py", offset=1, limit=1)
    assert (content.path, content.content, content.total_lines, content.offset, content.limit) == (
        "src/main.py", "print(12)\n", 2, 1, 1,
    )  # fmt: skip
    listed = fs.list()
    assert listed == fs.list("")
    assert [(entry.path, entry.kind, entry.size_bytes) for entry in listed] == [
        ("README.md", "file", 10),
        ("src", "directory", None),
    ]
    assert [(entry.path, entry.kind, entry.size_bytes) for entry in fs.glob("**/*.py")] == [("src/main.py", "file", 26)]
    found = fs.grep(r"print\((\d+)\)", file_glob="*.py")
    assert [(match.path, match.line_number, match.line_content) for match in found] == [("src/main.py", 2, "print(12)")]
    assert (fs.delete("src"), fs.delete("src"), fs.delete("tests/")) == (2, 0, 0)
    with pytest.raises(FileNotFoundError):
        fs.read("src/main.py")


def test_archive_has_the_form_of_the_specification(fs: MinimalFilesystem, tmp_path: Path) -> None:
    """[ZIP archive format]"""
    fs.write("src/main.py", "pass")
    archive = tmp_path / "turn-1.fs.zip"
    assert fs.export_archive(archive) == 1
    with zipfile.ZipFile(archive) as opened:
        manifest = json.loads(opened.read("manifest.json"))
        assert opened.read("files/src/main.py") == b"pass"
    assert (manifest["version"], manifest["file_count"], manifest["total_bytes"]) == ("1", 1, 4)
    assert datetime.fromisoformat(manifest["created_at"]).tzinfo is not None
    fs.write("src/main.py", "changed")
    fs.write("added", "")
    assert fs.import_archive(archive) == 1
    assert fs.read("src/main.py").content == "pass"
    assert [entry.path for entry in fs.list()] == ["src"]


def test_one_backend_restores_what_another_has_kept(fs: MinimalFilesystem, tmp_path: Path) -> None:
    """[Cross-backend restore]"""
    memory, archive = InMemoryBackend(), tmp_path / "snapshot.zip"
    memory.write("src/main.py", "print('hello')")
    memory.write("README.md", "# Project")
    memory.export_archive(archive)
    assert SnapshotManager(fs.backend, tmp_path / "snapshots").restore(archive) == 2
    assert fs.read("src/main.py").content == "print('hello')"
    assert fs.read("README.md").content == "# Project"


def test_snapshots_by_name(fs: MinimalFilesystem, tmp_path: Path) -> None:
    """[FilesystemSnapshot of the tool operations, usage pattern]"""
    snapshots = SnapshotManager(fs, tmp_path / "snapshots")
    assert snapshots.filesystem is fs
    fs.write("file.txt", "v1")
    first = snapshots.snapshot("s1")
    fs.write("file.txt", "v2")
    snapshots.snapshot("s2")
    fs.write("file.txt", "v3")
    assert snapshots.rollback("s1") == 1
    assert fs.read("file.txt").content == "v1"
    snapshots.rollback("s2")
    assert fs.read("file.txt").content == "v2"
    assert first == SnapshotInfo(
        "s1", tmp_path / "snapshots" / "s1.fs.zip", 1, first.archive_path.stat().st_size, first.created_at
    )
    assert [info.snapshot_id for info in snapshots.list_snapshots()] == ["s1", "s2"]
    assert (snapshots.get("s1"), snapshots.get("s3")) == (first, None)
    assert (snapshots.delete("s1"), snapshots.delete("s1"), first.archive_path.exists()) == (True, False, False)
    with pytest.raises(KeyError):
        snapshots.rollback("s1")
