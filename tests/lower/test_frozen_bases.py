"""How bases are made, share files, and go; what an interrupted one leaves."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentfs_host import syscalls
from agentfsd.domain_errors import Refusal
from agentfsd.lower.frozen_bases import FrozenBases
from agentfsd.lower.host_lower import HostLower
from tests.disks import REFLINKING, make_subvolume, reflinking_disk, shares_blocks
from tests.lower.frozen_trees import Freezer, as_seen, closing, different, make_every_kind
from tests.mounted import needs_open_checkout, needs_root

MIB = 1 << 20


@pytest.fixture
def freezer(tmp_path: Path) -> Iterator[Freezer]:
    with closing(tmp_path) as made:
        for number in range(50):
            (made.root / f"d{number % 5}").mkdir(exist_ok=True)
            (made.root / f"d{number % 5}" / f"f{number}").write_bytes(os.urandom(5000))
        yield made


def number_of(freezer: Freezer, base_id: str, path: str) -> int:
    """The inode number of a copy."""
    return (freezer.place / base_id / "tree" / path).stat().st_ino


def test_the_record_says_what_there_is(freezer: Freezer) -> None:
    os.link(freezer.root / "d0" / "f0", freezer.root / "second")
    (freezer.root / "link").symlink_to("second")
    told: list[tuple[int, int]] = []
    record = freezer.bases.freeze("one", progress=lambda done, total: told.append((done, total)))
    assert (record.id, record.files, record.directories, record.bytes) == ("one", 52, 5, 50 * 5000)
    assert record.way != "copy" or record.copied_bytes == 50 * 5000
    assert abs(record.made_ns - time.time_ns()) < 60 * 10**9
    assert freezer.bases.records() == FrozenBases(str(freezer.place), freezer.lower).records() == [record]
    assert told == sorted(told)
    assert all(0 < done <= total == 57 for done, total in told)


def test_files_that_stay_the_same_are_stored_once(disk: Path) -> None:
    make_every_kind(disk / "root")
    with closing(disk) as freezer:
        first = freezer.bases.freeze("one")
        assert first.way == ("reflink" if shares(disk) else "copy")
        (freezer.root / "stays").write_text("changed")
        (freezer.root / "new" / "added").write_text("added")
        before = as_seen(freezer.lower)
        second = freezer.bases.freeze("two")
        assert (second.way, second.copied_bytes) == (first.way, 0 if shares(disk) else len("changedadded"))
        assert number_of(freezer, "one", "sparse") == number_of(freezer, "two", "sparse")
        assert number_of(freezer, "one", "stays") != number_of(freezer, "two", "stays")
        third = freezer.bases.freeze("three")
        assert (third.way, third.copied_bytes) == (first.way, 0)
        freezer.bases.remove("one")
        freezer.bases.remove("two")
        freezer.bases.remove("two")
        assert [record.id for record in freezer.bases.records()] == ["three"]
        assert different(as_seen(freezer.bases.open("three")), before) == []


def shares(disk: Path) -> bool:
    command = ["stat", "-f", "-c", "%T", disk]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip() in REFLINKING


@pytest.mark.parametrize("kind", REFLINKING)
def test_blocks_are_shared_unless_that_is_not_wanted(tmp_path: Path, kind: str) -> None:
    with reflinking_disk(tmp_path, kind) as disk, closing(disk) as freezer:
        (freezer.root / "large").write_bytes(os.urandom(MIB))
        assert (freezer.bases.freeze("one").way, shares_blocks(freezer.root / "large")) == ("reflink", True)
        freezer.bases.remove("one")
        freezer.lower.share = False
        record = freezer.bases.freeze("two")
        assert (record.way, record.copied_bytes) == ("copy", MIB)
        assert not shares_blocks(freezer.place / "two" / "tree" / "large")
        assert freezer.bases.freeze("three").copied_bytes == 0


def test_a_subvolume_with_others_in_it_is_no_snapshot(tmp_path: Path) -> None:
    with reflinking_disk(tmp_path, "btrfs") as disk:
        make_subvolume(disk / "root")
        with closing(disk) as freezer:
            (freezer.root / "leaf").write_text("leaf")
            assert freezer.bases.freeze("one").way == "snapshot"
            (freezer.root / "inner").mkdir()
            make_subvolume(freezer.root / "inner" / "nested")
            (freezer.root / "inner" / "nested" / "leaf").write_text("nested")
            before = as_seen(freezer.lower)
            assert freezer.bases.freeze("two").way == "reflink"
            assert different(as_seen(freezer.bases.open("two")), before) == []


def test_snapshot_without_its_record_is_removed(tmp_path: Path) -> None:
    with reflinking_disk(tmp_path, "btrfs") as disk:
        make_subvolume(disk / "root")
        with closing(disk) as freezer:
            freezer.bases.freeze("one")
            (freezer.place / "one" / "base.msgpack").unlink()
            FrozenBases(str(freezer.place), freezer.lower)
            assert list(freezer.place.iterdir()) == []


def test_names_of_one_file_are_names_of_one_copy(freezer: Freezer) -> None:
    names = ["d1/second", "third", "d0/f0"]
    for name in names[:2]:
        os.link(freezer.root / "d0" / "f0", freezer.root / name)
    for base_id in ("one", "two"):
        frozen = freezer.freeze(base_id)
        assert len({number_of(freezer, base_id, name) for name in names}) == 1
        assert {frozen.stat(name.encode()).st_ino for name in names} == {(freezer.root / "third").stat().st_ino}


@pytest.mark.parametrize("base_id", ["", ".", "..", ".x", "a/b", "a\0b"])
def test_what_is_no_name_for_a_base(freezer: Freezer, base_id: str) -> None:
    for act in (freezer.bases.freeze, freezer.bases.open, freezer.bases.remove):
        with pytest.raises(Refusal, match="is no name for a frozen base"):
            act(base_id)


def test_a_name_that_is_taken(freezer: Freezer) -> None:
    record = freezer.bases.freeze("one")
    with pytest.raises(Refusal, match="there is a frozen base 'one' already"):
        freezer.bases.freeze("one")
    assert freezer.bases.records() == [record]


def test_a_cancelled_one_leaves_nothing(freezer: Freezer) -> None:
    asked = iter([False] * 5 + [True] * 99)
    with pytest.raises(Refusal) as caught:
        freezer.bases.freeze("one", cancelled=lambda: next(asked))
    assert (caught.value.code, caught.value.errno) == ("cancelled", errno.ECANCELED)
    assert list(freezer.place.iterdir()) == []


def test_a_failure_at_the_end_leaves_nothing(freezer: Freezer, monkeypatch: pytest.MonkeyPatch) -> None:
    freezer.bases.freeze("one")
    calls = iter([0, 1])

    def sync(_: int) -> None:
        if next(calls):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(syscalls, "sync_filesystem", sync)
    with pytest.raises(OSError, match="Input/output error"):
        freezer.bases.freeze("two")
    assert [path.name for path in freezer.place.iterdir()] == ["one"]


@contextmanager
def small_disk(tmp_path: Path, options: str) -> Iterator[FrozenBases]:
    """Bases in a tmpfs of its own."""
    needs_root()
    (tmp_path / "small").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", tmp_path / "small"], check=True)
    lower = HostLower(str(tmp_path / "root"))
    try:
        yield FrozenBases(str(tmp_path / "small" / "bases"), lower)
    finally:
        lower.close()
        subprocess.run(["umount", "--lazy", tmp_path / "small"], check=True)


@pytest.mark.parametrize(("options", "message"), [("size=1m", "are needed, .* are free"), ("nr_inodes=40", "files are needed, ")])
def test_no_room_is_noticed_before_anything_is_copied(tmp_path: Path, options: str, message: str) -> None:
    (tmp_path / "root").mkdir()
    for number in range(60):
        (tmp_path / "root" / f"{number}").write_bytes(bytes(40_000))
    with small_disk(tmp_path, options) as bases:
        expected = f"there is no room in {tmp_path}/small/bases for a copy of {tmp_path}/root: .*{message}"
        with pytest.raises(Refusal, match=expected) as caught:
            bases.freeze("one")
        assert caught.value.errno == errno.ENOSPC
        assert list((tmp_path / "small" / "bases").iterdir()) == []


def test_room_that_runs_out_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "large").write_bytes(os.urandom(3 * MIB))
    monkeypatch.setattr(FrozenBases, "_check_room", lambda *_: None)
    with small_disk(tmp_path, "size=1m") as bases:
        with pytest.raises(Refusal, match="there is no room in") as caught:
            bases.freeze("one")
        assert caught.value.hint
        assert list((tmp_path / "small" / "bases").iterdir()) == []


AS_NOBODY = """
import os, sys
from pathlib import Path
from tests.lower.frozen_trees import *
os.setgroups([]); os.setgid(65534); os.setuid(65534)
freezer = Freezer(Path(sys.argv[1]))
before = as_seen(freezer.lower)
assert different(as_seen(freezer.freeze()), before) == []
ways = [record.way for record in freezer.bases.records()]
freezer.bases.remove("one")
print(*ways, *freezer.place.iterdir())
"""


def test_an_ordinary_user_makes_snapshots_that_it_can_remove() -> None:
    needs_root()
    needs_open_checkout()
    base = Path(tempfile.mkdtemp())
    try:
        base.chmod(0o755)
        with reflinking_disk(base, "btrfs") as disk:
            make_subvolume(disk / "root")
            (disk / "root" / "leaf").write_text("leaf")
            for path in (disk, disk / "root"):
                os.chown(path, 65534, 65534)
            command = [sys.executable, "-c", AS_NOBODY, disk]
            here = Path(__file__).parents[2]
            assert subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True, cwd=here).stdout == "reflink\n"
            subprocess.run(["mount", "-o", "remount,user_subvol_rm_allowed", disk], check=True)
            assert subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True, cwd=here).stdout == "snapshot\n"
    finally:
        shutil.rmtree(base)


KILLED = """
import os, signal, sys
from pathlib import Path
from agentfs_host import tree_removal
from tests.lower.frozen_trees import Freezer
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
freezer = Freezer(Path(sys.argv[1]))
if sys.argv[2] == "freeze":
    freezer.bases.freeze("one", progress=lambda done, total: die() if done > total // 2 else None)
else:
    freezer.bases.freeze("one")
    tree_removal.remove_tree = die
    freezer.bases.remove("one")
"""


@pytest.mark.parametrize("when", ["freeze", "remove"])
def test_a_killed_process_leaves_what_the_next_removes(tmp_path: Path, when: str) -> None:
    make_every_kind(tmp_path / "root")
    for number in range(100):
        (tmp_path / "root" / f"more{number}").write_text("more")
    command = [sys.executable, "-c", KILLED, tmp_path, when]
    assert subprocess.run(command, check=False, cwd=Path(__file__).parents[2]).returncode == -signal.SIGKILL
    assert (tmp_path / "bases" / "one" / "tree").exists()
    with closing(tmp_path) as freezer:
        assert list(freezer.place.iterdir()) == []
        assert freezer.bases.records() == []
        freezer.bases.freeze("one")


def test_bases_of_a_lower_that_went(freezer: Freezer) -> None:
    frozen = freezer.freeze()
    before = as_seen(frozen)
    shutil.rmtree(freezer.root)
    freezer.root.mkdir()
    assert different(as_seen(frozen), before) == []
    again = FrozenBases(str(freezer.place), HostLower(str(freezer.root))).open("one")
    assert different(as_seen(again), before) == []
