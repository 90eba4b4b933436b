"""The ZIP: ours is read by everybody, everybody's by us, and no archive does anything but what a tree can be."""

import json
import os
import shutil
import stat
import subprocess
import zipfile
from pathlib import Path

import pytest

from agentfs_files.archive import members as archive_members
from agentfs_files.archive import zip_writer
from agentfs_files.archive.pack import write_archive
from agentfs_files.trees.directory_tree import Directory
from agentfs_files.trees.equal_trees import make_equal
from agentfsd.domain_errors import Refusal
from agentfsd.exchange.place import new_file
from agentfsd.exchange.unarchive import opened_archive
from tests.compare import describe
from tests.exchange.trees import unlike
from tests.hostile_archives import HOSTILE, link, members


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "archive.zip"


def pack(source: Path, path: Path) -> None:
    with Directory(str(source)) as tree, open(path, "wb") as file:
        write_archive(tree, file)


def unpack(path: Path, target: Path, max_bytes: int = 1 << 30) -> None:
    with opened_archive(str(path), max_bytes) as archive:
        make_equal(str(target), archive)


def test_small_archive_of_much_data_is_refused(path: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long runs of zeros are none: they become holes, as in a sparse file that was exported."""
    monkeypatch.setattr(archive_members, "_FREE_DATA_BYTES", 1 << 20)
    members(path, ("files/zeros", bytes(8 << 20))).close()
    unpack(path, target)
    assert (target / "zeros").stat().st_size == 8 << 20
    members(path, ("files/a", b"a" * (8 << 20))).close()
    with pytest.raises(Refusal, match="grows to more than 200 times its size"):
        unpack(path, target)
    assert not (target / "a").exists()


@pytest.mark.parametrize("nameless", [True, False])
def test_archive_has_a_name_when_it_is_complete(path: Path, monkeypatch: pytest.MonkeyPatch, nameless: bool) -> None:
    """Not before where the system can do so: nothing is left of a process that is killed."""
    if not nameless:
        monkeypatch.setattr(zip_writer, "_OWN_DESCRIPTORS", "/nowhere")
    path.write_text("older")
    for ends in (KeyboardInterrupt, OSError):
        with pytest.raises(ends), new_file(str(path), replace=True) as file:
            file.write(b"half")
            file.flush()
            assert len(list(path.parent.glob(".*.part"))) == (0 if nameless else 1)
            raise ends
        assert list(path.parent.glob(".*.part")) == []
    assert path.read_text() == "older"
    with new_file(str(path), replace=True) as file:
        file.write(b"whole")
    assert path.read_bytes() == b"whole"
    assert list(path.parent.glob(".*.part")) == []


def test_round_trip_keeps_everything(source: Path, path: Path, target: Path) -> None:
    pack(source, path)
    unpack(path, target)
    assert unlike(source, target) == []
    assert (target / "holes").stat().st_blocks * 512 < 1 << 20


def old_reader(path: Path) -> dict[str, bytes]:
    """What the specification's readers do."""
    found = {}
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if name.startswith("files/") and not name.endswith("/"):
                found[name[6:]] = archive.read(name)
    return found


def test_readers_of_the_specification_notice_nothing(source: Path, path: Path) -> None:
    pack(source, path)
    found = old_reader(path)
    with zipfile.ZipFile(path) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        assert archive.testzip() is None
    assert manifest["version"] == "1"
    assert manifest["file_count"] == len(found)
    assert manifest["total_bytes"] == sum(map(len, found.values()))
    assert found["text"] == found["sub/deep/linked"] == b"one\ntwo\n"
    assert found["binary"] == (source / "binary").read_bytes()


def test_unzip_restores_modes_links_and_times(source: Path, path: Path, target: Path) -> None:
    pack(source, path)
    if shutil.which("unzip") is None:
        pytest.skip("unzip is missing: apt-get install unzip")
    subprocess.run(["unzip", "-q", "-K", str(path)], cwd=target, check=True)
    files = target / "files"
    assert stat.S_IMODE((files / "sub" / "program").stat().st_mode) == 0o4750
    assert stat.S_IMODE((files / "sub" / "deep").stat().st_mode) == 0o555
    assert os.readlink(files / "sub" / "symlink") == "../text"
    assert os.readlink(files / "dangling") == "/no/such/place"
    assert (files / "empty").is_dir()
    assert (files / "text").stat().st_mtime == 1


def test_archive_of_others_is_read(path: Path, target: Path) -> None:
    members(path, ("files/src/main.py", b"print"), ("files/README.md", b"hello")).close()
    (target / "README.md").write_text("other")
    (target / "README.md").chmod(0o640)
    (target / "goes").write_text("")
    unpack(path, target)
    assert describe(target).keys() == {"README.md", "src", "src/main.py"}
    assert (target / "src" / "main.py").read_text() == "print"
    assert stat.S_IMODE((target / "README.md").stat().st_mode) == 0o640  # the archive does not say


def test_archive_of_zip_keeps_modes_and_links(source: Path, path: Path, target: Path) -> None:
    (source / "fifo").unlink()
    (source / "device").unlink(missing_ok=True)
    (source / "back\\slash").unlink()
    source.rename(source.with_name("files"))
    subprocess.run(["zip", "-q", "-r", "-y", str(path), "files"], cwd=path.parent, check=True)
    unpack(path, target)
    assert stat.S_IMODE((target / "sub" / "deep").stat().st_mode) == 0o555
    assert os.readlink(target / "sub" / "symlink") == "../text"
    assert describe(target).keys() == describe(source.with_name("files")).keys()


def test_member_that_was_added_with_zip_comes_along(source: Path, path: Path, target: Path) -> None:
    pack(source, path)
    (path.parent / "files").mkdir()
    (path.parent / "files" / "added").write_text("later")
    subprocess.run(["zip", "-q", str(path), "files/added"], cwd=path.parent, check=True)
    unpack(path, target)
    assert (target / "added").read_text() == "later"
    assert unlike(source / "sub", target / "sub") == []


# -- hostile ones


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_archive_is_refused_before_anything_is_written(kind: str, path: Path, target: Path) -> None:
    make, words = HOSTILE[kind]
    make(path)
    (target / "mine").write_text("mine")
    with pytest.raises(Refusal, match=words):
        unpack(path, target)
    assert os.listdir(target) == ["mine"]
    assert not (target.parent / "evil").exists()


def test_bomb_is_held_to_the_limit(path: Path, target: Path) -> None:
    members(path, ("files/zeros", bytes(1 << 20))).close()
    assert path.stat().st_size < 10_000
    with pytest.raises(Refusal, match="more than the limit"):
        unpack(path, target, 1 << 19)
    assert os.listdir(target) == []
    unpack(path, target, 1 << 21)
    assert (target / "zeros").stat().st_size == 1 << 20


def test_target_of_a_symlink_is_data(path: Path, target: Path) -> None:
    outside = path.parent / "outside"
    outside.write_text("mine")
    with members(path, ("files/a", b"theirs")) as archive:
        archive.writestr(*link("files/link", "../outside"))
    (target / "a").symlink_to(outside)
    unpack(path, target)
    assert outside.read_text() == "mine"
    assert os.readlink(target / "link") == "../outside"
    assert not (target / "a").is_symlink()
