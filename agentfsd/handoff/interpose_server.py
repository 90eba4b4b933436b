"""The server for the preloaded library: one conversation with each process, over which descriptors are sent to it.

A process connects and sends a cookie. It then asks by an ioctl on a file of the mount, which names the cookie, so the kernel says
which file it is about and who asks. The server reads nothing between such requests. The client is in client/interpose/.
"""

import contextlib
import errno
import os
import socket
import struct

from agentfs_client.interpose import HELLO, MAGIC, PARCEL, VERSION
from agentfsd.core.permissions import Credentials
from agentfsd.handoff.credentials import credentials_of
from agentfsd.handoff.forwarding_settings import ForwardingSettings
from agentfsd.linux import owners_socket
from agentfsd.types import Caller

_PEER = struct.Struct("iII")
_BACKLOG = 1024
_UNHEARD_MOST = 64  # connections without a first message; a client sends it at once
_OF_ONE_PROCESS = 8  # conversations; it needs one


class InterposeConversation:
    """The connection of one process, until the process ends or executes another program."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.pid, self.uid, self.gid = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
        self.version = self.cookie = 0
        self._credentials: Credentials | None = None
        self.program = _program_of(self.pid)

    def listen(self) -> None:
        """Read the first message. BlockingIOError when it has not come yet; ValueError when it is not of this protocol."""
        said = self._connection.recv(HELLO.size + 1, socket.MSG_DONTWAIT)
        if len(said) != HELLO.size:
            raise ValueError("not a word of ours")
        magic, self.version, _, self.cookie = HELLO.unpack(said)
        if magic != MAGIC or not self.cookie:
            raise ValueError("not a word of ours")

    def credentials(self) -> Credentials:
        """Return the process's credentials as they were at the first call."""
        if self._credentials is None:
            self._credentials = credentials_of(Caller(self.pid, self.uid, self.gid))
        return self._credentials

    def push(self, ticket: int, fd: int, status: os.stat_result) -> None:
        """Send a descriptor. OSError (EAGAIN) when the process does not read what was sent before."""
        message = PARCEL.pack(ticket, status.st_dev, status.st_ino)
        socket.send_fds(self._connection, [message], [fd], socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    def has_ended(self) -> bool:
        """Return whether the process has closed its end. Unexpected data counts as the end: it would hide the real one."""
        try:
            self._connection.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK)
            return True
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class InterposeServer:
    """All conversations of one daemon with preloaded libraries."""

    def __init__(self, path: str, owner_uid: int, former: int | None = None) -> None:
        """*former*: the listening socket of the daemon before."""
        self.path, self._owner_uid = path, owner_uid
        self._listener = owners_socket.owners_socket(path, socket.SOCK_SEQPACKET, _BACKLOG, former)
        self._unheard: list[InterposeConversation] = []  # connected, and no first message yet
        self._conversations: dict[
            int, dict[int, InterposeConversation]
        ] = {}  # by process and cookie, the oldest of a process first

    def fileno(self) -> int:
        return self._listener.fileno()

    def __len__(self) -> int:
        return sum(map(len, self._conversations.values()))

    def find(self, cookie: int, pid: int, version: int, settings: ForwardingSettings) -> InterposeConversation:
        """Return the conversation that a request of process *pid* names.

        Raises:
            OSError: EPROTO when the versions differ, ENOTCONN when there is no such conversation.
            PermissionError: The settings do not admit the process.
        """
        conversation = self._conversations.get(pid, {}).get(cookie)
        if conversation is None:
            self._accept()
            conversation = self._conversations.get(pid, {}).get(cookie)
        if version != VERSION or (conversation is not None and conversation.version != VERSION):
            raise OSError(errno.EPROTO, f"this daemon speaks version {VERSION} of interposition")
        if conversation is None:  # perhaps it was one with an earlier daemon; the client connects again
            raise OSError(errno.ENOTCONN, "that process has no such conversation")
        if conversation.uid not in (0, self._owner_uid):
            raise PermissionError(errno.EPERM, "no conversation of that process")
        if not settings.enabled or not settings.allows(conversation.program):
            raise PermissionError(errno.EPERM, "forwarding is off for that program")
        return conversation

    def _accept(self) -> None:
        """Accept all pending connections."""
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                break
            conversation = InterposeConversation(connection)
            if not self._hears(conversation):
                self._unheard.append(conversation)
                if len(self._unheard) > _UNHEARD_MOST:
                    self._unheard.pop(0).close()
        self._unheard = [conversation for conversation in self._unheard if not self._hears(conversation)]

    def _hears(self, conversation: InterposeConversation) -> bool:
        """Read the first message. False when it has not come yet."""
        try:
            conversation.listen()
        except BlockingIOError:
            return False
        except (OSError, ValueError):
            conversation.close()
            return True
        others = self._conversations.setdefault(conversation.pid, {})
        replaced = others.pop(conversation.cookie, None)
        if replaced is None and len(others) >= _OF_ONE_PROCESS:
            replaced = others.pop(next(iter(others)))
        if replaced is not None:
            replaced.close()
        others[conversation.cookie] = conversation
        return True

    def sweep(self) -> None:
        """Forget processes that have ended. Call it periodically."""
        self._accept()
        for pid, those in list(self._conversations.items()):
            for cookie, conversation in list(those.items()):
                if conversation.has_ended():
                    del those[cookie]
                    conversation.close()
            if not those:
                del self._conversations[pid]

    def close(self) -> None:
        """Close every connection."""
        heard = [conversation for those in self._conversations.values() for conversation in those.values()]
        for conversation in [*heard, *self._unheard]:
            conversation.close()
        self._conversations.clear()
        self._unheard.clear()
        self._listener.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)


def _program_of(pid: int) -> str:
    """Return the path of a process's executable; "" when /proc does not show it."""
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""
