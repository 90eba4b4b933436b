"""Shells that stay in a container and answer requests: one exec for hundreds of operations, each some milliseconds instead of the
50 ms and the process on the host that an exec costs. They know of bytes and errors, nothing of files.

The connection is podman-py's own (whatever its transport): it asks for an exec to be attached, and takes over the socket.
podman-py's `exec_run` has no standard input, and its `get_archive` holds a whole file in memory.
"""

import contextlib
import errno
import json
import os
import select
import struct
from collections.abc import Callable, Generator, Iterable, Iterator
from secrets import token_hex
from socket import socket
from typing import TYPE_CHECKING, Any, BinaryIO, cast
from weakref import WeakSet

from agentfs_client.backends.container_script import SCRIPT
from agentfs_client.filesystem.paths import escapes, refusal

if TYPE_CHECKING:
    from podman.domain.containers import Container

_STDOUT, _STDERR = 1, 2
_KEPT_ERRORS = 8192  # bytes of standard error that are looked at
_HEADER = struct.Struct(">B3xL")
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
        self._name = str(container.name)
        self._timeout_s = timeout_s
        self._end = token_hex(16).encode()
        command = ["sh", "-c", SCRIPT, "sh", self._end.decode(), root]
        self._response = _attach(container, command, user)
        self._socket = cast(socket, self._response.raw.connection.sock)
        self._socket.settimeout(timeout_s)
        self._file = cast(BinaryIO, self._socket.makefile("rb", buffering=1 << 16))

    @property
    def is_alive(self) -> bool:
        """False once it ended, or an answer was not read to its end. Nobody speaks unasked: what can be read now is an end."""
        return not self._file.closed and not select.select([self._socket], [], [], 0)[0]

    def ask(self, path: str, request: bytes, *data: bytes) -> bytes:
        """The whole answer. OSError about *path*."""
        return b"".join(self.stream(path, request, data))

    def stream(self, path: str, request: bytes, data: Iterable[bytes]) -> Iterator[bytes]:
        """The answer as it comes. Whoever does not read it to its end must close the shell."""
        errors = bytearray()
        try:
            self._socket.sendall(request + b"\n")
            for part in data:
                self._socket.sendall(part)
            status = yield from self._answer(errors)
        except OSError as exc:
            self.close()
            if isinstance(exc, TimeoutError):
                raise RuntimeError(f"the container {self._name} has not answered for {self._timeout_s:g} s") from exc
            raise RuntimeError(f"the container {self._name} stopped while it was asked for {path or '.'!r}") from exc
        if status != b"0":
            raise _error(path, status.decode("ascii", "replace"), bytes(errors))

    def _answer(self, errors: bytearray) -> Generator[bytes, None, bytes]:
        """Yields what was printed up to the end mark, and returns the status after it."""
        held = bytearray()
        while (at := held.find(self._end)) < 0:
            if (ready := len(held) - len(self._end)) > 0:
                yield bytes(held[:ready])
                del held[:ready]
            held += self._standard_output(errors)
        if at:
            yield bytes(held[:at])
        status = held[at + len(self._end) :]
        while not status.endswith(b"\n"):
            status += self._standard_output(errors)
        while not errors.endswith(self._end):
            self._standard_error(errors)
        del errors[-len(self._end) :]
        return bytes(status[:-1])

    def _standard_output(self, errors: bytearray) -> bytes:
        kind, payload = self._frame()
        if kind == _STDERR:
            _keep(errors, payload)
            return b""
        return payload

    def _standard_error(self, errors: bytearray) -> None:
        kind, payload = self._frame()
        if kind == _STDERR:
            _keep(errors, payload)

    def _frame(self) -> tuple[int, bytes]:
        header = self._file.read(_HEADER.size)
        if len(header) == _HEADER.size:
            kind, size = _HEADER.unpack(header)
            payload = self._file.read(size)
            if len(payload) == size:
                return kind, payload
        raise ConnectionResetError("the shell has ended")

    def close(self) -> None:
        """Ends the shell, and with it whatever it had not finished."""
        self._file.close()
        with contextlib.suppress(OSError):
            self._socket.close()
        self._response.close()


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

    def ask(self, path: str, request: bytes, data: Iterable[bytes] = ()) -> bytes:
        return b"".join(self.stream(path, request, data))

    def stream(self, path: str, request: bytes, data: Iterable[bytes] = ()) -> Iterator[bytes]:
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


def _attach(container: "Container", command: list[str], user: str | None) -> Any:
    """The answer to the request that starts an exec, whose connection is the exec's from then on."""
    asked = {"AttachStdin": True, "AttachStdout": True, "AttachStderr": True, "Tty": False, "Cmd": command, "User": user or ""}
    api = api_of(container)
    try:
        made = api.post(f"/containers/{container.id}/exec", data=json.dumps(asked))
        made.raise_for_status()
        response = api.post(
            f"/exec/{made.json()['Id']}/start",
            data=json.dumps({"Detach": False, "Tty": False}),
            headers={"Connection": "Upgrade", "Upgrade": "tcp"},
            stream=True,
        )
        response.raise_for_status()
    except OSError as exc:  # requests', and so podman-py's, are such
        raise RuntimeError(f"no shell in the container {container.name}: {reason(exc)}") from exc
    if response.status_code != 101:
        raise RuntimeError(f"no shell in the container {container.name}: the service answered {response.status_code}")
    return response


def api_of(container: "Container") -> Any:
    """podman-py's session, in which paths begin after the version. Its types say less than it can."""
    return container.client


def reason(exc: Exception) -> str:
    """What podman said, in one line."""
    told = getattr(exc, "explanation", None) or exc
    return " ".join(str(told).split())


def _keep(errors: bytearray, payload: bytes) -> None:
    errors += payload
    del errors[: max(0, len(errors) - _KEPT_ERRORS)]


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
