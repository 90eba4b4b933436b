"""The conversation in which a program is given real descriptors of files that it has open on a mount: what the preloaded library
(client/interpose/) says, in Python. It knows no request of the control protocol, and opens no file."""

import fcntl
import secrets
import socket
import threading

from agentfs_client.address import unix_address
from agentfs_client.interpose import FORWARD, HELLO, MAGIC, PARCEL, REQUEST, VERSION
from agentfs_client.transport import close_all, hung_up, receive


class Doorway:
    """``path``: of the socket, as wire.InterposeReply names it. Threads may share it; it is the process's that made it.

    OSError when nobody is there.
    """

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._cookie, self._ticket = secrets.randbits(63) + 1, 0
        self._turn = threading.Lock()
        try:
            with unix_address(path) as address:
                self._socket.connect(address)
            self._socket.send(HELLO.pack(MAGIC, VERSION, 0, self._cookie))
            self._socket.setblocking(False)
        except BaseException:
            self._socket.close()
            raise

    def forward(self, fd: int) -> int:
        """A real descriptor like *fd*, one of the mount: with its access mode and status flags, close-on-exec, at offset 0.

        OSError: ENOTTY where *fd* is of no mount that forwards, EPERM where this program is given none, anything else for this
        file alone.
        """
        flags = fcntl.fcntl(fd, fcntl.F_GETFL)
        with self._turn:
            self._ticket += 1
            asked = bytearray(REQUEST.pack(self._cookie, self._ticket, flags, VERSION, 0, 0))
            fcntl.ioctl(fd, FORWARD, asked)
            return self._receive(self._ticket)

    def _receive(self, ticket: int) -> int:
        """What was given for an earlier ticket, to a call that was interrupted, is closed."""
        came: list[int] = []
        try:
            while True:
                said = receive(self._socket, PARCEL.size, came)
                if len(said) != PARCEL.size or not came:
                    raise ConnectionAbortedError("no descriptor came")
                if PARCEL.unpack(said)[0] == ticket:
                    return came.pop()
                close_all(came)
        finally:
            close_all(came)

    def has_ended(self) -> bool:
        return hung_up(self._socket)

    def close(self) -> None:
        self._socket.close()

    def __del__(self) -> None:
        self.close()
