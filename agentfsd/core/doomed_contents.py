"""Contents of files that have lost their last name while a process may have them open."""

import contextlib
from collections import Counter

from agentfsd.types import Backstore


class DoomedContents:
    """Content objects that every row calls garbage, but that must not be removed yet. All trees of an overlay share them.

    Each Inode that has such an object holds it, and so does each file that the kernel kept open across a restart.
    """

    def __init__(self, backstore: Backstore) -> None:
        self._backstore = backstore
        self._holders: Counter[int] = Counter()

    def numbers(self) -> set[int]:
        """Return the numbers of the objects."""
        return set(self._holders)

    def hold(self, number: int) -> None:
        """Count one more user of an object."""
        self._holders[number] += 1

    def let_go(self, number: int) -> int:
        """Count one user of an object less; return how many are left."""
        self._holders[number] -= 1
        if self._holders[number] > 0:
            return self._holders[number]
        del self._holders[number]
        return 0

    def remove(self, number: int) -> None:
        """Let go of an object, and remove it if nobody else has it. The next start does so if this fails, or does not happen."""
        if not self.let_go(number):
            with contextlib.suppress(OSError):
                self._backstore.remove(number)
