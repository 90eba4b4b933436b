"""ZIPs as nobody means well with, made by hand: whoever reads archives refuses every one, for the reason that is named."""

import json
import os
import stat
import struct
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

MANIFEST = {"version": "1", "created_at": "2024-01-15T10:30:00+00:00", "file_count": 1, "total_bytes": 5}


def members(path: Path, *entries: tuple[str, bytes], **manifest: object) -> zipfile.ZipFile:
    """A plain archive, closed by whoever gets it."""
    made = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
    for name, data in entries:
        made.writestr(name, data)
    made.writestr("manifest.json", json.dumps({**MANIFEST, **manifest}))
    return made


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


def _under_an_extra_field(path: Path) -> None:
    """The second member lies in the extra field of the first."""
    inner = zipfile.ZipInfo("files/b")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(inner, b"1")
    body = path.read_bytes()[: 30 + len("files/b") + 1]
    outer = zipfile.ZipInfo("files/a")
    outer.extra = struct.pack("<HH", 0x9999, len(body)) + body
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(outer, b"1")
        inner.header_offset = 30 + len("files/a") + 4
        archive.filelist.append(inner)
        archive.NameToInfo["files/b"] = inner


def _elsewhere(path: Path) -> None:
    """A member whose place is beyond the end."""
    _named("files/a")(path)
    data = bytearray(path.read_bytes())
    struct.pack_into("<I", data, data.index(b"PK\x01\x02") + 42, 1 << 30)
    path.write_bytes(data)


def _absurd(path: Path) -> None:
    """A declared size of 4 EiB."""
    info = zipfile.ZipInfo("files/a")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(info, b"1")
        info.file_size = 1 << 62


def _cut_within(path: Path) -> None:
    """Some bytes in the middle are missing; the directory at the end is whole."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("files/a", os.urandom(1000))
    data = path.read_bytes()
    path.write_bytes(data[:100] + data[600:])


def _special(path: Path) -> None:
    info = zipfile.ZipInfo("files/fifo")
    info.create_system, info.external_attr = 3, (stat.S_IFIFO | 0o644) << 16
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(info, b"")


def _large_manifest(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("files/a", b"1")
        archive.writestr("manifest.json", b" " * (19 << 20))


def _truncated(path: Path) -> None:
    _named("files/a")(path)
    path.write_bytes(path.read_bytes()[:-30])


MODE = 0o100644
_DEEP = "/d" * 500  # a line of a manifest, and 500 directories of our memory

HOSTILE = {
    "directories out of nothing": (_manifest(*({"path": f"{n}{_DEEP}", "mode": 0o40755} for n in range(140))), "holds more than"),
    "climbs": (_named("files/../../evil"), "leads out"),
    "climbs outside files": (_named("../evil"), "leads out"),
    "absolute": (_named("/etc/evil"), "leads out"),
    "dot": (_named("files/./a"), "leads out"),
    "empty name": (_named("files//a"), "leads out"),
    "backslash": (_named("files/..\\..\\evil"), "backslash"),
    "name too long": (_named("files/" + "n" * 256), "no file can have"),
    "twice": (_twice, "twice"),
    "two slashes": (_named("files/d//"), "leads out"),
    "file and directory": (_named("files/a", "files/a/"), "twice|content"),
    "beneath a file": (_named("files/a", "files/a/b"), "not a directory"),
    "beneath a symlink": (_beneath_a_symlink, "not a directory|says nothing"),
    "wrong check sum": (_patched(b"precious", b"PRECIOUS"), "damaged"),
    "wrong size": (_patched(struct.pack("<II", 8, 8), struct.pack("<II", 8, 9)), "damaged|declared"),
    "encrypted": (_encrypted, "encrypted"),
    "unknown method": (_compressed_unusually, "method"),
    "overlapping": (_overlapping, "lies over"),
    "overlapping by an extra field": (_under_an_extra_field, "lies over"),
    "member beyond the end": (_elsewhere, "not where"),
    "absurd size": (_absurd, "more than the limit"),
    "cut within": (_cut_within, "lies over|not where|damaged"),
    "FIFO": (_special, "of no type"),
    "too deep": (_named("files/" + "d/" * 600 + "a"), "at most 512"),
    "manifest of spaces": (_large_manifest, "its manifest has"),
    "truncated": (_truncated, "cannot be read"),
    "no zip": (lambda path: path.write_bytes(b"hello" * 100), "cannot be read"),
    "nothing of ours": (lambda path: zipfile.ZipFile(path, "w").close(), "neither"),
    "version": (lambda path: members(path, version="2").close(), "version"),
    "manifest climbs": (_manifest({"path": "../a", "mode": MODE, "name": "files/a"}), "leads out"),
    "manifest beneath a symlink": (
        _manifest({"path": "a", "mode": 0o120777}, {"path": "a/b", "mode": 0o010644}), "not a directory"
    ),
    "manifest twice": (_manifest({"path": "a", "mode": MODE}, {"path": "a", "mode": MODE}), "twice"),
    "manifest renames onto a member": (_manifest({"path": "b", "mode": 0o10644}, {"path": "a", "mode": 0o10644}), "disagree"),
    "manifest lists what is missing": (_manifest({"path": "b", "mode": MODE}), "disagree"),
    "manifest without type": (_manifest({"path": "a", "mode": 0o644}), "attributes"),
    "manifest with a wild owner": (_manifest({"path": "a", "mode": MODE, "uid": -1}), "attributes"),
    "manifest with a wild time": (_manifest({"path": "a", "mode": MODE, "mtime_ns": 10**30}), "attributes|cannot be read"),
    "manifest that is no JSON": (lambda path: members(path, version="1\udc80").close(), "manifest"),
    "root is a file": (_manifest({"path": "", "mode": MODE}), "attributes"),
}  # fmt: skip
