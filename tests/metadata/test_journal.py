"""Killed again and again between two commits of the database: everything acknowledged is there each time."""

import random
import shutil
from pathlib import Path

import pytest

from agentfsd.core import directory_entries
from agentfsd.metadata import database
from agentfsd.metadata.operation_journal import OperationJournal
from tests.overlays import Opened


def change(opened: Opened, model: dict[str, bytes], chance: random.Random, step: int) -> None:
    """One operation on a few files, and the same in the model."""
    name, other, kind = f"f{chance.randrange(12)}", f"f{chance.randrange(12)}", chance.randrange(6)
    if kind < 3:
        model[name] = f"{step} ".encode() * chance.randrange(1, 50)
        opened.write(name, model[name])
    elif kind == 3 and name in model:
        opened.unlink(name)
        del model[name]
    elif kind == 4 and name in model and other != name:
        root = opened.tree().root
        directory_entries.rename(root.tree, root, name.encode(), root, other.encode())
        model[other] = model.pop(name)
    elif kind == 5 and step % 5 == 0:
        opened.overlay.snapshots.create("main")
    elif step % 17 == 0:
        opened.store.commit()


@pytest.mark.parametrize("batch", [1, 7, 500])
def test_every_acknowledged_operation_survives_kill_after_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    monkeypatch.setattr(database, "_BATCH", batch)
    chance, model = random.Random(batch), dict[str, bytes]()
    (tmp_path / "0").mkdir()
    opened = Opened(tmp_path / "0")
    left = [opened]
    for kill in range(1, 16):
        for step in range(chance.randrange(1, 80)):
            change(opened, model, chance, step)
        shutil.copytree(opened.base, tmp_path / str(kill))  # what a killed process leaves: all it has written, nothing closed
        opened = Opened(tmp_path / str(kill))
        left.append(opened)
        names = [name.decode() for name in opened.tree().names(opened.tree().root)]
        assert {name: opened.read(name) for name in names} == model
        assert opened.overlay.fsck() == []
    for each in left:
        each.close()


def test_a_record_that_was_cut_short_ends_the_replay(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = OperationJournal(str(path), 4)
    for value in range(3):
        assert journal.append([("INSERT INTO t VALUES (?)", (value,))])
    journal.close()
    content = bytearray(path.read_bytes())
    end = content.rindex(b"\x91\x02") + 2  # the last value
    content[end - 1] ^= 1
    path.write_bytes(content)
    again = OperationJournal(str(path), 4)
    assert again.records() == [[("INSERT INTO t VALUES (?)", (0,))], [("INSERT INTO t VALUES (?)", (1,))]]
    assert again.number == 6
    again.close()


def test_records_that_the_database_has_are_passed_over(tmp_path: Path) -> None:
    journal = OperationJournal(str(tmp_path / "journal"), 0)
    assert journal.append([("DELETE FROM t", ())])
    journal.close()
    later = OperationJournal(str(tmp_path / "journal"), 1)
    assert later.records() == []
    later.close()


def test_what_does_not_fit_is_refused_and_leaves_no_trace(tmp_path: Path) -> None:
    journal = OperationJournal(str(tmp_path / "journal"), 0)
    assert not journal.append([("INSERT INTO t VALUES (?)", (bytes(2 << 20),))])
    assert journal.append([("INSERT INTO t VALUES (?)", (b"small",))])
    journal.close()
    again = OperationJournal(str(tmp_path / "journal"), 0)
    assert again.records() == [[("INSERT INTO t VALUES (?)", (b"small",))]]
    again.close()
