"""Archives that are refused before anything is written, and imports that fail midway: everything stays as it was."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentfs_files.archive.archive_view import ArchiveView
from agentfs_files.archive.unpack import Archive
from agentfs_files.backends.host import HostFilesystem
from agentfs_files.backends.host_import import check_case
from agentfs_files.backends.in_memory import InMemoryFilesystem
from agentfs_files.filesystem.filesystem_errors import ArchiveError, ArchiveTooLargeError
from agentfs_files.filesystem.size_limits import Limits
from tests.client.archives import Make, Plainest, content, factory
from tests.compare import describe
from tests.hostile_archives import HOSTILE, link, members
from tests.mounted import needs_open_checkout, needs_root


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    with factory(tmp_path) as new:
        yield new


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "archive.zip"


@pytest.fixture
def own_temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], HostFilesystem]]:
    """A file system of its own, with mount options that limit it."""
    needs_root()
    where = tmp_path / "disk"
    where.mkdir()
    made: list[HostFilesystem] = []

    def mount(options: str) -> HostFilesystem:
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "small", where], check=True)
        made.append(HostFilesystem(where))
        return made[0]

    yield mount
    made[0].close()
    subprocess.run(["umount", where], check=True)


# -- hostile ones


def _foreign_link(path: Path) -> None:
    with members(path) as archive:
        archive.writestr(*link("files/out", "/etc/passwd"))


@pytest.mark.parametrize("target", ["memory", "host"])
@pytest.mark.parametrize("kind", [*HOSTILE, "symlink of strangers"])
def test_hostile_archive_is_refused_before_anything_is_written(kind: str, target: str, make: Make, path: Path) -> None:
    write, words = HOSTILE.get(kind, (_foreign_link, "of which its manifest says nothing"))
    write(path)
    filesystem = make(target)
    filesystem.write("mine", "mine")
    before = filesystem.stat(".").modified_at
    with pytest.raises(ArchiveError, match=words):
        filesystem.import_archive(path)
    assert content(filesystem) == {"mine": b"mine"}
    assert filesystem.stat(".").modified_at == before
    assert not (path.parent / "evil").exists()


def test_bomb_is_held_to_the_limit(path: Path, tmp_path: Path) -> None:
    members(path, ("files/zeros", bytes(1 << 20))).close()
    (tmp_path / "root").mkdir()
    limits = Limits(max_archive_bytes=1 << 19)
    for filesystem in (InMemoryFilesystem(limits=limits), HostFilesystem(tmp_path / "root", limits=limits)):
        with pytest.raises(ArchiveTooLargeError, match="more than the limit"):
            filesystem.import_archive(path)


def test_bomb_of_symlinks_is_held_to_the_limit(make: Make, path: Path) -> None:
    source = make("host")
    source.write("a", "x" * 1000)
    for number in range(20):
        os.symlink("a", os.path.join(source.root, f"link{number}"))
    source.export_archive(path)
    with pytest.raises(ArchiveTooLargeError, match="21000 bytes"):
        InMemoryFilesystem(limits=Limits(max_archive_bytes=20_000)).import_archive(path)


def test_names_that_a_disk_would_take_for_one_are_refused(path: Path) -> None:
    names = ("sub/Caf\N{LATIN SMALL LETTER E WITH ACUTE}", "sub/cafe\N{COMBINING ACUTE ACCENT}")
    InMemoryFilesystem(dict.fromkeys(names, "")).export_archive(path)
    with Archive(str(path)) as archive, pytest.raises(ArchiveError, match="one name on this file system"):
        check_case(archive)


# -- failures midway


def test_disk_that_fills_up_midway_is_as_it_was(small_disk: Callable[[str], HostFilesystem], path: Path) -> None:
    filesystem = small_disk("size=1m,nr_inodes=20")
    filesystem.write("keep/me", "mine")
    root = Path(filesystem.root)
    before = describe(root, times=True)
    InMemoryFilesystem({f"{number}": "x" for number in range(30)}).export_archive(path)
    with pytest.raises(OSError, match="nothing changed: No space left"):
        filesystem.import_archive(path)
    InMemoryFilesystem({"large": "x" * (2 << 20)}).export_archive(path)
    with pytest.raises(OSError, match=r"2097152 bytes, and \d+ are free; nothing was changed"):
        filesystem.import_archive(path)
    assert describe(root, times=True) == before


def test_name_that_cannot_be_moved_undoes_the_others(make: Make, path: Path) -> None:
    needs_root()
    filesystem = make("host")
    for name in ("a", "m/in", "z"):
        filesystem.write(name, "mine")
    InMemoryFilesystem({"a": "1", "b": "2", "m/in": "3"}).export_archive(path)
    before = content(filesystem)
    where = os.path.join(filesystem.root, "m")
    subprocess.run(["mount", "--bind", where, where], check=True)
    try:
        with pytest.raises(OSError, match="nothing changed: Device or resource busy: 'm'"):
            filesystem.import_archive(path)
        assert content(filesystem) == before
    finally:
        subprocess.run(["umount", where], check=True)
    filesystem.import_archive(path)
    assert content(filesystem) == {"a": b"1", "b": b"2", "m": None, "m/in": b"3"}


def test_backend_without_a_way_of_its_own_puts_back_what_was_there(path: Path, own_temporary: Path) -> None:
    filesystem = Plainest({"b": "mine", "sub/c": "mine", "a": "mine"})
    before = content(filesystem)
    InMemoryFilesystem({"a": "theirs", "x": "theirs"}).export_archive(path)
    filesystem.broken = "x"
    with pytest.raises(OSError, match="No space"):
        filesystem.import_archive(path)
    assert content(filesystem) == before
    assert os.listdir(own_temporary) == ["archive.zip"]


def test_backend_that_takes_nothing_back_says_where_it_is_kept(path: Path, own_temporary: Path) -> None:
    filesystem = Plainest({"b": "mine"})
    InMemoryFilesystem({"a": "theirs"}).export_archive(path)
    filesystem.broken = ""
    with pytest.raises(OSError, match="putting back what was there") as caught:
        filesystem.import_archive(path)
    (kept,) = own_temporary.glob("agentfs-before-*/before.zip")
    assert str(kept) in str(caught.value)
    with ArchiveView(kept) as view:
        assert view.read("b") == b"mine"


AS_NOBODY = """
import os, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
from pathlib import Path
from agentfs_files.backends.host import HostFilesystem
from tests.compare import describe
root = Path(sys.argv[1], "root")
root.mkdir()
filesystem = HostFilesystem(root)
filesystem.write("shut/in", "1")
filesystem.write("open", "2")
(root / "shut").chmod(0o555)
before = describe(root)
filesystem.export_archive(f"{sys.argv[1]}/x.zip")
assert filesystem.import_archive(f"{sys.argv[1]}/x.zip") == 2
assert describe(root) == before
"""


def test_directory_that_takes_no_names_is_replaced_and_restored() -> None:
    needs_root()
    needs_open_checkout()
    place = tempfile.mkdtemp()
    try:
        os.chmod(place, 0o777)
        done = subprocess.run([sys.executable, "-c", AS_NOBODY, place], capture_output=True, text=True, check=False)
        assert done.stderr == ""
    finally:
        shutil.rmtree(place)
