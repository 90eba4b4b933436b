"""Contents that are missing, or are something else than ours: EIO and never an empty file; what nobody can explain is kept."""

import errno
import os
import shutil
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.lowlevel

from agentfs_host import copying
from agentfsd.backstore.hostfs import HostBackstore, HostFile
from agentfsd.core import consistency_check, content_checksums, data, directory_entries, inode_stat, recovery
from agentfsd.core.content_comparison import run_to_end
from agentfsd.daemon import maintenance
from agentfsd.metadata import checksum_rows, inspection
from agentfsd.metadata.row_store import Store
from agentfsd.state.state_directory import StateDirectory
from tests.mounted import needs_root
from tests.overlays import OWNER, Opened


def path_of(opened: Opened, name: str, ref: str = "main") -> Path:
    number = opened.tree(ref).walk(name.encode()).content
    return opened.base / "objects" / f"{number & 0xFF:02x}" / f"{number:x}"


def to_symlink(path: Path) -> None:
    path.unlink()
    (path.parents[2] / "secret").write_text("somebody else's")
    path.symlink_to(path.parents[2] / "secret")


def to_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def to_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def to_others(path: Path) -> None:
    needs_root()
    os.chown(path, 65534, 65534)


HARMS: list[tuple[Callable[[Path], object], str]] = [
    (Path.unlink, "is missing"),
    (to_symlink, "no regular file"),
    (to_fifo, "no regular file"),
    (to_directory, "no regular file"),
    (to_others, "belongs to user 65534"),
]


@pytest.mark.parametrize(("harm", "said"), HARMS)
def test_lost_content_gives_eio_and_is_named(opened: Opened, harm: Callable[[Path], object], said: str) -> None:
    opened.write("lost", b"content")
    opened.write("other", b"sound")
    harm(path_of(opened, "lost"))
    opened.reopen()
    if said != "belongs to user 65534":
        assert opened.overlay.recovered.notes == ["the content of 1 file is missing: reading it fails with EIO"]
    inode = opened.tree().walk(b"lost")
    assert inode_stat.attributes(inode).size > 0  # or whoever reads would not ask for it
    with pytest.raises(OSError) as caught:
        opened.read("lost")
    assert caught.value.errno == errno.EIO
    with pytest.raises(OSError):
        data.open_(inode, os.O_WRONLY)
    assert opened.read("other") == b"sound"
    (problem,) = opened.overlay.fsck()
    assert said in problem
    assert "(file 'lost' of branch main); restore it from another state, or remove it" in problem


@pytest.mark.parametrize(("harm", "said"), HARMS)
def test_a_file_whose_content_is_lost_can_be_renamed_and_removed(
    opened: Opened, harm: Callable[[Path], object], said: str
) -> None:
    opened.write("lost", b"content")
    harm(path_of(opened, "lost"))
    opened.reopen()
    root = opened.tree().root
    directory_entries.rename(root.tree, root, b"lost", root, b"renamed")
    opened.unlink("renamed")
    opened.reap()
    assert opened.overlay.fsck() == []
    assert opened.tree().names(root) == []


def test_the_snapshot_of_what_is_lost_is_not_empty_either(opened: Opened) -> None:
    opened.write("lost", b"content")
    opened.overlay.snapshots.create("main", "one")
    path_of(opened, "lost").unlink()
    opened.reopen()
    with pytest.raises(OSError) as caught:
        opened.read("lost", "one")
    assert caught.value.errno == errno.EIO
    opened.write("lost", b"new content")  # whoever replaces it need not read it
    assert opened.read("lost") == b"new content"


# -- what no row refers to


def stray(opened: Opened, number: int, content: bytes) -> Path:
    made = opened.backstore.create(number)
    made.pwrite(content, 0)
    made.close()
    return opened.base / "objects" / f"{number & 0xFF:02x}" / f"{number:x}"


def test_what_nobody_can_explain_is_set_aside_and_its_number_not_used_again(opened: Opened) -> None:
    there = stray(opened, 5000, b"whose is this?")
    opened.reopen()
    assert not there.exists()
    (kept,) = opened.backstore.aside()
    assert (kept.object_id, Path(kept.path).read_bytes()) == (5000, b"whose is this?")
    assert any("set-aside contents (14 bytes)" in note for note in opened.overlay.damage_notes())
    assert opened.overlay.fsck() == []
    assert opened.store.next_id("object") > 5000


def test_where_a_number_is_taken_what_is_there_is_kept(opened: Opened) -> None:
    stray(opened, opened.store.next_id("object") + 1, b"taken")
    opened.write("new", b"new")
    (kept,) = opened.backstore.aside()
    assert Path(kept.path).read_bytes() == b"taken"
    assert opened.read("new") == b"new"


