"""Disk space reserved in advance and released on a full disk, so that files can still be removed there.

It knows nothing of what the room is used for.
"""

import contextlib
import os

_SIZES_BYTES = (4 << 20, 1 << 20)  # the second where there is no room for the first


class Reserve:
    """One file without content that occupies disk space.

    What an earlier process left is released at once: replaying the operations which that process acknowledged may need the space.
    """

    def __init__(self, path: str) -> None:
        """*path*: of the file; "" for no reserve at all."""
        self._path = path
        self.size_bytes = 0
        self._give_back()

    def keep(self) -> None:
        """Reserve the space, if the disk has it."""
        for size_bytes in _SIZES_BYTES:
            if not self._path or self.size_bytes >= size_bytes:
                return
            try:
                with open(self._path, "ab") as file:
                    os.posix_fallocate(file.fileno(), 0, size_bytes)
                self.size_bytes = size_bytes
            except OSError:
                if not self.size_bytes:
                    self._give_back()

    def use(self) -> bool:
        """Release the space for the next transaction. Return False when none was reserved."""
        if not self.size_bytes:
            return False
        self._give_back()
        self.size_bytes = 0
        return True

    def _give_back(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
