"""What a starting daemon tells the process that started it, once, over a pipe."""

import contextlib
import os

import msgspec


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """What a starting daemon reports once: that the mount answers, or in ``error`` why there is none."""

    error: str = ""
    errno: int = 0
    code: str = ""
    hint: str = ""
    notice: str = ""  # something the user should know of a mount that did work


class ReadinessPipe:
    """The pipe to the process that started the daemon."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @property
    def awaited(self) -> bool:
        """Whether a process waits for the report."""
        return self._fd >= 0

    def tell(self, message: Readiness) -> None:
        """Send the report. Only the first one counts."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            with contextlib.suppress(BrokenPipeError):
                os.write(fd, msgspec.json.encode(message) + b"\n")
            os.close(fd)
