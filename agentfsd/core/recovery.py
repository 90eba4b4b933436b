"""Compares the rows with the content objects after a start. Content that was perhaps acknowledged is never removed.

An object without a row is removed if the daemon was killed, and database and journal are whole: the rows are then complete, so
the operation that made the object was never acknowledged. Otherwise an empty object is removed, and any other is set aside.

A row without an object is damage: reading its file fails with EIO. After a loss of power there is one exception. A file that the
last daemon made, and perhaps never synced, gets an empty object, as on ext4.
"""

import logging
from dataclasses import dataclass, field

from agentfsd.domain_errors import DamagedContent
from agentfsd.metadata import check_rows, layer_rows
from agentfsd.metadata.row_store import GARBAGE, Store
from agentfsd.types import Backstore

log = logging.getLogger(__name__)

_MOST_OBJECTS = 200_000  # after an orderly end, so many objects or fewer are compared as well: that takes 0.1 s


@dataclass
class Recovered:
    """What a start has found.

    Attributes:
        notes: Notes for the user, one sentence each.
        lost: Numbers of objects that are missing, or are no regular files.
    """

    notes: list[str] = field(default_factory=list)
    lost: set[int] = field(default_factory=set)


def recover(store: Store, backstore: Backstore) -> Recovered:
    """Compare rows and objects, and settle the differences. It also logs the notes that it returns.

    An object store in memory has nothing to compare.
    """
    recovered = Recovered(list(store.findings.notes))
    if not backstore.persistent:
        return recovered
    rows = check_rows.object_layers(store)
    if store.findings.is_proven and store.findings.ended_cleanly and len(rows) > _MOST_OBJECTS:
        return recovered
    held = set(backstore.ids())
    _settle_strays(store, backstore, held.difference(rows), recovered)
    dead = {*layer_rows.dead(store), GARBAGE}
    _settle_missing(store, backstore, {number for number, layer in rows.items() if layer not in dead} - held, recovered)
    for note in recovered.notes:
        log.warning("%s", note)
    return recovered


def _settle_strays(store: Store, backstore: Backstore, strays: set[int], found: Recovered) -> None:
    """Remove or set aside the objects without a row, and do not hand out their numbers again."""
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
    """Return whether an object without a row may be removed, because it holds nothing that was acknowledged."""
    if store.findings.is_proven and not store.findings.ended_cleanly:
        return True
    try:
        return backstore.stat(number).st_size == 0
    except DamagedContent:
        return False


def _settle_missing(store: Store, backstore: Backstore, missing: set[int], recovered: Recovered) -> None:
    """Report the missing objects as lost, or make an empty one where a loss of power explains it."""
    emptied = 0
    for number in sorted(missing):
        if not store.findings.power_failed or number < store.first_object or not _is_absent(backstore, number):
            recovered.lost.add(number)
        else:
            backstore.create(number).close()
            emptied += 1
    if emptied:
        recovered.notes.append(
            f"the content of {_files(emptied)} was never synced, and the power failed: {_they(emptied)} empty now"
        )
    if recovered.lost:
        lost = len(recovered.lost)
        recovered.notes.append(f"the content of {_files(lost)} is missing: reading {_it(lost)} fails with EIO")


def _is_absent(backstore: Backstore, number: int) -> bool:
    """Return whether nothing at all is in the object's place; False if something else than a regular file is."""
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
