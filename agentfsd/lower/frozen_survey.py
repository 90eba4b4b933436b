"""Look over a lower before it is copied: how much there is, what must be stored anew, and whose blocks can be shared."""

import os
import stat
from collections.abc import Callable

from agentfs_host import copying
from agentfs_host.descent import join
from agentfsd.lower.frozen_copy import Earlier, is_as_then
from agentfsd.lower.frozen_index import FrozenEntry
from agentfsd.lower.frozen_walk import walk
from agentfsd.lower.host_lower import HostLower

_UNNAMED = os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC


class FrozenSurvey:
    """What a copy of a lower takes.

    Attributes:
        names: all names.
        needed_bytes: what must be stored anew, in bytes.
        needed_files: how many files must be made.
        unshared: the devices, as in FrozenEntry.dev, whose files cannot share blocks with the copies; None if none are to.
    """

    def __init__(self, lower: HostLower, target: int, earlier: Earlier | None) -> None:
        """*target*: a descriptor of the directory for the copies."""
        self._lower, self._target, self._earlier = lower, target, earlier
        self.names = self.needed_bytes = self.needed_files = 0
        self.unshared: set[int] | None = set() if lower.share else None
        self._sharing: set[int] = set()
        self._counted: set[tuple[int, int]] = set()

    @property
    def way(self) -> str:
        """How the files on the device of the lower's root are stored: see BaseRecord."""
        if self._earlier is not None and self.unshared is not None and 0 not in self._sharing | self.unshared:
            return self._earlier.way  # no file had to be copied
        return "reflink" if 0 in self._sharing else "copy"

    def look(self, step: Callable[[], object]) -> None:
        """Look at everything. *step* is called after each directory; what it raises ends all."""
        for seen in walk(self._lower):
            then = self._earlier.listing(seen.path) if self._earlier is not None else {}
            self.names += len(seen.entries)
            for name, entry in seen.entries.items():
                known = then.get(name)
                if known is None or not is_as_then(known, entry):
                    self._count(join(seen.path, name), entry)
            step()

    def _count(self, path: bytes, entry: FrozenEntry) -> None:
        self.needed_files += 1
        if not stat.S_ISREG(entry.mode) or not entry.size:
            return
        if entry.nlink > 1:
            if (entry.dev, entry.ino) in self._counted:
                return
            self._counted.add((entry.dev, entry.ino))
        if not self._can_share(path, entry):
            self.needed_bytes += min(copying.round_up(entry.size), entry.blocks * 512)

    def _can_share(self, path: bytes, entry: FrozenEntry) -> bool:
        if self.unshared is None or entry.dev in self.unshared:
            return False
        if entry.dev not in self._sharing:
            self._try(path, entry.dev)
        return entry.dev in self._sharing

    def _try(self, path: bytes, device: int) -> None:
        """Find out by one file whether files of a device can share blocks; one that tells nothing leaves it open."""
        try:
            source = self._lower.open(path)
        except OSError:
            return
        try:
            with open(os.open(b".", _UNNAMED, 0o600, dir_fd=self._target), "wb") as target:
                copying.share(source, target.fileno())
            self._sharing.add(device)
        except OSError as exc:
            if exc.errno not in copying.NOT_THIS_FILE and self.unshared is not None:
                self.unshared.add(device)
        finally:
            os.close(source)
