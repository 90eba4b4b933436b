"""Ask the daemon for real descriptors of files that are open on a mount, in the protocol of the preloaded library
(client/interpose/).

This module knows no request of the control protocol and opens no file.
"""

import fcntl
import secrets
import socket
import threading

from agentfs_client.address import unix_address
from agentfs_client.interpose import FORWARD, HELLO, MAGIC, PARCEL, REQUEST, VERSION
from agentfs_client.transport import close_all, hung_up, receive


class Doorway:
    """A connection to the socket that forwards descriptors.

    Threads may share it. It belongs to the process that created it.

    Args:
        path: path of the socket, as wire.InterposeReply names it.

    Raises:
        OSError: nobody listens there.
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
        """Return a real descriptor for the file behind *fd*.

        It has the access mode and status flags of *fd*, is close-on-exec, and is at offset 0.

        Args:
            fd: a descriptor of a file on the mount.

        Raises:
            OSError: ENOTTY if no mount that forwards descriptors owns *fd*; EPERM if this program gets none; any other errno
                concerns this file only.
        """
        flags = fcntl.fcntl(fd, fcntl.F_GETFL)
        with self._turn:
            self._ticket += 1
            request = bytearray(REQUEST.pack(self._cookie, self._ticket, flags, VERSION, 0, 0))
            fcntl.ioctl(fd, FORWARD, request)
            return self._receive(self._ticket)

    def _receive(self, ticket: int) -> int:
        """Receive the descriptor for a ticket. Close those for earlier tickets, whose callers were interrupted."""
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
