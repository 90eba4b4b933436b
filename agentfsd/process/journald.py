"""Log records for systemd's journal: with their level and fields where its socket is there, else lines that begin with `<N>`.

Source: systemd's Native Journal Protocol, sd-daemon(3).
"""

import array
import contextlib
import errno
import fcntl
import logging
import os
import socket
import struct
import traceback
from collections.abc import Mapping
from typing import Any

from agentfsd.escape import printable

SOCKET = "/run/systemd/journal/socket"

_PATIENCE_S = 1.0  # after that a record is dropped, so that a hanging journal does not block the daemon
_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
_DEBUG = 7
_F_ADD_SEALS, _ALL_SEALS = 1033, 15  # fcntl(2)


def listens(fd: int) -> bool:
    """Return whether a descriptor leads to the journal, according to the service manager's environment variable."""
    try:
        status = os.fstat(fd)
    except OSError:
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def handler(fields: Mapping[str, str], path: str = SOCKET) -> logging.Handler:
    """Return a log handler for a process whose standard error goes to the journal. *fields* are added to every record."""
    if os.path.exists(path):
        return JournalHandler(fields, path)
    lines = logging.StreamHandler()
    lines.setFormatter(Prefixed("%(name)s: %(message)s"))
    return lines


def priority(level: int) -> int:
    """Return the priority of a log level, as in syslog(3)."""
    return next((number for least, number in _PRIORITIES if level >= least), _DEBUG)


class Formatter(logging.Formatter):
    """Format tracebacks without source lines. The sources may lie beneath the mount, which cannot answer during a log call."""

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's own name
        frames = traceback.walk_tb(ei[2])
        where = [f"  {frame.f_code.co_filename}:{line} in {frame.f_code.co_name}" for frame, line in frames]
        return "\n".join([printable(f"{ei[0].__name__}: {ei[1]}"), *where])


class OneLine(Formatter):
    """Format a message as one line: in a log file each line is a record, and messages hold file names."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's own name
        record.message = printable(record.message)
        return super().formatMessage(record)


class Prefixed(Formatter):
    """Prefix each line with its level: the journal takes each line of a stream as a record."""

    def format(self, record: logging.LogRecord) -> str:
        lines = super().format(record).splitlines() or [""]
        return "\n".join(f"<{priority(record.levelno)}>{line}" for line in lines)


class JournalHandler(logging.Handler):
    """Send records to the journal. A `branch` (logging's *extra*) becomes the field AGENTFS_BRANCH."""

    def __init__(self, fields: Mapping[str, str], path: str = SOCKET) -> None:
        super().__init__()
        self._fields, self._path = dict(fields), path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.settimeout(_PATIENCE_S)
        self._instead = Prefixed("%(name)s: %(message)s")
        self.setFormatter(Formatter())

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._send(_encoded(self._fields_of(record)))
        except TimeoutError:
            pass
        except OSError:  # the journal is restarting; systemd keeps what is written to its stream
            with contextlib.suppress(OSError):
                os.write(2, self._instead.format(record).encode(errors="replace") + b"\n")

    def _fields_of(self, record: logging.LogRecord) -> dict[str, str]:
        found = {
            "MESSAGE": self.format(record), "PRIORITY": str(priority(record.levelno)), "SYSLOG_IDENTIFIER": "agentfsd",
            "LOGGER": record.name, "CODE_FILE": record.pathname, "CODE_LINE": str(record.lineno),
            "CODE_FUNC": record.funcName or "", **self._fields,
        }  # fmt: skip
        branch = getattr(record, "branch", "")
        return found | ({"AGENTFS_BRANCH": branch} if branch else {})

    def _send(self, message: bytes) -> None:
        try:
            self._socket.sendto(message, self._path)
        except OSError as exc:
            if exc.errno != errno.EMSGSIZE:
                raise
            self._send_large(message)

    def _send_large(self, message: bytes) -> None:
        """Send a message as a sealed memory file."""
        with os.fdopen(os.memfd_create("journal", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "wb") as file:
            file.write(message)
            file.flush()
            fcntl.fcntl(file, _F_ADD_SEALS, _ALL_SEALS)
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file.fileno()]))]
            self._socket.sendmsg([b""], rights, 0, self._path)

    def close(self) -> None:
        self._socket.close()
        super().close()


def _encoded(fields: Mapping[str, str]) -> bytes:
    parts = []
    for name, value in fields.items():
        text = value.encode(errors="replace")
        if b"\n" in text:
            parts.append(name.encode() + b"\n" + struct.pack("<Q", len(text)) + text + b"\n")
        else:
            parts.append(name.encode() + b"=" + text + b"\n")
    return b"".join(parts)
