"""ZIPs of any file system: any other reads them, whole or not at all, and no archive does anything but what a tree can be."""

import json
import os
import stat
import tracemalloc
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentfs_files.archive.archive_view import ArchiveEntry, ArchiveView
from agentfs_files.backends.base_filesystem import BaseFilesystem
from agentfs_files.backends.host import HostFilesystem
from agentfs_files.backends.in_memory import InMemoryFilesystem
from agentfs_files.filesystem.filesystem_errors import ArchiveError
from agentfs_files.filesystem.size_limits import Limits
from agentfs_files.trees import directory_tree
from agentfs_host.extents import extents
from tests.client.archives import KINDS, Make, Plainest, content, factory
from tests.compare import describe
from tests.exchange.trees import make_rich_tree
from tests.hostile_archives import HOSTILE


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    with factory(tmp_path) as new:
        yield new


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "archive.zip"


def fill(filesystem: BaseFilesystem) -> None:
    filesystem.write("src/main.py", "print('hello')\n")
    filesystem.write_bytes("src/deep/er/data", bytes(range(256)) * 600)
    filesystem.write("README.md", "# Project")
    filesystem.write("empty", "")
    filesystem.mkdir("void/inner")


# -- round trips


@pytest.mark.parametrize("target", KINDS)
@pytest.mark.parametrize("source", KINDS)
def test_every_backend_reads_what_another_has_written(source: str, target: str, make: Make, path: Path) -> None:
    one, two = make(source), make(target)
    fill(one)
    two.write("src/main.py/was/a/directory", "")
    two.write("goes", "")
    assert one.export_archive(path) == 4
    assert two.import_archive(str(path)) == 4
    assert content(two) == content(one)


def test_manifest_is_as_the_specification_has_it(make: Make, path: Path) -> None:
    filesystem = make("memory")
    fill(filesystem)
    filesystem.export_archive(path)
    with zipfile.ZipFile(path) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        names = archive.namelist()
        assert archive.testzip() is None
    assert (manifest["version"], manifest["file_count"]) == ("1", 4)
    assert manifest["total_bytes"] == 256 * 600 + len("print('hello')\n# Project")
    assert datetime.fromisoformat(manifest["created_at"]).tzinfo == UTC
    assert names == [*sorted(names[:-1]), "manifest.json"]
    assert "files/void/inner/" in names


def test_archives_of_one_state_differ_in_nothing_but_the_time(make: Make, path: Path) -> None:
    filesystem = make("host")
    fill(filesystem)
    seen = []
    for _ in range(2):
        filesystem.export_archive(path)
        with zipfile.ZipFile(path) as archive:
            manifest = json.loads(archive.read("manifest.json"))
            manifest.pop("created_at")
            seen.append((manifest, [(info.filename, info.date_time, info.CRC) for info in archive.infolist()[:-1]]))
    assert seen[0] == seen[1]


def test_modes_times_and_links_survive_from_host_to_host(make: Make, path: Path) -> None:
    one, two = make("host"), make("host")
    root = Path(one.root)
    one.write("bin/run", "#!/bin/sh\n")
    (root / "bin" / "run").chmod(0o755)
    (root / "bin" / "same").hardlink_to(root / "bin" / "run")
    (root / "private").mkdir(0o700)
    (root / "inside").symlink_to("bin/run")
    (root / "python").symlink_to("/usr/bin/python3")
    os.utime(root / "bin" / "run", ns=(1, 1_234_567_891_234_567_890))
    before = describe(root, times=True)
    assert one.export_archive(path) == two.import_archive(path) == 4
    assert describe(Path(two.root), times=True) == before
    one.import_archive(path)
    assert describe(root, times=True) == before


