"""After a start: rows and contents are compared. What nobody can explain is set aside, never removed.

An object without a row was made by an operation that was never acknowledged, and is removed, where the rows are known to be all
that was: after SIGKILL, when database and journal are whole. After a loss of power, or damage, it is set aside, unless it is
empty. A row without an object is damage: its file gives EIO. Only after a loss of power a file that was made since the last
start, and perhaps never synced, is empty, as on ext4.
"""

import logging
from dataclasses import dataclass, field

from agentfsd.domain_errors import DamagedContent
from agentfsd.metadata import check_rows, layer_rows
from agentfsd.metadata.row_store import GARBAGE, Store
from agentfsd.types import Backstore

log = logging.getLogger(__name__)

_MOST_OBJECTS = 200_000  # up to which they are compared after an orderly end as well: one tenth of a second


@dataclass
class Recovered:
    """What a start has found. ``lost``: objects that are missing, or something else than files."""

    notes: list[str] = field(default_factory=list)
    lost: set[int] = field(default_factory=set)


def recover(store: Store, backstore: Backstore) -> Recovered:
    found = Recovered(list(store.findings.notes))
    if not backstore.persistent:
        return found
    rows = check_rows.object_layers(store)
    if store.findings.is_proven and store.findings.ended_cleanly and len(rows) > _MOST_OBJECTS:
        return found
    held = set(backstore.ids())
    _settle_strays(store, backstore, held.difference(rows), found)
    dead = {*layer_rows.dead(store), GARBAGE}
    _settle_missing(store, backstore, {number for number, layer in rows.items() if layer not in dead} - held, found)
    for note in found.notes:
        log.warning("%s", note)
    return found


def _settle_strays(store: Store, backstore: Backstore, strays: set[int], found: Recovered) -> None:
    kept = 0
    store.pass_over("object", max(strays, default=0))
    for number in sorted(strays):
        if _may_go(store, backstore, number):
            backstore.remove(number)
        else:
            backstore.set_aside(number)
            kept += 1
    if kept:
        found.notes.append(f"{_files(kept)} that no name leads to {'was' if kept == 1 else 'were'} set aside")


def _may_go(store: Store, backstore: Backstore, number: int) -> bool:
    """Whether it holds nothing that was ever acknowledged."""
    if store.findings.is_proven and not store.findings.ended_cleanly:
        return True
    try:
        return backstore.stat(number).st_size == 0
    except DamagedContent:
        return False


def _settle_missing(store: Store, backstore: Backstore, missing: set[int], found: Recovered) -> None:
    emptied = 0
    for number in sorted(missing):
        if not store.findings.power_failed or number < store.first_object or not _is_absent(backstore, number):
            found.lost.add(number)
        else:
            backstore.create(number).close()
            emptied += 1
    if emptied:
        found.notes.append(f"the content of {_files(emptied)} was never synced, and the power failed: {_they(emptied)} empty now")
    if found.lost:
        found.notes.append(f"the content of {_files(len(found.lost))} is missing: reading {_it(len(found.lost))} fails with EIO")


def _is_absent(backstore: Backstore, number: int) -> bool:
    try:
        backstore.stat(number)
    except DamagedContent as exc:
        return "is missing" in str(exc)
    return False


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files"


def _they(count: int) -> str:
    return "it is" if count == 1 else "they are"


def _it(count: int) -> str:
    return "it" if count == 1 else "them"
