"""The ZIP: ours is read by everybody, everybody's by us, and no archive does anything but what a tree can be."""

import json
import os
import shutil
import stat
import struct
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from agentfs_client.archive.pack import write_archive
from agentfs_client.trees.directory import Directory
from agentfs_client.trees.equal import make_equal
from agentfsd.errors import Refusal
from agentfsd.exchange.unarchive import opened_archive
from tests.compare import describe
from tests.exchange.trees import unlike

MANIFEST = {"version": "1", "created_at": "2024-01-15T10:30:00+00:00", "file_count": 1, "total_bytes": 5}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "archive.zip"


def pack(source: Path, path: Path) -> None:
    with Directory(str(source)) as tree, open(path, "wb") as file:
        write_archive(tree, file)


def unpack(path: Path, target: Path, max_bytes: int = 1 << 30) -> None:
    with opened_archive(str(path), max_bytes) as archive:
        make_equal(str(target), archive)


def members(path: Path, *entries: tuple[str, bytes], **manifest: object) -> zipfile.ZipFile:
    """A plain archive, closed by whoever gets it."""
    made = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
    for name, data in entries:
        made.writestr(name, data)
    made.writestr("manifest.json", json.dumps({**MANIFEST, **manifest}))
    return made


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


def link(name: str, target: str) -> tuple[zipfile.ZipInfo, str]:
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    return info, target


def _named(*names: str) -> Callable[[Path], None]:
    return lambda path: members(path, *((name, b"evil") for name in names)).close()


def _beneath_a_symlink(path: Path) -> None:
    with members(path) as archive:
        archive.writestr(*link("files/out", "/tmp"))
        archive.writestr("files/out/evil", b"evil")


def _twice(path: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate"), members(path, ("files/a", b"1")) as archive:
        archive.writestr("files/a", b"2")


def _manifest(*entries: dict[str, object]) -> Callable[[Path], None]:
    return lambda path: members(path, ("files/a", b"1"), entries=list(entries)).close()


def _patched(old: bytes, new: bytes) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("files/a", b"precious")
        data = path.read_bytes()
        assert old in data
        path.write_bytes(data.replace(old, new))

    return make


def _encrypted(path: Path) -> None:
    (path.parent / "files").mkdir()
    (path.parent / "files" / "a").write_text("secret")
    subprocess.run(["zip", "-q", "-P", "x", str(path), "files/a"], cwd=path.parent, check=True)


def _compressed_unusually(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("files/a", b"1")


def _overlapping(path: Path) -> None:
    """Two members in the directory that share one member's bytes."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("files/a", b"1" * 100)
        archive.writestr("files/b", b"1" * 100)
    with zipfile.ZipFile(path) as archive:
        first, second = archive.infolist()
    data = bytearray(path.read_bytes())
    at = data.rindex(b"PK\x01\x02")
    assert struct.unpack_from("<I", data, at + 42)[0] == second.header_offset
    struct.pack_into("<I", data, at + 42, first.header_offset)
    path.write_bytes(data)


def _truncated(path: Path) -> None:
    _named("files/a")(path)
    path.write_bytes(path.read_bytes()[:-30])


MODE = 0o100644
HOSTILE = {
    "climbs": (_named("files/../../evil"), "leads out"),
    "climbs outside files": (_named("../evil"), "leads out"),
    "absolute": (_named("/etc/evil"), "leads out"),
    "dot": (_named("files/./a"), "leads out"),
    "empty name": (_named("files//a"), "leads out"),
    "backslash": (_named("files/..\\..\\evil"), "backslash"),
    "name too long": (_named("files/" + "n" * 300), "no file can have"),
    "twice": (_twice, "twice"),
    "file and directory": (_named("files/a", "files/a/"), "twice|content"),
    "beneath a file": (_named("files/a", "files/a/b"), "no directory"),
    "beneath a symlink": (_beneath_a_symlink, "no directory"),
    "wrong check sum": (_patched(b"precious", b"PRECIOUS"), "damaged"),
    "wrong size": (_patched(struct.pack("<II", 8, 8), struct.pack("<II", 8, 9)), "damaged|declared"),
    "encrypted": (_encrypted, "encrypted"),
    "unknown method": (_compressed_unusually, "method"),
    "overlapping": (_overlapping, "lies over"),
    "truncated": (_truncated, "cannot be read"),
    "no zip": (lambda path: path.write_bytes(b"hello" * 100), "cannot be read"),
    "nothing of ours": (lambda path: zipfile.ZipFile(path, "w").close(), "neither"),
    "version": (lambda path: members(path, version="2").close(), "version"),
    "manifest climbs": (_manifest({"path": "../a", "mode": MODE, "name": "files/a"}), "leads out"),
    "manifest beneath a symlink": (_manifest({"path": "a", "mode": 0o120777}, {"path": "a/b", "mode": 0o010644}), "no directory"),
    "manifest twice": (_manifest({"path": "a", "mode": MODE}, {"path": "a", "mode": MODE}), "twice"),
    "manifest renames onto a member": (_manifest({"path": "b", "mode": 0o10644}, {"path": "a", "mode": 0o10644}), "disagree"),
    "manifest lists what is missing": (_manifest({"path": "b", "mode": MODE}), "disagree"),
    "manifest without type": (_manifest({"path": "a", "mode": 0o644}), "attributes"),
    "manifest with a wild owner": (_manifest({"path": "a", "mode": MODE, "uid": -1}), "attributes"),
    "manifest with a wild time": (_manifest({"path": "a", "mode": MODE, "mtime_ns": 10**30}), "attributes|cannot be read"),
    "manifest that is no JSON": (lambda path: members(path, version="1\udc80").close(), "manifest"),
    "root is a file": (_manifest({"path": "", "mode": MODE}), "attributes"),
}  # fmt: skip


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
