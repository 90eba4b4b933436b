"""What a backstore declares of itself: its name, what it keeps, and how it is opened. It imports no backstore."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from agentfsd.types import Backstore


class BackstoreOptions(NamedTuple):
    """What a backstore is opened with.

    Attributes:
        objects: The directory for contents that stay.
        spill: The directory for contents that are too large for memory.
        shares: Blocks may be shared where the file system can.
        memory_object_bytes: The largest object that is kept in memory.
        memory_total_bytes: How much is kept in memory altogether.
    """

    objects: str
    spill: str
    shares: bool
    memory_object_bytes: int
    memory_total_bytes: int


@dataclass(frozen=True, slots=True)
class BackstoreVolume:
    """A file system that is mounted for a backstore at STATE/NAME. Contents and database lie on it.

    Attributes:
        is_there: Return whether it is mounted at a path.
        provide: Mount one of a size in bytes at a path, or take the one that is there; return whether it is new. OSError.
        take_away: Unmount the one at a path, with everything in it. OSError.
    """

    is_there: Callable[[str], bool]
    provide: Callable[[str, int], bool]
    take_away: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class BackstoreKind:
    """The declaration of one backstore.

    Attributes:
        name: The word for it in options, replies and messages.
        help: Where it keeps contents, as ``mount --help`` puts it.
        open: Make or open it. OSError.
        keeps_branches: Branches outlive an orderly end of the daemon.
        spills: Contents that are too large for it go to disk.
        needs_root: It can be had with CAP_SYS_ADMIN only.
        stand_in: The name of the backstore that is used where this one cannot be had.
        volume: The file system that it is on, if that is mounted for it.
    """

    name: str
    help: str
    open: Callable[[BackstoreOptions], Backstore]
    keeps_branches: bool = False
    spills: bool = False
    needs_root: bool = False
    stand_in: str = ""
    volume: BackstoreVolume | None = None
