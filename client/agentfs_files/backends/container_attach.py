"""Run a command in a container with its input and outputs attached, through podman's API.

The connection is podman-py's own, whatever its transport: this module requests an exec and takes over its socket. podman-py's
`exec_run` has no standard input, and its `get_archive` holds a whole file in memory.
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
    """The first and the last part of an output, *limit* bytes together."""

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
    """A running command that follows the protocol of this module.

    The command first reads a line with a secret word. (Arguments are visible to everybody, so the word is not one of them.) After
    each answer it prints that word on both outputs, and after the first the rest of a line, which is a status. *options* are
    those of podman's API.

    Raises:
        RuntimeError: the command cannot be started.
    """

    def __init__(self, container: "Container", command: list[str], **options: object) -> None:
        self._end = token_hex(16).encode()
        self._response = _start(container, {"Cmd": command, "Tty": False} | options)
        self._socket = cast(socket, self._response.raw.connection.sock)
        self._file = cast(BinaryIO, self._socket.makefile("rb", buffering=1 << 16))
        self._socket.sendall(self._end + b"\n")

    @property
    def is_silent(self) -> bool:
        """Whether nothing can be read. The command only prints answers, so readable data mean that it ended."""
        return not self._file.closed and not select.select([self._socket], [], [], 0)[0]

    def send(self, first: bytes, parts: Iterable[bytes | bytearray], timeout_s: float) -> None:
        self._socket.settimeout(timeout_s)
        self._socket.sendall(first)
        for part in parts:
            self._socket.sendall(part)

    def answer(self, errors: Capture, timeout_s: Callable[[], float]) -> Generator[bytes, None, bytes]:
        """Yield the output of an answer and return its status. Standard error is collected in *errors*.

        Raises:
            TimeoutError: nothing arrived for *timeout_s*() seconds; the function is called each time.
            OSError: the command ended without an answer.
        """
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
        """Close the connection. The command then reads the end of its input, and nobody reads its output."""
        self._file.close()
        with contextlib.suppress(OSError):
            self._socket.close()
        self._response.close()


def _start(container: "Container", settings: dict[str, object]) -> Any:
    """Return the response to the request that starts an exec. Its connection then belongs to the exec."""
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
    except OSError as exc:  # exceptions of requests and podman-py are OSErrors
        raise RuntimeError(f"no shell in the container {container.name}: {reason(exc)}") from exc
    if response.status_code != 101:
        response.close()
        raise RuntimeError(f"no shell in the container {container.name}: the service answered {response.status_code}")
    return response


def api_of(container: "Container") -> Any:
    """Return podman-py's session, whose paths begin after the version. Its declared type lacks some of its methods."""
    return container.client


def reason(exc: Exception) -> str:
    """Return podman's message in one line."""
    explanation = getattr(exc, "explanation", None) or exc
    return " ".join(str(explanation).split())
