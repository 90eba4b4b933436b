"""Damage of the database and of what lies beside it: noticed before anything is opened, and never where there is none."""

import errno
import os
import shutil
import sqlite3
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from agentfsd.domain_errors import Refusal
from agentfsd.metadata import clean_copy, database, inspection, page_checksums, row_store, schema
from agentfsd.metadata.operation_journal import OperationJournal, read_chain, read_header
from agentfsd.metadata.row_store import Store
from tests.rounds import rounds

FACTS = 300


def killed(path: Path, work: Callable[[Store], object]) -> None:
    """What a process leaves that dies after *work*."""
    pid = os.fork()
    if pid == 0:
        try:
            work(Store.open(str(path), "/l"))
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def put(store: Store, count: int = FACTS) -> None:
    for number in range(count):
        with store.transaction():
            store.put_value(f"fact {number}", f"{number} " * 30)


def is_whole(path: Path, count: int = FACTS) -> bool:
    store = Store.open(str(path), "/l")
    try:
        return all(store.value(f"fact {number}") == f"{number} " * 30 for number in range(count))
    finally:
        store.close()


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Main file, log and journal all hold something that the others do not."""
    path = tmp_path_factory.mktemp("left") / "meta.db"

    def work(store: Store) -> None:
        put(store, FACTS // 3)
        store.commit()
        assert store.db.pages is not None
        store.db.pages.checkpoint()
        put(store, FACTS // 3 * 2)
        store.commit()
        put(store)

    killed(path, work)
    return path


def copied(left: Path, to: Path) -> Path:
    shutil.copytree(left.parent, to)
    return to / left.name


def flip(path: Path, at: int, bit: int = 0) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ (1 << bit)]))


def offsets(path: Path, count: int) -> range:
    end = path.stat().st_size
    if path.name.endswith(database.JOURNAL):
        content = path.read_bytes()
        header = read_header(content)
        assert header is not None
        end = read_chain(content, header.number).at + 20
    return range(0, end, max(1, end // count | 1))


@pytest.mark.parametrize("suffix", ["", "-wal", database.JOURNAL, page_checksums.SUFFIX])
def test_a_flipped_bit_is_noticed_or_does_no_harm(left: Path, tmp_path: Path, suffix: str) -> None:
    count, noticed = rounds("damaged bytes of a database", 30, 2000), 0
    for number, at in enumerate(offsets(Path(f"{left}{suffix}"), count)):
        path = copied(left, tmp_path / str(number))
        flip(Path(f"{path}{suffix}"), at, number % 8)
        before = {name: Path(f"{path}{name}").read_bytes() for name in ("", "-wal", database.JOURNAL)}
        try:
            assert is_whole(path), f"byte {at} of {suffix}"
        except Refusal as exc:
            noticed += 1
            assert exc.code == "state-corrupt"
            assert exc.hint.startswith("nothing was changed")
            assert before == {name: Path(f"{path}{name}").read_bytes() for name in before}
        shutil.rmtree(path.parent)
    assert noticed or suffix == page_checksums.SUFFIX


@pytest.mark.parametrize("suffix", ["-wal", database.JOURNAL])
@pytest.mark.parametrize("harm", ["missing", "emptied", "zeroed", "cut"])
def test_a_log_or_a_journal_that_has_lost_something_is_noticed(left: Path, tmp_path: Path, suffix: str, harm: str) -> None:
    path = copied(left, tmp_path / "copy")
    harmed = Path(f"{path}{suffix}")
    size = harmed.stat().st_size
    if harm == "missing":
        harmed.unlink()
    elif harm == "zeroed":
        harmed.write_bytes(bytes(size))
    else:
        os.truncate(harmed, 0 if harm == "emptied" else 200 if suffix == database.JOURNAL else 5000)
    with pytest.raises(Refusal, match="damaged"):
        Store.open(str(path), "/l")
    Store.open(str(path), "/l", mends=True).close()
    assert inspection.inspect(str(path)).damage == []
    is_whole(path)


def test_a_log_that_is_lost_before_the_journal_notes_the_commit_costs_nothing(tmp_path: Path) -> None:
    """A daemon may be killed between the two: the journal has every record still, and nothing is called damaged."""
    path = tmp_path / "meta.db"

    def work(store: Store) -> None:
        put(store)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(OperationJournal, "reset", lambda *_: os._exit(0))
            store.commit()

    killed(path, work)
    log = Path(f"{path}-wal")
    assert log.stat().st_size > 0
    os.truncate(log, 0)
    assert inspection.inspect(str(path)).damage == []
    assert is_whole(path)


def test_the_last_record_is_missed_although_nothing_follows_it(left: Path, tmp_path: Path) -> None:
    path = copied(left, tmp_path / "copy")
    harmed = Path(f"{path}{database.JOURNAL}")
    content = harmed.read_bytes()
    header = read_header(content)
    assert header is not None
    chain = read_chain(content, header.number)
    with harmed.open("r+b") as file:
        file.seek(chain.at - 60)
        file.write(bytes(80))
    with pytest.raises(Refusal, match="damaged behind its record"):
        Store.open(str(path), "/l")


def test_checksums_that_are_missing_are_said_and_made_anew(left: Path, tmp_path: Path) -> None:
    path = copied(left, tmp_path / "copy")
    Path(f"{path}{page_checksums.SUFFIX}").unlink()
    assert ["checksums" in note for note in inspection.inspect(str(path)).notes] == [True]
    assert is_whole(path)
    assert inspection.inspect(str(path)).notes == []


def test_what_was_never_synced_may_be_missing_after_a_loss_of_power(
    left: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = copied(left, tmp_path / "copy")
    os.truncate(f"{path}-wal", 5000)
    monkeypatch.setattr(inspection, "this_run", lambda path: b"after the power came back"[:16])
    found = inspection.inspect(str(path))
    assert (found.damage, found.is_proven) == ([], False)
    assert "never synced" in found.notes[0]
    Store.open(str(path), "/l").close()


def test_what_was_synced_must_be_there_after_a_loss_of_power(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "meta.db"

    def work(store: Store) -> None:
        for _ in range(2):
            put(store)
            store.commit()
            store.sync()
        put(store, 10)
        store.commit()

    killed(path, work)
    os.truncate(f"{path}-wal", 4000)
    monkeypatch.setattr(inspection, "this_run", lambda path: b"after the power came back"[:16])
    with pytest.raises(Refusal, match="missing"):
        Store.open(str(path), "/l")


@pytest.mark.parametrize("at", ["put", "write_header", "sync"])
def test_killed_in_a_checkpoint_nothing_is_called_damaged(tmp_path: Path, at: str) -> None:
    path = tmp_path / "meta.db"

    def work(store: Store) -> None:
        put(store)
        store.commit()
        setattr(page_checksums.ChecksumFile, at, lambda *arguments, **more: os._exit(0))
        assert store.db.pages is not None
        store.db.pages.checkpoint()

    killed(path, work)
    assert inspection.inspect(str(path)).damage == []
    assert is_whole(path)


def test_killed_between_any_two_writes_of_the_journal_its_chain_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, real, seen = OperationJournal(str(tmp_path / "journal"), 0), os.pwrite, 0

    def watched(fd: int, data: bytes, at: int) -> int:
        """A kill tears a write at the end of a page at most."""
        nonlocal seen
        for end in range(0, len(data) + 1, 4096):
            real(fd, data[:end], at)
            content = (tmp_path / "journal").read_bytes()
            header = read_header(content)
            assert header is not None
            chain = read_chain(content, header.number)
            assert chain.is_whole
            assert len(chain.numbered) == journal.number - header.number
            seen += 1
        return real(fd, data, at)

    monkeypatch.setattr(os, "pwrite", watched)
    for number in range(200):
        assert journal.append([("INSERT INTO t VALUES (?)", (bytes(number * 61 % 9000),))])
    journal.close()
    assert seen > 200


def test_frames_of_a_commit_that_a_kill_has_cut_short_are_written_over(tmp_path: Path) -> None:
    path = tmp_path / "meta.db"
    killed(path, lambda store: (put(store, 3), store.commit(), put(store), store.commit()))
    log = Path(f"{path}-wal").read_bytes()
    cut = next(at for at in range(32 + 4120 * 8, len(log), 4120) if log[at + 4 : at + 8] == bytes(4))
    killed(path, lambda store: None)
    shutil.rmtree(tmp_path)
    tmp_path.mkdir()
    killed(path, lambda store: (put(store, 3), store.commit()))
    with Path(f"{path}-wal").open("ab") as file:  # frames of the same salt, and no commit
        salt = Path(f"{path}-wal").read_bytes()[16:24]
        for at in range(cut, cut + 4120 * 2, 4120):
            file.write(log[at : at + 8] + salt + log[at + 16 : at + 4120])
    for _ in range(3):
        killed(path, lambda store: (put(store), store.commit(), store.db.pages and store.db.pages.checkpoint()))
        assert inspection.inspect(str(path)).damage == []
    assert is_whole(path)
    assert inspection.inspect(str(path)).damage == []


def test_a_journal_that_an_older_version_has_left_is_taken_up(tmp_path: Path) -> None:
    path = tmp_path / "meta.db"
    store = Store.open(str(path), "/l")
    put(store, 10)
    store.db.execute("DROP TABLE seal")
    store.db.execute("DROP TABLE step")
    store.db.execute("INSERT OR REPLACE INTO fact VALUES ('journal', '7')")
    store.db.execute("ALTER TABLE layer DROP COLUMN base")
    store.db.execute("PRAGMA user_version = 3")
    store.db.pages = None
    store.db.execute("COMMIT") if store.db.in_operation else None
    store.close()
    with sqlite3.connect(path) as db:
        db.execute("UPDATE fact SET value = '7' WHERE key = 'journal'")
    db.close()
    Path(f"{path}{page_checksums.SUFFIX}").unlink()
    body = msgspec.msgpack.encode([("INSERT OR REPLACE INTO fact VALUES (?, ?)", ("fact 10", "10 " * 30))])
    Path(f"{path}{database.JOURNAL}").write_bytes(struct.pack("<QII", 8, len(body), zlib.crc32(body)) + body + bytes(4000))
    assert is_whole(path, 11)
    assert inspection.inspect(str(path)).damage == []


def test_refused_for_another_reason_it_opens_as_before(left: Path, tmp_path: Path) -> None:
    path = copied(left, tmp_path / "copy")
    for _ in range(2):
        with pytest.raises(Refusal, match="belongs to"):
            Store.open(str(path), "/other")
    assert is_whole(path)


def test_a_thousand_pages_go_to_the_main_file_and_have_checksums(tmp_path: Path) -> None:
    path = tmp_path / "meta.db"

    def work(store: Store) -> None:
        for number in range(6000):
            with store.transaction():
                store.put_value(f"fact {number * 7919 % 6000}", "x" * 900)

    killed(path, work)
    assert os.path.getsize(path) > 1000 * 4096
    assert inspection.inspect(str(path)) == inspection.Findings(ended_cleanly=False, lower="/l")
    flip(path, 500 * 4096 + 17)
    found = inspection.inspect(str(path))
    if not found.damage:  # the log has that page
        assert 501 in inspection._in_log(str(path))


def test_going_back_to_the_copy(left: Path, tmp_path: Path) -> None:
    path = copied(left, tmp_path / "copy")
    store = Store.open(str(path), "/l")
    assert clean_copy.copy(str(path), share=True)
    store.close()
    path.write_bytes(b"\xff" * 9000)
    with pytest.raises(Refusal):
        Store.open(str(path), "/l")
    kept = Path(clean_copy.keep_damaged(str(path)))
    assert (kept / "meta.db").read_bytes() == b"\xff" * 9000
    clean_copy.go_back(str(path))
    assert inspection.inspect(str(path)).damage == []
    assert is_whole(path)


def kill_in(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, *, after: bool = False) -> None:
    """Has the process die where *name* of *owner* is called, or at its end."""
    real = getattr(owner, name)

    def dies(*arguments: object, **more: object) -> None:
        if after:
            real(*arguments, **more)
        os._exit(0)

    monkeypatch.setattr(owner, name, dies)


STEPS = [(Store, "_configure"), (Store, "_migrate"), (Store, "_sync_new"),
         (OperationJournal, "_take_room"), (OperationJournal, "reset"),
         (page_checksums.PageChecksums, "begin")]  # fmt: skip


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(("owner", "name"), STEPS)
def test_killed_in_its_first_start_it_starts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: object, name: str, after: bool
) -> None:
    path = tmp_path / "meta.db"
    with monkeypatch.context() as patched:
        kill_in(patched, owner, name, after=after)
        killed(path, put)
    assert inspection.inspect(str(path)).damage == []
    killed(path, put)
    assert is_whole(path)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(("owner", "name"), [step for step in STEPS if step[1] != "_sync_new"])
def test_killed_while_it_migrates_what_had_ended_in_order_it_starts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: object, name: str, after: bool
) -> None:
    path = tmp_path / "meta.db"
    store = Store.open(str(path), "/l")
    put(store)
    store.close()
    with sqlite3.connect(path) as db:
        db.execute("DROP TABLE seal")
        db.execute("DROP TABLE step")
        db.execute("UPDATE fact SET value = '7' WHERE key = 'journal'")
        db.execute("ALTER TABLE layer DROP COLUMN base")
        db.execute("PRAGMA user_version = 3")
    db.close()
    Path(f"{path}{page_checksums.SUFFIX}").unlink()
    with monkeypatch.context() as patched:
        kill_in(patched, owner, name, after=after)
        killed(path, put)
    assert inspection.inspect(str(path)).damage == []
    assert is_whole(path)


def put_objects(store: Store) -> None:
    for number in range(FACTS):
        with store.transaction():
            store.put_object(number, layer=1)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(("owner", "name"), [step for step in STEPS if step[1] != "_sync_new"])
def test_what_a_killed_daemon_acknowledged_comes_before_a_migration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: object, name: str, after: bool
) -> None:
    path = tmp_path / "meta.db"
    killed(path, put_objects)
    monkeypatch.setattr(row_store, "SCHEMA_VERSION", row_store.SCHEMA_VERSION + 1)
    migration = (
        "ALTER TABLE object ADD COLUMN added INTEGER NOT NULL DEFAULT 0;\nUPDATE object SET layer = layer + 10, added = 1;"
    )
    monkeypatch.setitem(schema.MIGRATIONS, row_store.SCHEMA_VERSION - 1, migration)
    with monkeypatch.context() as patched:
        kill_in(patched, owner, name, after=after)
        killed(path, lambda store: None)
    killed(path, lambda store: None)
    store = Store.open(str(path), "/l")
    assert store.db.execute("SELECT * FROM object ORDER BY id").fetchall() == [(number, 11, 1) for number in range(FACTS)]
    store.close()


def test_a_start_for_which_there_is_no_room_leaves_nothing_that_looks_like_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "meta.db"

    def full(journal: OperationJournal) -> int:
        raise OSError(errno.ENOSPC, "no room")

    with monkeypatch.context() as patched:
        patched.setattr(OperationJournal, "_take_room", full)
        killed(path, lambda store: None)
        with pytest.raises(Refusal, match="no room"):
            Store.open(str(path), "/l")
    assert inspection.inspect(str(path)).damage == []
    killed(path, put)
    assert is_whole(path)


def test_a_journal_and_checksums_that_are_missing_later_are_damage(left: Path, tmp_path: Path) -> None:
    path = copied(left, tmp_path / "copy")
    for suffix in (database.JOURNAL, page_checksums.SUFFIX):
        Path(f"{path}{suffix}").unlink()
    assert "missing or empty" in inspection.inspect(str(path)).damage[0]