def test_archive_grants_nothing_that_an_import_should_not(make: Make, path: Path, tmp_path: Path) -> None:
    (tmp_path / "rich").mkdir()
    make_rich_tree(tmp_path / "rich")
    HostFilesystem(tmp_path / "rich").export_archive(path)
    filesystem = make("host")
    if os.geteuid() == 0:
        os.chown(filesystem.root, 1234, 1235)
    filesystem.import_archive(path)
    root = Path(filesystem.root)
    assert stat.S_IMODE((root / "sub" / "program").stat().st_mode) == 0o750  # was setuid
    assert not (root / "fifo").exists()
    assert not (root / "device").exists()
    assert os.readlink(root / "dangling") == "/no/such/place"
    assert (root / "text").samefile(root / "sub" / "deep" / "linked")
    assert (root / "holes").stat().st_blocks * 512 < 1 << 20
    assert {(found.st_uid, found.st_gid) for found in map(os.lstat, root.rglob("*"))} == {
        (root.stat().st_uid, root.stat().st_gid)
    }


@pytest.mark.parametrize("kind", ["memory", "plainest"])
def test_where_there_are_no_symlinks_they_are_the_files_they_lead_to(kind: str, make: Make, path: Path) -> None:
    source, target = make("host"), make(kind)
    source.write("sub/text", "here")
    for name, leads in {
        "a": "sub/text",
        "sub/b": "../a",
        "up": "../x",
        "loop": "loop",
        "out": "/etc/passwd",
        "dir": "sub",
    }.items():
        os.symlink(leads, os.path.join(source.root, name))
    source.export_archive(path)
    assert target.import_archive(path) == 3
    assert content(target) == {"a": b"here", "sub": None, "sub/b": b"here", "sub/text": b"here"}


def test_times_are_kept_in_memory(path: Path) -> None:
    one, two = InMemoryFilesystem({"a": "1"}), InMemoryFilesystem()
    one.export_archive(path)
    two.import_archive(path)
    assert two.stat("a").modified_at == one.stat("a").modified_at


def test_snapshot_outlives_an_import(path: Path) -> None:
    filesystem = InMemoryFilesystem({"a": "1"})
    snapshot = filesystem.snapshot()
    InMemoryFilesystem({"b": "2"}).export_archive(path)
    filesystem.import_archive(path)
    assert filesystem.diff(snapshot).added == ("b",)
    filesystem.write("b", "3")
    filesystem.restore(snapshot)
    assert content(filesystem) == {"a": b"1"}


def test_a_tree_deeper_than_what_may_be_created_comes_back(make: Make, path: Path) -> None:
    source = make("host")
    deep = Path(source.root, *["d" * 100] * 30)
    deep.mkdir(parents=True)
    (deep / "leaf").write_text("far")
    source.export_archive(path)
    for target in (source, make("memory"), make("plainest")):
        assert target.import_archive(path) == 1
        assert target.read(f"{'/'.join(['d' * 100] * 30)}/leaf").content == "far"


def test_names_that_are_no_utf8_and_names_of_one_letter_in_two_cases_are_kept(make: Make, path: Path) -> None:
    source = make("host")
    for name in (b"caf\xe9", b"new\nline", b"back\\slash", b"A", b"a"):
        Path(source.root, os.fsdecode(name)).write_bytes(name)
    source.export_archive(path)
    for target in (make("memory"), make("host")):
        target.import_archive(path)
        assert content(target) == content(source)


NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=("Cs",)), min_size=1, max_size=20).filter(
    lambda name: name not in (".", "..")
)
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(PATHS, st.binary(max_size=200) | st.none(), max_size=12))
def test_whatever_is_in_memory_goes_to_a_disk_and_back(make: Make, path: Path, files: dict[str, bytes | None]) -> None:
    one, two = InMemoryFilesystem(), InMemoryFilesystem()
    for where, data in files.items():
        try:
            one.mkdir(where) if data is None else one.write_bytes(where, data)
        except OSError:
            pass  # beneath a file, or a directory already
    host = make("host")
    count = one.export_archive(path)
    assert count == host.import_archive(path) == host.export_archive(path) == two.import_archive(path)
    assert content(two) == content(host) == content(one)


