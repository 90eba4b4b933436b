"""Open the backstore that was configured, or its replacement, and the metadata database.

This module knows nothing of what the contents are.
"""

import contextlib
import errno
import logging
import os
import sqlite3
from collections.abc import Iterator

from agentfsd.backstore.backstore_kind import BackstoreKind, BackstoreOptions
from agentfsd.backstore.free_space import FreeSpace
from agentfsd.backstore.hostfs import HostBackstore
from agentfsd.backstore.known_backstores import BACKSTORES
from agentfsd.domain_errors import Refusal
from agentfsd.metadata import check_rows, clean_copy, inspection
from agentfsd.metadata.inspection import Findings
from agentfsd.metadata.row_store import Store
from agentfsd.state.daemon_config import DaemonConfig
from agentfsd.state.state_directory import StateDirectory
from agentfsd.types import Backstore

_THOUGH = ", though contents of branches are there"

log = logging.getLogger("agentfsd")


class StateContents:
    """The open backstore and database.

    ``why``: why the backstore is not the configured one, else "". ``in_use``: the mount succeeded, so the contents count.
    """

    def __init__(self, backstore: Backstore, store: Store, place: StateDirectory, why: str) -> None:
        self.backstore, self.store, self.place, self.why = backstore, store, place, why
        self.in_use = False
        self.room = FreeSpace(backstore)

    @property
    def capability(self) -> str:
        """``cap.backstore`` of the specification."""
        kind = self.backstore.kind
        return kind if not self.backstore.persistent else f"{kind}(native-snapshots={self.backstore.native_snapshots})"

    @property
    def notice(self) -> str:
        """What the user who mounts should know; "" when all contents are kept."""
        if self.why:
            where = BACKSTORES[self.backstore.kind].help
            return f"{self.why}; contents are in {where} instead, and every branch goes with the mount"
        if BACKSTORES[self.backstore.kind].keeps_branches:
            return ""
        return f"the {self.backstore.kind} backstore keeps nothing: every branch goes with the mount"


@contextlib.contextmanager
def opened(config: DaemonConfig, state: StateDirectory) -> Iterator[StateContents]:
    """Open backstore and database. A volume is unmounted at an orderly end; after an error it stays, unless it was never used.

    Raises:
        Refusal: They cannot be opened.
    """
    kind, why, is_new = _provide(config, state)
    contents = None
    try:
        contents = _open(config, state, kind, why)
        yield contents
    except BaseException:
        if contents is not None:
            _close(contents)
        if kind.volume is not None and is_new and (contents is None or not contents.in_use):
            kind.volume.take_away(_place(state, kind).path)
        raise
    _close(contents)
    if kind.volume is not None:
        kind.volume.take_away(_place(state, kind).path)


def _provide(config: DaemonConfig, state: StateDirectory) -> tuple[BackstoreKind, str, bool]:
    """Mount the volume of the backstore, where it has one.

    Returns:
        The backstore, why it is not the one asked for ("" where it is), and whether there is a new volume.
    """
    wanted = BACKSTORES[config.backstore]
    if wanted.volume is not None:
        try:
            return wanted, "", wanted.volume.provide(_place(state, wanted).path, config.ramdisk_size_bytes)
        except OSError as exc:
            why = f"there is no {wanted.name}: {exc.strerror}"
            log.warning("%s", why)
            return BACKSTORES[wanted.stand_in], why, False
    for kind in BACKSTORES.values():
        place = _place(state, kind).path
        if kind.volume is not None and kind.volume.is_there(place):
            raise Refusal(
                errno.EBUSY, f"{kind.name}-left", f"a daemon that was killed has left branches in the {kind.name} {place}",
                f"mount with --backstore {kind.name} to go on with them, or give them up with 'agentfsd umount MOUNTPOINT'",
            )  # fmt: skip
    return wanted, "", False


def _place(state: StateDirectory, kind: BackstoreKind) -> StateDirectory:
    """Return where contents and database of a backstore lie."""
    return state if kind.volume is None else state.on_volume(kind.name)


def _open(config: DaemonConfig, state: StateDirectory, kind: BackstoreKind, why: str) -> StateContents:
    place = _place(state, kind)
    backstore = kind.open(
        BackstoreOptions(
            place.objects, place.spill, config.prefer_native_snapshots,
            config.memory_object_limit_bytes, config.memory_total_limit_bytes,
        )
    )  # fmt: skip
    try:
        return StateContents(backstore, _open_store(config, place, backstore), place, why)
    except BaseException:
        backstore.close()
        raise


def _open_store(config: DaemonConfig, place: StateDirectory, backstore: Backstore) -> Store:
    """Open the database. Refusal also for contents without a database: a new one would drop them."""
    path = place.metadata if backstore.persistent else ":memory:"
    if backstore.persistent and inspection.is_blank(path) and next(backstore.ids(), None) is not None:
        copy = f" ('agentfsd fsck --state {place.path} --from-copy' goes back to the last clean start)"
        copy = copy if clean_copy.made_at(path) is not None else ""
        raise Refusal(
            errno.EIO, "state-corrupt", f"{inspection.describe_blank(path)}{_THOUGH}",
            f"restore it from a backup{copy}, or move the state directory away to start afresh",
        )  # fmt: skip
    return Store.open(path, config.lower)


def inspect(place: StateDirectory) -> Findings:
    """Check an unused state directory before anything in it is opened. Nothing is changed."""
    path = place.metadata
    findings = inspection.inspect(path)
    if not findings.damage and inspection.is_blank(path) and os.path.isdir(place.objects):
        backstore = HostBackstore(place.objects, native_snapshots=False)  # to find out whether it has some, it would write
        if next(backstore.ids(), None) is not None:
            findings.damage.append(f"{inspection.describe_blank(path)}{_THOUGH}")
        backstore.close()
    return findings


def count_lost(place: StateDirectory, findings: Findings) -> int:
    """Return how many contents are missing in an unused state directory.

    0 after a kill: the next start first settles what is there.
    """
    if findings.damage or not findings.ended_cleanly or inspection.is_blank(place.metadata) or not os.path.isdir(place.objects):
        return 0
    try:
        wanted = check_rows.read_live_objects(place.metadata)
    except sqlite3.DatabaseError:  # of an older version
        return 0
    backstore = HostBackstore(place.objects, native_snapshots=False)
    try:
        return len(wanted.difference(backstore.ids()))
    finally:
        backstore.close()


def _close(contents: StateContents) -> None:
    contents.store.close()
    contents.backstore.close()
