"""Room on the disk that is taken in advance and given back when there is no other: on a full disk files must still be removable.

It knows nothing of what the room is used for.
"""

import contextlib
import os

_SIZES_BYTES = (4 << 20, 1 << 20)  # the second where there is no room for the first


class Reserve:
    """One file, which holds nothing. What an earlier process left of it is given back at once: taking up what that one had
    acknowledged may need it."""

    def __init__(self, path: str) -> None:
        """*path*: of the file; "" for a reserve that never is."""
        self._path = path
        self.size_bytes = 0
        self._give_back()

    def keep(self) -> None:
        """Takes the room, if there is any."""
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
        """Gives the room back to the disk, for the next transaction; False when there is none."""
        if not self.size_bytes:
            return False
        self._give_back()
        self.size_bytes = 0
        return True

    def _give_back(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