def copy_of_killed(opened: Opened, to: Path) -> Opened:
    shutil.copytree(opened.base, to)
    return Opened(to)


def test_after_a_kill_what_was_never_acknowledged_goes(opened: Opened, tmp_path_factory: pytest.TempPathFactory) -> None:
    opened.write("file", b"content")
    stray(opened, 5000, b"an operation that was killed")
    after = copy_of_killed(opened, tmp_path_factory.mktemp("after") / "copy")
    assert (after.backstore.aside(), list(after.backstore.ids())) == ([], [opened.tree().walk(b"file").content])
    after.close()


def test_after_a_loss_of_power_it_is_kept_unless_it_is_empty(
    opened: Opened, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened.write("file", b"content")
    stray(opened, 5000, b"content whose row did not reach the disk")
    stray(opened, 5001, b"")
    monkeypatch.setattr(inspection, "this_run", lambda path: b"another boot    ")
    after = copy_of_killed(opened, tmp_path_factory.mktemp("after") / "copy")
    assert [kept.object_id for kept in after.backstore.aside()] == [5000]
    assert after.overlay.fsck() == []
    after.close()


def test_after_a_loss_of_power_only_what_is_new_may_be_empty(
    opened: Opened, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened.write("old", b"content")
    opened.reopen()
    opened.write("new", b"content")
    for name in ("old", "new"):
        path_of(opened, name).unlink()
    monkeypatch.setattr(inspection, "this_run", lambda path: b"another boot    ")
    after = copy_of_killed(opened, tmp_path_factory.mktemp("after") / "copy")
    assert after.read("new") == b""
    with pytest.raises(OSError):
        after.read("old")
    assert len(after.overlay.recovered.notes) == 2
    after.close()


@pytest.mark.parametrize("harm", ["checksums missing", "repair"])
def test_without_a_loss_of_power_nothing_that_is_missing_is_called_empty(
    opened: Opened, tmp_path_factory: pytest.TempPathFactory, harm: str
) -> None:
    opened.write("new", b"content")
    path_of(opened, "new").unlink()
    base = tmp_path_factory.mktemp("after") / "copy"
    shutil.copytree(opened.base, base)
    if harm == "repair":
        store = Store.open(str(base / "meta.db"), "lower", mends=True)
        backstore = HostBackstore(str(base / "objects"))
        assert len(recovery.recover(store, backstore).lost) == 1
        assert list(backstore.ids()) == []
        backstore.close()
        store.close()
        return
    (base / "meta.db-sums").unlink()
    after = Opened(base)
    with pytest.raises(OSError) as caught:
        after.read("new")
    assert caught.value.errno == errno.EIO
    assert not any("power" in note for note in after.overlay.recovered.notes)
    after.close()


# -- checksums of what is sealed


def seal(opened: Opened) -> None:
    content_checksums.keep(
        opened.store, content_checksums.make(opened.backstore, checksum_rows.missing(opened.store, 0, 10000), lambda size: None)
    )


@pytest.mark.parametrize("harm", ["flipped", "shorter", "longer"])
def test_sealed_content_that_has_changed_is_found(opened: Opened, harm: str) -> None:
    opened.write("file", b"content" * 100_000)
    opened.write("other", b"other")
    opened.overlay.snapshots.create("main", "one")
    seal(opened)
    assert opened.overlay.fsck(scrub=True) == []
    there = path_of(opened, "file")
    content = bytearray(there.read_bytes())
    content[300_000] ^= 4
    there.write_bytes({"flipped": bytes(content), "shorter": content[:-1], "longer": content + b"x"}[harm])
    assert len(opened.overlay.fsck()) == (harm != "flipped")
    problems = opened.overlay.fsck(scrub=True)
    assert any("does not hold what it held" in problem and "(file 'file' of " in problem for problem in problems)


def test_content_that_is_written_again_is_not_called_damaged(opened: Opened) -> None:
    opened.write("file", b"one")
    opened.write("gone", b"one")
    opened.overlay.snapshots.create("main", "one")
    seal(opened)
    opened.write("file", b"two in the branch")
    assert opened.overlay.fsck(scrub=True) == []
    opened.overlay.snapshots.delete("one")  # its layer is merged into the head, where contents are written in place
    opened.write("gone", b"another length")
    assert opened.overlay.fsck(scrub=True) == []
    opened.overlay.snapshots.create("main", "two")
    seal(opened)
    assert opened.overlay.fsck(scrub=True) == []
    assert checksum_rows.count(opened.store) >= 2


def test_what_goes_takes_its_checksum_along(opened: Opened) -> None:
    opened.write("file", b"one")
    opened.overlay.snapshots.create("main", "one")
    seal(opened)
    opened.unlink("file")
    opened.overlay.snapshots.delete("one")
    opened.reap()
    assert (checksum_rows.count(opened.store), list(opened.backstore.ids())) == (0, [])


def test_special_files_have_no_content_to_lose(opened: Opened) -> None:
    directory_entries.make(opened.tree(), opened.tree().root, b"fifo", stat.S_IFIFO | 0o600, OWNER)
    opened.reopen()
    assert (opened.overlay.fsck(), opened.overlay.recovered.notes) == ([], [])


# -- while others wait


def test_no_step_of_a_check_takes_in_the_whole_of_a_large_database(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    opened.write("file", b"content")
    opened.reopen()  # so that the main file has something
    monkeypatch.setattr(consistency_check, "_AT_ONCE_BYTES", 0)
    said: list[str] = []
    opened.store.db.trace(said.append)
    assert run_to_end(opened.overlay.fsck_in_steps()) == []
    assert "PRAGMA integrity_check" not in said
    assert run_to_end(opened.overlay.fsck_in_steps(alone=True)) == []
    assert "PRAGMA integrity_check" in said
    opened.store.db.trace(None)
    path = opened.base / "meta.db"
    content = bytearray(path.read_bytes())
    content[2 * 4096 + 100] ^= 1
    path.write_bytes(content)
    assert "database: page 3 not as written" in run_to_end(opened.overlay.fsck_in_steps())
    content[2 * 4096 + 100] ^= 1
    path.write_bytes(content)
    assert opened.store.db.pages is not None
    opened.store.db.pages._sums.forget()
    (problem,) = run_to_end(opened.overlay.fsck_in_steps())
    assert "have no checksums" in problem


def test_who_ends_waits_for_one_part_of_a_content_not_for_all(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    opened.write("file", b"content")
    opened.overlay.snapshots.create("main", "one")
    os.truncate(path_of(opened, "file"), 16 << 20)  # 64 parts
    monkeypatch.setattr(maintenance, "_BEGIN_S", 0)
    monkeypatch.setattr(maintenance, "_BYTES_PER_S", 2 << 20)
    opened.overlay.recovered.notes.append("no copy is made of metadata about which there is something to say")
    parts, begun = list[int](), threading.Event()
    real = HostFile.pread

    def watched(file: HostFile, size: int, offset: int) -> bytes:
        parts.append(offset)
        begun.set()
        return real(file, size, offset)

    monkeypatch.setattr(HostFile, "pread", watched)

    async def end_early() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(maintenance.Maintenance(opened.store, opened.overlay, StateDirectory(str(opened.base))).run)
            await trio.to_thread.run_sync(begun.wait, 20)
            nursery.cancel_scope.cancel()

    trio.run(end_early)
    assert len(parts) < 10


def test_who_ends_while_the_metadata_is_copied_keeps_the_copy_there_was(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = opened.base / "meta.db-clean"
    kept.write_bytes(b"of an earlier start")
    monkeypatch.setattr(maintenance, "_BEGIN_S", 0)
    monkeypatch.setattr(copying, "_HAND_CHUNK", 4096)
    monkeypatch.setattr(copying, "_CHUNK", 4096)
    real, begun, ended, parts = copying.copy_part, threading.Event(), threading.Event(), []

    def part(*arguments: Any, **more: Any) -> int:
        parts.append(1)
        begun.set()
        assert ended.wait(20)
        return real(*arguments, **more)

    monkeypatch.setattr(copying, "copy_part", part)
    monkeypatch.setattr(copying, "_reflink", lambda *arguments: False)

    async def end_early() -> None:
        async with trio.open_nursery() as nursery:
            at_work = maintenance.Maintenance(opened.store, opened.overlay, StateDirectory(str(opened.base)))
            nursery.start_soon(at_work.run)
            await trio.to_thread.run_sync(begun.wait, 20)
            nursery.start_soon(let_go, at_work)
            nursery.cancel_scope.cancel()

    async def let_go(at_work: maintenance.Maintenance) -> None:
        with trio.CancelScope(shield=True):
            for _ in range(100):  # what comes after the order to end
                await trio.lowlevel.checkpoint()
            ended.set()

    trio.run(end_early)
    assert len(parts) == 1
    assert kept.read_bytes() == b"of an earlier start"
    assert not list(opened.base.glob("*.new"))
