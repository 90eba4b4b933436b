"""A command in a container with its input and outputs in our hands, by podman's API.

The connection is podman-py's own, whatever its transport: an exec is asked for, and its socket taken over. podman-py's `exec_run`
has no standard input, and its `get_archive` holds a whole file in memory.
"""

import contextlib
import json
import select
import struct
from collections.abc import Callable, Generator, Iterable
from secrets import token_hex
from socket import socket
from typing import TYPE_CHECKING, Any, BinaryIO, cast

if TYPE_CHECKING:
    from podman.domain.containers import Container

_STDERR = 2
_HEADER = struct.Struct(">B3xL")  # source: podman's API, ContainerAttach: stream, bytes


class Capture:
    """The first and the last of what was printed, *limit* bytes in all."""

    def __init__(self, limit: int) -> None:
        self._room, self._half = limit - limit // 2, limit // 2
        self._head, self._tail = bytearray(), bytearray()
        self.left_out = 0  # bytes

    def add(self, data: bytes) -> None:
        free = self._room - len(self._head)
        self._head += data[:free]
        self._tail += data[free:]
        if (more := len(self._tail) - self._half) > 0:
            del self._tail[:more]
            self.left_out += more

    def __bytes__(self) -> bytes:
        note = b"\n[... %d bytes left out ...]\n" % self.left_out if self.left_out else b""
        return bytes(self._head) + note + bytes(self._tail)


class Attached:
    """A command that first reads a line, a word which nobody can guess (or see: arguments are for all to see), and prints it on
    both outputs when it has answered, and after the first the rest of a line, which is a status. *options* are those of podman's
    API. RuntimeError where it cannot be started."""

    def __init__(self, container: "Container", command: list[str], **options: object) -> None:
        self._end = token_hex(16).encode()
        self._response = _start(container, {"Cmd": command, "Tty": False} | options)
        self._socket = cast(socket, self._response.raw.connection.sock)
        self._file = cast(BinaryIO, self._socket.makefile("rb", buffering=1 << 16))
        self._socket.sendall(self._end + b"\n")

    @property
    def is_silent(self) -> bool:
        """Nobody speaks unasked, so what could be read now is an end."""
        return not self._file.closed and not select.select([self._socket], [], [], 0)[0]

    def send(self, first: bytes, parts: Iterable[bytes | bytearray], timeout_s: float) -> None:
        self._socket.settimeout(timeout_s)
        self._socket.sendall(first)
        for part in parts:
            self._socket.sendall(part)

    def answer(self, errors: Capture, timeout_s: Callable[[], float]) -> Generator[bytes, None, bytes]:
        """Yields what is printed, and returns the status; what went to standard error is in *errors* then. TimeoutError when
        nothing came for *timeout_s*(), which is asked each time; OSError when it ended without an answer."""
        held, told = bytearray(), bytearray()
        size = len(self._end)
        status: bytes | None = None
        while status is None or told != self._end:
            try:
                self._socket.settimeout(timeout_s())
                kind, payload = self._frame()
            except TimeoutError:
                errors.add(bytes(told))
                yield bytes(held)
                raise
            if kind == _STDERR:
                told += payload
                errors.add(bytes(told[:-size]))
                del told[:-size]
                continue
            held += payload
            at = held.find(self._end)
            ready = at if at >= 0 else len(held) - size
            if ready > 0:
                yield bytes(held[:ready])
                del held[:ready]
            if held.startswith(self._end) and held.endswith(b"\n"):
                status = bytes(held[size:-1])
        return status

    def _frame(self) -> tuple[int, bytes]:
        header = self._file.read(_HEADER.size)
        if len(header) == _HEADER.size:
            kind, size = _HEADER.unpack(header)
            payload = self._file.read(size)
            if len(payload) == size:
                return kind, payload
        raise ConnectionResetError("the command has ended")

    def close(self) -> None:
        """The command finds its input ended, and nobody who reads what it prints."""
        self._file.close()
        with contextlib.suppress(OSError):
            self._socket.close()
        self._response.close()


def _start(container: "Container", settings: dict[str, object]) -> Any:
    """The answer to the request that starts an exec, whose connection is the exec's from then on."""
    settings = {"AttachStdin": True, "AttachStdout": True, "AttachStderr": True} | settings
    api = api_of(container)
    try:
        made = api.post(f"/containers/{container.id}/exec", data=json.dumps(settings))
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
        response.close()
        raise RuntimeError(f"no shell in the container {container.name}: the service answered {response.status_code}")
    return response


def api_of(container: "Container") -> Any:
    """podman-py's session, in which paths begin after the version. Its types say less than it can."""
    return container.client


def reason(exc: Exception) -> str:
    """What podman said, in one line."""
    told = getattr(exc, "explanation", None) or exc
    return " ".join(str(told).split())
