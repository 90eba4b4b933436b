"""Checks and repairs a state directory that is not mounted. It inspects the files before it opens the database."""

import logging
import os
import sqlite3
import time
from collections.abc import Callable, Generator

from agentfsd import escape
from agentfsd.backstore import ramdisk
from agentfsd.backstore.hostfs import HostBackstore
from agentfsd.cli.command_base import Failure
from agentfsd.control import status_text
from agentfsd.core.overlay import Overlay
from agentfsd.daemon import state_contents
from agentfsd.lower.frozen_bases import FrozenBases
from agentfsd.lower.host_lower import HostLower
from agentfsd.metadata import check_rows, clean_copy, inspection
from agentfsd.metadata.inspection import Findings
from agentfsd.metadata.row_store import Store
from agentfsd.state import state_directory

Tell = Callable[[int, int, str], object]
Say = Callable[[str], object]


class Wanted:
    """The options of `fsck --state`."""

    def __init__(self, *, repair: bool, from_copy: bool, scrub: bool, discard: bool) -> None:
        self.repair, self.from_copy, self.scrub, self.discard = repair or from_copy, from_copy, scrub, discard


def check_state(state: state_directory.StateDirectory, wanted: Wanted, tell: Tell, note: Say) -> list[str]:
    """Check a state directory, and repair it if *wanted* says so.

    Args:
        state: The state directory.
        wanted: The options.
        tell: Called with (done, total, what) as the work goes on.
        note: Called with each sentence for the user that names no problem.

    Returns:
        A sentence about each problem that is left.

    Raises:
        Failure: It is no state directory, or cannot be repaired as wanted.
    """
    place = state.on_volume(ramdisk.KIND.name) if ramdisk.is_there(state.ramdisk) else state
    path = place.metadata
    if not any(map(os.path.exists, (path, path + clean_copy.COPY, place.objects))):
        raise Failure(f"{state.path} is not an agentfsd state directory", "`agentfsd status` names the one of a mount")
    with state_directory.locked(state):
        findings = state_contents.inspect(place)
        if findings.damage and not wanted.repair:
            note(_what_can_be_done(path))
            return findings.damage
        if inspection.is_blank(path) and not findings.damage and not wanted.from_copy:
            note("nothing was ever kept in it")
            return []
        if wanted.repair:
            _prepare(path, wanted, findings, note)
        return _check(place, _lower_of(state, path, findings), wanted, tell, note)


def _what_can_be_done(path: str) -> str:
    """Say which options can repair the state; the one that loses less comes first."""
    advice = "nothing was changed; what comes after that was not checked"
    if not _why_unusable(path):
        advice += ". --repair goes on with what is there, and keeps the rest"
        return advice + ("; " + _going_back(path) if clean_copy.made_at(path) is not None else "")
    return f"{advice}. --repair cannot go on with it; {_going_back(path)}"


def _going_back(path: str) -> str:
    at = clean_copy.made_at(path)
    if at is None:
        return "there is no copy of it to go back to: restore it from a backup, or move the state directory away to start afresh"
    return f"--from-copy goes back to the metadata of {_when(at)}, and keeps the contents that were made since"


def _when(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def _prepare(path: str, wanted: Wanted, findings: Findings, note: Say) -> None:
    """Keep a copy of the damaged metadata, then go back to the clean copy if that is wanted."""
    if not wanted.from_copy and not findings.damage:
        return
    if wanted.from_copy:
        copy = inspection.inspect(path + clean_copy.COPY) if clean_copy.made_at(path) is not None else None
        if copy is None or copy.damage:
            hint = "restore it from a backup" if _why_unusable(path) else "--repair goes on with what is there"
            raise Failure(f"there is no sound copy of {path}", f"nothing was changed; {hint}")
    elif why := _why_unusable(path):
        raise Failure(f"{path} cannot be used as it is: {why}", f"nothing was changed; {_going_back(path)}")
    note(f"the metadata as it was is kept in {clean_copy.keep_damaged(path)}")
    for sentence in findings.damage:
        note(sentence)
    if wanted.from_copy:
        note(_what_goes(path))
        clean_copy.go_back(path)


def _why_unusable(path: str) -> str:
    """Say why SQLite cannot use the database, or "" if it can."""
    if inspection.is_blank(path):
        return "it is empty" if os.path.exists(path) else "it is missing"
    try:
        problem = check_rows.read_first_problem(path)
    except sqlite3.DatabaseError as exc:
        problem = str(exc)
    return "" if problem == "ok" else inspection.plain(problem)


def _what_goes(path: str) -> str:
    """Say what the copy lacks, as far as the damaged database can still be read."""
    at = clean_copy.made_at(path)
    assert at is not None
    sentence = f"the state is that of {_when(at)}: what was changed since is not in it"
    try:
        now, then = _names(path), _names(path + clean_copy.COPY)
    except sqlite3.DatabaseError:
        return f"{sentence}; which branches and snapshots were made since cannot be read any more"
    gone = [escape.printable(now[key]) for key in now if key not in then]
    return f"{sentence}, nor are {', '.join(gone)}" if gone else sentence


def _names(path: str) -> dict[tuple[str, str], str]:
    """Map (kind, id) of each branch and snapshot to its kind and name."""
    return {(kind, ref_id): f"{kind} {name}" for (kind, ref_id), name in check_rows.read_ref_names(path).items()}


def _lower_of(state: state_directory.StateDirectory, path: str, findings: Findings) -> str:
    lower = findings.lower or inspection.inspect(path).lower
    record = state.last_record()
    if not lower and record is not None:
        lower = record.lower
    return lower


def _check(place: state_directory.StateDirectory, lower_path: str, wanted: Wanted, tell: Tell, note: Say) -> list[str]:
    lower, backstore = HostLower(lower_path), HostBackstore(place.objects)
    store = Store.open(place.metadata, lower_path, mends=wanted.repair)
    logging.getLogger("agentfsd").addHandler(logging.NullHandler())  # note() tells the user what the log would say
    try:
        before = len(backstore.aside())
        overlay = Overlay(store, lower, backstore, open_base=FrozenBases(place.bases, lower).open)
        if wanted.repair:
            _take_back(overlay, note)
        while overlay.layers.reap():
            pass
        if wanted.discard:
            backstore.discard_aside()
        problems = _drive(overlay.fsck_in_steps(scrub=wanted.scrub, alone=True), tell)
        for sentence in overlay.recovered.notes:
            note(sentence)
        if wanted.repair and overlay.recovered.lost:
            note(f"--repair cannot bring back what is lost; a backup of {place.objects} can, under the same name")
        since = len(backstore.aside()) - before
        if wanted.from_copy and since > 0:
            note(f"{since} content{'' if since == 1 else 's'} made since then: set aside, as follows")
        for aside in backstore.aside():
            made = _when(aside.mtime_ns / 1e9)
            note(f"set aside: {aside.path}, {status_text.size(aside.size)}, last written {made} (--discard removes it)")
        return problems
    finally:
        store.close()
        backstore.close()
        lower.close()


def _take_back(overlay: Overlay, note: Say) -> None:
    """Put contents that were set aside back to the files whose rows refer to them."""
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