# -- the archive itself


def test_archive_may_lie_in_the_tree_and_stays_there(make: Make) -> None:
    filesystem = make("host")
    filesystem.write("a", "1")
    path = Path(filesystem.root, "new", "inner", "x.zip")
    for _ in range(2):
        assert filesystem.export_archive(path) == 1
    assert os.listdir(path.parent) == ["x.zip"]
    filesystem.write("a", "2")
    filesystem.write("b", "2")
    for _ in range(2):
        assert filesystem.import_archive(path) == 1
        assert filesystem.read("a").content == "1"
        assert set(content(filesystem)) == {"a", "new", "new/inner", "new/inner/x.zip"}


def test_failed_export_leaves_the_old_archive(path: Path) -> None:
    filesystem = Plainest({"a": "1", "b": "2"})
    path.write_text("old")
    filesystem.unreadable = "b"
    with pytest.raises(PermissionError):
        filesystem.export_archive(path)
    assert os.listdir(path.parent) == ["archive.zip"]
    assert path.read_text() == "old"


def test_large_file_is_streamed(make: Make, path: Path, tmp_path: Path) -> None:
    size = 64 << 20
    source, target = make("host"), make("host")
    with open(Path(source.root, "large"), "wb") as file:
        file.truncate(size - 3)
        file.seek(0, os.SEEK_END)
        file.write(b"end")
    tracemalloc.start()
    try:
        source.export_archive(path)
        target.import_archive(path)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    assert target.stat("large").size_bytes == size
    assert target.read_bytes("large", offset=size - 5).content == b"\0\0end"


def test_read_only_file_system_is_exported_and_not_imported_into(path: Path) -> None:
    filesystem = InMemoryFilesystem({"a": "1"}, read_only=True)
    filesystem.export_archive(path)
    with pytest.raises(PermissionError, match="read-only"):
        filesystem.import_archive(path)


def test_missing_archive_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        InMemoryFilesystem().import_archive(tmp_path / "none.zip")
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path, tmp_path / "fifo"):
        with pytest.raises(ArchiveError, match="not a regular file"):
            InMemoryFilesystem().import_archive(path)


# -- looking into one


def test_view_shows_what_is_in_an_archive(make: Make, path: Path) -> None:
    source = make("host")
    source.write("sub/text", "here")
    os.symlink("sub/text", os.path.join(source.root, "also"))
    source.export_archive(path)
    with ArchiveView(path) as view:
        assert view.manifest().keys() == {"version", "created_at", "file_count", "total_bytes"}
        assert view.tree() == (ArchiveEntry("also", 4), ArchiveEntry("sub/text", 4))
        assert view.read("also") == view.read("/sub/text") == b"here"
        with pytest.raises(FileNotFoundError):
            view.read("sub")
    with ArchiveView(path, limits=Limits(max_read_bytes=3)) as view, pytest.raises(ValueError, match="at most 3"):
        view.read("sub/text")


def test_view_finds_damage_when_it_reads(path: Path) -> None:
    HOSTILE["wrong check sum"][0](path)
    with ArchiveView(path) as view:
        assert view.manifest() == {}
        with pytest.raises(ArchiveError, match="damaged"):
            view.read("a")


def test_a_file_without_holes_is_not_searched_for_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a branch each search takes a request to the daemon."""
    searched: list[int] = []

    def search(fd: int, start: int, end: int) -> Iterator[tuple[int, int]]:
        searched.append(end)
        return extents(fd, start, end)

    monkeypatch.setattr(directory_tree, "extents", search)
    (tmp_path / "root").mkdir()
    fs = HostFilesystem(tmp_path / "root")
    fs.write_bytes("full", b"x" * 100_000)
    with (tmp_path / "root" / "sparse").open("wb") as file:
        file.truncate(1 << 20)
    fs.export_archive(tmp_path / "state.zip")
    assert searched == [1 << 20]
