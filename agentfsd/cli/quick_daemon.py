"""Asks a daemon for the commands that hooks run, with Python's own modules alone: loading the client takes longer than an answer.

It handles the plain cases. In every other case it returns None. The full command line then looks further, and says what is wrong.
"""

import _socket  # socket itself makes enums of all its constants, and loads selectors: a tenth of a hook
import os
import stat
import struct
from _collections_abc import Callable

from agentfsd.cli import quick_json

TYPE_CHECKING = False  # typing takes as long to load as an answer does; checkers know the name
if TYPE_CHECKING:
    from typing import Any

_FSTYPE, _OVERLAY_SOURCE = b"fuse.agentfsd", b"agentfsd-run-"  # as agentfs_host.mount_table has them
VERSION = 1  # of the protocol: agentfs_client.message has it
_LENGTH = struct.Struct("<I")
_PART_BYTES = 1 << 17
_TEXTS = ("lower", "mountpoint", "socket")  # of a record


class JsonReply(dict[str, "Any"]):
    """An object of a JSON reply, whose fields are attributes, too."""

    def __getattr__(self, name: str) -> "Any":
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    @property
    def path_bytes(self) -> bytes:
        return self._exact("path")

    @property
    def old_path_bytes(self) -> bytes:
        return self._exact("old_path")

    @property
    def now_path_bytes(self) -> bytes:
        return self._exact("now_path")

    def _exact(self, field: str) -> bytes:
        raw = self[f"raw_{field}"]
        if raw:
            import binascii

            return binascii.a2b_base64(raw)
        return str(self[field]).encode()


class Lost(Exception):
    """The daemon has got the request and gave no answer."""


def socket_of(named: str | None) -> str | None:
    """Return the socket of the daemon that a command means: by -m, by AGENTFS_MOUNT, or by the current directory."""
    chosen = named or os.environ.get("AGENTFS_MOUNT")
    try:
        mounts, records = _mounts(), _records()
        path = _resolved(chosen, mounts) if chosen else os.getcwd()
        at = _mount_that_shows(path, mounts)
        found = _records_at(path, records) if at is None else _records_at(at, records)
        if named == "" or len(found) != 1 or (at is None and found[0]["hidden"]):  # a one-step daemon may just be ending
            return None
        return str(found[0]["socket"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


def shown_here(directory: str) -> tuple[str, str] | None:
    """Return the socket of the daemon whose mount shows *directory*, and where that is mounted; None if no mount of ours does."""
    at = _mount_that_shows(directory, _mounts())
    if at is None:
        return None
    found = _records_at(at, _records())
    return (str(found[0]["socket"]), at) if len(found) == 1 else None


def mountpoint_above(directory: str) -> str | None:
    """Return the mount point of an overlay whose real files are in or around *directory*; None if there is none."""
    for record in _records():
        if not record["hidden"] and (directory + "/").startswith(str(record["lower"]).rstrip("/") + "/"):
            return str(record["mountpoint"])
    return None


def _records_at(path: str, records: "list[dict[str, Any]]") -> "list[dict[str, Any]]":
    return [one for one in records if one["mountpoint"] == path] or [one for one in records if one["lower"] == path]


def _resolved(path: str, mounts: dict[bytes, bool]) -> str:
    """Return the path without symlinks. A mount point of ours is taken as it stands, as its daemon may hang."""
    absolute = os.path.abspath(path)
    is_ours = ".." not in path.split("/") and mounts.get(os.fsencode(absolute), False)
    return absolute if is_ours else os.path.realpath(path)


def _records() -> "list[dict[str, Any]]":
    """Return the records of this user's daemons, as agentfs_client.registry finds them, of dead ones, too."""
    for directory in _runtime_directories():
        try:
            info = os.lstat(directory)
        except FileNotFoundError:
            continue
        if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid():
            continue
        names = [name for name in os.listdir(directory) if name.endswith(".json")]
        return [record for name in names if (record := _record(os.path.join(directory, name))) is not None]
    return []


def _record(path: str) -> "dict[str, Any] | None":
    """Return a daemon's record; None if it is missing or unreadable, as another daemon's may be."""
    try:
        record = quick_json.loads(_content(path))
    except (OSError, ValueError):
        return None
    is_whole = isinstance(record, dict) and all(isinstance(record.get(field), str) for field in _TEXTS)
    return {"hidden": False, **record} if is_whole else None


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _runtime_directories() -> list[str]:
    chosen, xdg = os.environ.get("AGENTFS_RUNTIME_DIR"), os.environ.get("XDG_RUNTIME_DIR")
    if chosen:
        return [chosen]
    of_root = ["/run/agentfsd"] if os.geteuid() == 0 else []
    return [*of_root, *([os.path.join(xdg, "agentfsd")] if xdg else []), f"/tmp/agentfsd-{os.geteuid()}"]


def _mounts() -> dict[bytes, bool]:
    """Return each mount point, and whether it shows branches of agentfsd. What was mounted last at a place counts."""
    mounts = {}
    for line in _content("/proc/self/mountinfo").splitlines():
        left, _, right = line.partition(b" - ")
        place = left.split(maxsplit=5)[4]
        if b"\\" in place:
            place = place.decode("unicode_escape").encode("latin-1")
        kind, source = right.split(maxsplit=2)[:2]
        mounts[place] = kind == _FSTYPE or (kind == b"overlay" and source.startswith(_OVERLAY_SOURCE))
    return mounts


def _mount_that_shows(path: str, mounts: dict[bytes, bool]) -> str | None:
    """Return the mount point that shows *path*, if it is one of agentfsd's."""
    name = os.fsencode(path)
    around = (place for place in mounts if name == place or name.startswith(place.rstrip(b"/") + b"/"))
    nearest = max(around, key=len, default=b"")
    return os.fsdecode(nearest) if mounts.get(nearest, False) else None


def is_stopped(place: str) -> bool:
    """Return whether somebody has stopped the daemon with the socket *place*, as with SIGSTOP. It answers nobody then."""
    numbers = [record.get("pid") for record in _records() if record["socket"] == place]
    try:
        return any(_content(f"/proc/{number}/stat").rpartition(b") ")[2][:1] == b"T" for number in numbers)
    except OSError:
        return False


def ask(
    place: str, request: dict[str, object], timeout_s: float | None, is_hopeless: Callable[[], bool] | None = None
) -> JsonReply | None:
    """Send one request to the socket *place*, and return the reply; None if nobody has got the request.

    Args:
        place: The socket.
        request: The request.
        timeout_s: How long to wait for a part of the answer; None: for ever.
        is_hopeless: Called each time when that is over, to say whether to give up; None: give up at the first time.

    Raises:
        Lost: The daemon ended before it answered, or did not answer in time.
    """
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        try:
            connection.connect(place)
            body = quick_json.dumps(request).encode()
            connection.sendall(_LENGTH.pack(len(body)) + body)
        except (OSError, ValueError):
            return None
        try:
            length = _LENGTH.unpack(_receive(connection.recv, _LENGTH.size, is_hopeless))[0]
            reply: JsonReply = quick_json.loads(_receive(connection.recv, length, is_hopeless), JsonReply)
        except (OSError, ValueError):
            raise Lost from None
        return reply
    finally:
        connection.close()


def _receive(some: Callable[[int], bytes], size: int, is_hopeless: Callable[[], bool] | None) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        try:
            part = some(min(size - len(parts), _PART_BYTES))
        except TimeoutError:
            if is_hopeless is None or is_hopeless():
                raise
            continue
        if not part:
            raise Lost
        parts += part
    return bytes(parts)
