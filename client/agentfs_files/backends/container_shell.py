"""Shells that stay in a container and answer requests: one exec for hundreds of operations, each some milliseconds instead of the
50 ms and the process on the host that an exec costs. They know of bytes and errors, nothing of files.
"""

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING
from weakref import WeakSet

from agentfs_files.backends.container_attach import Attached, Capture
from agentfs_files.backends.container_script import SCRIPT
from agentfs_files.filesystem.virtual_paths import escapes, refusal

if TYPE_CHECKING:
    from podman.domain.containers import Container

_KEPT_ERRORS = 8192  # bytes of standard error that are looked at
_TOLD = {
    os.strerror(number).encode(): number
    for number in (
        errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTEMPTY,
        errno.EISDIR, errno.ENOTDIR, errno.ENOENT, errno.EEXIST, errno.EFBIG, errno.EBUSY, errno.ETXTBSY,
    )
}  # fmt: skip


def quoted(value: str) -> bytes:
    """A word for the shell, whatever is in it; a request is one line, so a newline is a variable."""
    plain = os.fsencode(value).replace(b"'", b"'\\''").replace(b"\n", b"'\"$nl\"'")
    return b"'" + plain + b"'"


class ContainerShell:
    """One shell, for one request at a time. RuntimeError when the container is not there, or *timeout_s* brought no answer."""

    def __init__(self, container: "Container", root: str, timeout_s: float, user: str | None = None) -> None:
        self._name, self._timeout_s = str(container.name), timeout_s
        self._attached = Attached(container, ["sh", "-c", SCRIPT, "sh", root], User=user or "")

    @property
    def is_alive(self) -> bool:
        """False once it ended, or an answer was not read to its end."""
        return self._attached.is_silent

    def ask(self, path: str, request: bytes, *data: bytes | bytearray) -> bytes:
        """The whole answer. OSError about *path*."""
        return b"".join(self.stream(path, request, data))

    def stream(self, path: str, request: bytes, data: Iterable[bytes | bytearray]) -> Iterator[bytes]:
        """The answer as it comes. Whoever does not read it to its end must close the shell."""
        errors = Capture(_KEPT_ERRORS)
        try:
            self._attached.send(request + b"\n", data, self._timeout_s)
            status = yield from self._attached.answer(errors, lambda: self._timeout_s)
        except TimeoutError as exc:
            self.close()
            raise RuntimeError(f"the container {self._name} has not answered for {self._timeout_s:g} s") from exc
        except OSError as exc:
            self.close()
            raise RuntimeError(f"the container {self._name} stopped while it was asked for {path or '.'!r}") from exc
        if status != b"0":
            raise _error(path, status.decode("ascii", "replace"), bytes(errors))

    def close(self) -> None:
        """Ends the shell, and with it whatever it had not finished."""
        self._attached.close()


class ContainerShells:
    """Shells of one container, so that an answer which is still being read stands in nobody's way."""

    def __init__(self, open_shell: Callable[[], ContainerShell]) -> None:
        self._open_shell = open_shell
        self._idle: list[ContainerShell] = []
        self._made: WeakSet[ContainerShell] = WeakSet()

    def take(self) -> ContainerShell:
        """One that is free, or a new one; give it back, or close it."""
        while self._idle:
            shell = self._idle.pop()
            if shell.is_alive:
                return shell
            shell.close()
        shell = self._open_shell()
        self._made.add(shell)
        return shell

    def give_back(self, shell: ContainerShell) -> None:
        self._idle.append(shell)

    def ask(self, path: str, request: bytes, data: Iterable[bytes | bytearray] = ()) -> bytes:
        return b"".join(self.stream(path, request, data))

    def stream(self, path: str, request: bytes, data: Iterable[bytes | bytearray] = ()) -> Iterator[bytes]:
        shell = self.take()
        try:
            yield from shell.stream(path, request, data)
        except OSError:
            self.give_back(shell)  # the answer was that it cannot be done
            raise
        except BaseException:
            shell.close()
            raise
        self.give_back(shell)

    def close(self) -> None:
        """Ends all of them, those that are in use, too."""
        self._idle.clear()
        for shell in list(self._made):
            shell.close()


def _error(path: str, status: str, errors: bytes) -> OSError:
    if status == "ESCAPE":
        return escapes(path)
    number = getattr(errno, status, None)
    if isinstance(number, int):
        return refusal(number, path)
    for text, told in _TOLD.items():
        if text in errors:
            return refusal(told, path)
    said = errors.decode(errors="replace").strip() or f"the shell in the container answered {status}"
    return OSError(errno.EIO, said, path or ".")
