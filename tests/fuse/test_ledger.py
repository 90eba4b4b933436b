"""The ledger: records in shared memory, which another process finds as they were."""

import os
import random
from collections.abc import Iterator

import pytest

from agentfsd.fuse.held_names import HeldNames
from agentfsd.fuse.ledger import Ledger, LedgerRecord
from tests.rounds import seed

NONE = (0, 0, 0, 0, 0, 0)


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    made = Ledger(None, 1 << 20)
    yield made
    made.close()


def of_the_next_daemon(ledger: Ledger) -> Ledger:
    return Ledger(os.dup(ledger.fd))


def found(ledger: Ledger) -> list[LedgerRecord]:
    return list(of_the_next_daemon(ledger).records())


def test_next_daemon_finds_the_records_that_are_there(ledger: Ledger) -> None:
    model: dict[int, tuple[int, tuple[int, ...], bytes]] = {}
    chance = random.Random(seed())
    for number in range(1, 3000):
        if model and chance.random() < 0.45:
            at = chance.choice(list(model))
            ledger.drop(at)
            del model[at]
            continue
        words = (number, -number, 0, 1 << 62, 5, 6)
        payload = chance.randbytes(chance.choice([0, 1, 8, 60, 255, 1000]))
        model[ledger.put(1 + number % 255, words, payload)] = 1 + number % 255, words, payload
    assert {record.at: tuple(record[1:]) for record in found(ledger)} == model


def test_next_daemon_writes_where_there_is_room(ledger: Ledger) -> None:
    kept, gone = ledger.put(1, NONE, b"kept"), ledger.put(1, NONE, b"gone")
    ledger.drop(gone)
    after = of_the_next_daemon(ledger)
    assert [record.payload for record in after.records()] == [b"kept"]
    assert after.put(1, NONE, b"newr") == gone
    assert after.put(1, NONE, b"more") not in (kept, gone, 0)
    assert after.life == 1
    assert of_the_next_daemon(after).life == 2


def test_a_single_word_of_a_record_can_be_changed(ledger: Ledger) -> None:
    at = ledger.put(1, (10, 11, 12, 13, 14, 15))
    ledger.words[(at >> 3) + 1 + 3] = 99
    assert found(ledger)[0].words == (10, 11, 12, 99, 14, 15)


def test_listing_that_grows_does_not_use_up_the_room(ledger: Ledger) -> None:
    at = 0
    for count in range(5000):
        new = ledger.put(1, NONE, bytes(count * 20))
        assert new, "no room"
        ledger.drop(at)
        at = new
        if count * 20 > 100_000:
            break


def test_full_ledger_says_so_and_goes_on(ledger: Ledger) -> None:
    places = []
    while at := ledger.put(1, NONE, bytes(10_000)):
        places.append(at)
    ledger.drop(0)
    ledger.words[(0 >> 3) + 2] = 7  # a record without room has words that nobody reads
    assert len(found(ledger)) == len(places)
    ledger.drop(places[0])
    assert ledger.put(1, NONE, bytes(10_000)) == places[0]


def test_facts_marks_and_counts_are_there_for_the_next_daemon(ledger: Ledger) -> None:
    ledger.set_facts(b"facts")
    for number in range(1, 2000):
        ledger.mark(number, number * 2)
    ledger.begins(41)
    ledger.count(1000)
    ledger.begins(42)
    ledger.count(2000)
    ledger.count(3000)
    after = of_the_next_daemon(ledger)
    assert after.facts == b"facts"
    assert after.marks()[1999] == 3998
    assert 1 not in after.marks()
    assert after.counted() == (42, [2000, 3000])
    after.begins(43)
    assert of_the_next_daemon(after).counted() == (43, [])


def test_what_is_no_ledger_is_refused() -> None:
    other = os.memfd_create("other")
    os.ftruncate(other, 1 << 20)
    with pytest.raises(OSError, match="no ledger"):
        Ledger(other)


def test_taken_name_stays_recorded_until_the_kernel_was_told(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    names = HeldNames(ledger, 5)
    names.add(b"one")
    names.add(b"two")
    assert names.take([b"one", b"three"]) == {b"one"}
    assert sorted(names) == [b"two"]
    assert sorted(record.payload for record in found(ledger)) == [b"one", b"two"]
    monkeypatch.setattr("agentfsd.fuse.ledger.time.monotonic", lambda: float("inf"))
    names.add(b"four")
    assert sorted(record.payload for record in found(ledger)) == [b"four", b"two"]
