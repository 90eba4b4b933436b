"""Shells that stay in a container and answer requests. One exec serves hundreds of operations, each in some milliseconds; an exec
for each would take 50 ms and a process on the host.

This module handles bytes and errors, and knows nothing of files.
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

_KEPT_ERRORS = 8192  # bytes of standard error that are kept
_TOLD = {
    os.strerror(number).encode(): number
    for number in (
        errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTEMPTY,
        errno.EISDIR, errno.ENOTDIR, errno.ENOENT, errno.EEXIST, errno.EFBIG, errno.EBUSY, errno.ETXTBSY,
    )
}  # fmt: skip


def quoted(value: str) -> bytes:
    """Quote a word for the shell. A request is one line, so newlines are written as a variable."""
    plain = os.fsencode(value).replace(b"'", b"'\\''").replace(b"\n", b"'\"$nl\"'")
    return b"'" + plain + b"'"


class ContainerShell:
    """A shell in a container that handles one request at a time.

    Raises:
        RuntimeError: the container is missing, or does not answer within *timeout_s*.
    """

    def __init__(self, container: "Container", root: str, timeout_s: float, user: str | None = None) -> None:
        self._name, self._timeout_s = str(container.name), timeout_s
        self._attached = Attached(container, ["sh", "-c", SCRIPT, "sh", root], User=user or "")

    @property
    def is_alive(self) -> bool:
        """False after the shell ended, or if an answer was not read to its end."""
        return self._attached.is_silent

    def ask(self, path: str, request: bytes, *data: bytes | bytearray) -> bytes:
        """Send a request and return the whole answer. Raises OSError about *path*."""
        return b"".join(self.stream(path, request, data))

    def stream(self, path: str, request: bytes, data: Iterable[bytes | bytearray]) -> Iterator[bytes]:
        """Send a request and yield the answer as it arrives. A caller that stops early must close the shell."""
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
        """End the shell and the request that it is working on."""
        self._attached.close()


class ContainerShells:
    """Several shells of one container, so that a request need not wait for an answer that is still being read."""

    def __init__(self, open_shell: Callable[[], ContainerShell]) -> None:
        self._open_shell = open_shell
        self._idle: list[ContainerShell] = []
        self._made: WeakSet[ContainerShell] = WeakSet()

    def take(self) -> ContainerShell:
        """Return a free shell, or start one. The caller gives it back or closes it."""
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
            self.give_back(shell)  # the shell answered with an error
            raise
        except BaseException:
            shell.close()
            raise
        self.give_back(shell)

    def close(self) -> None:
        """End all shells, including those in use."""
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
