"""The record in the directory of a run: it says to which state of which branch the upper directory belongs.

A directory without a record is no run: one that is being made or removed.
"""

import contextlib
import os

import msgspec

from agentfs_host import syncing
from agentfsd.overlayfs.layer_stack import remove

_RECORD = "record.json"


class NotOurs(Exception):
    """The directory of a run is not what the branch can go on with. The text says why."""


class RunRecord(msgspec.Struct, frozen=True):
    """What is stored of a run.

    Attributes:
        branch: The id of the branch.
        base: The sealed layer of the branch beneath the upper directory; 0 for the bare lower.
        layers: The names of the read-only layers, the newest first.
        since_ns: When the run began.
        mark: That of the branch's loan: see lent_branches.Loan.
    """

    branch: str
    base: int
    layers: list[str]
    since_ns: int
    mark: str


def write_record(place: str, record: RunRecord) -> None:
    """Store the record of a run in its directory, durably. OSError."""
    with open(os.path.join(place, _RECORD), "wb") as file:
        file.write(msgspec.json.encode(record))
        file.flush()
        os.fsync(file.fileno())
    syncing.sync_directory(place)


def read_record(place: str) -> RunRecord | None:
    """Return what is stored of the run in a directory; None if there is no record.

    Raises:
        NotOurs: It cannot be read.
    """
    try:
        with open(os.path.join(place, _RECORD), "rb") as file:
            return msgspec.json.decode(file.read(), type=RunRecord)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, msgspec.DecodeError) as exc:
        raise NotOurs(f"its record cannot be read: {exc}") from exc


def remove_run(place: str) -> None:
    """Remove the directory of a run. What cannot be removed now is removed later: without a record nobody takes it for a run."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        os.unlink(os.path.join(place, _RECORD))
    remove(place)
