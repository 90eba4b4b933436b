"""fsck of a state directory that is not mounted: looks before it opens anything, and repairs what it is told to."""

import os
import sqlite3
import time
from collections.abc import Callable, Generator

from agentfsd import runtime
from agentfsd.backstore import ramdisk
from agentfsd.backstore.hostfs import HostBackstore
from agentfsd.cli.common import Failure
from agentfsd.control import text
from agentfsd.core.overlay import Overlay
from agentfsd.lower.host import HostLower
from agentfsd.metadata import clean, inspection
from agentfsd.metadata.inspection import Findings
from agentfsd.metadata.store import Store

Tell = Callable[[int, int, str], object]
Say = Callable[[str], object]


class Wanted:
    """What the options say."""

    def __init__(self, *, repair: bool, from_copy: bool, scrub: bool, discard: bool) -> None:
        self.repair, self.from_copy, self.scrub, self.discard = repair or from_copy, from_copy, scrub, discard


def check_state(state: runtime.State, wanted: Wanted, tell: Tell, note: Say) -> list[str]:
    """Problems that are left; *note* is called with what else there is to say."""
    place = state.on_ramdisk() if ramdisk.is_there(state.ramdisk) else state
    path = place.metadata
    if not os.path.exists(path) and not os.path.exists(path + clean.COPY):
        raise Failure(f"{state.path} is no agentfsd state directory", "`agentfsd status` names the one of a mount")
    with runtime.locked(state):
        found = inspection.inspect(path)
        if not os.path.exists(path) and not wanted.from_copy:
            found.damage.append(f"the metadata database {path} is missing")
        if found.damage and not wanted.repair:
            note(_what_can_be_done(path))
            return found.damage
        if wanted.repair:
            _prepare(path, wanted, found, note)
        return _check(place, _lower_of(state, path, found), wanted, tell, note)


def _what_can_be_done(path: str) -> str:
    at = clean.made_at(path)
    said = "nothing was changed; what comes after that was not checked. --repair goes on with what is there, and keeps the rest"
    if at is not None:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
        said += f"; --from-copy goes back to the metadata of {when}, and keeps the contents that were made since"
    return said


def _prepare(path: str, wanted: Wanted, found: Findings, note: Say) -> None:
    """What is there is kept, before anything is changed."""
    if not wanted.from_copy and not found.damage:
        return
    if wanted.from_copy:
        copy = inspection.inspect(path + clean.COPY) if clean.made_at(path) is not None else None
        if copy is None or copy.damage:
            raise Failure(f"there is no sound copy of {path}", "--repair goes on with what is there")
    else:
        _check_structure(path)
    note(f"the metadata as it was is kept in {clean.keep_damaged(path)}")
    if wanted.from_copy:
        clean.go_back(path)
    for sentence in found.damage:
        note(sentence)


def _check_structure(path: str) -> None:
    """Failure when SQLite itself cannot use what is there."""
    try:
        with inspection.reading(path) as db:
            said = str(db.execute("PRAGMA integrity_check(1)").fetchone()[0])
    except sqlite3.DatabaseError as exc:
        said = str(exc)
    if said != "ok":
        hint = "--from-copy goes back to the last copy" if clean.made_at(path) is not None else "restore it from a backup"
        raise Failure(f"{path} cannot be used as it is: {said}", f"nothing was changed; {hint}")


def _lower_of(state: runtime.State, path: str, found: Findings) -> str:
    lower = found.lower or inspection.inspect(path).lower
    record = state.last_record()
    if not lower and record is not None:
        lower = record.lower
    return lower


def _check(place: runtime.State, lower_path: str, wanted: Wanted, tell: Tell, note: Say) -> list[str]:
    lower, backstore = HostLower(lower_path), HostBackstore(place.objects)
    store = Store.open(place.metadata, lower_path, mends=wanted.repair)
    try:
        overlay = Overlay(store, lower, backstore)
        if wanted.repair:
            _take_back(overlay, note)
        while overlay.reap():
            pass
        if wanted.discard:
            backstore.discard_aside()
        problems = _drive(overlay.checking(scrub=wanted.scrub, alone=True), tell)
        for sentence in overlay.recovered.notes:
            note(sentence)
        for one in backstore.aside():
            made = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one.mtime_ns / 1e9))
            note(f"set aside: {one.path}, {text.size(one.size)}, last written {made} (--discard removes it)")
        return problems
    finally:
        store.close()
        backstore.close()
        lower.close()


def _take_back(overlay: Overlay, note: Say) -> None:
    """What was set aside, and a row refers to, is that file's content again."""
    back = {number for number in overlay.recovered.lost if overlay.backstore.take_back(number)}
    overlay.recovered.lost -= back
    if back:
        note(f"{len(back)} set-aside contents are in their places again")


def _drive(steps: Generator[tuple[int, int, str], None, list[str]], tell: Tell) -> list[str]:
    while True:
        try:
            tell(*next(steps))
        except StopIteration as end:
            problems: list[str] = end.value
            return problems
