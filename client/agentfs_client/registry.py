"""Find the live daemons of this user by the records that they leave in a directory of the user. No daemon is contacted."""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator

import msgspec

from agentfs_client.errors import NotAllowedError

GIVEN_UP = "given-up"  # a file in a state directory: why no daemon was started in the place of one that died


class DaemonRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A live daemon, as it describes itself in STATE/daemon.json and in the registry."""

    pid: int
    start_ticks: int  # /proc/PID/stat field 22: distinguishes the daemon from a later process with the same pid
    lower: str
    mountpoint: str
    socket: str
    state: str
    started_ns: int
    hidden: bool = False
    keeper: int = 0  # process id of what starts the next daemon if this one dies; 0: nothing does
    keeper_ticks: int = 0  # when that process started, as start_ticks

    def alive(self) -> bool:
        """Whether the daemon lives, or another is being started in its place."""
        return self.serves() or (self.keeper > 0 and self.keeper_ticks == process_start_ticks(self.keeper))

    def serves(self) -> bool:
        """Whether the process of this record lives."""
        return self.start_ticks == process_start_ticks(self.pid)

    def is_stopped(self) -> bool:
        """Whether somebody has stopped the process of this record, with SIGSTOP for example. It answers nobody then."""
        return self.serves() and stat_fields(self.pid)[:1] == [b"T"]


def runtime_dir() -> str:
    """Return the directory of live daemons' records. Create it if missing; only its owner may write there."""
    chosen = os.environ.get("AGENTFS_RUNTIME_DIR")
    if chosen:
        os.makedirs(chosen, mode=0o700, exist_ok=True)
        return chosen
    for candidate in _runtime_candidates():
        try:
            os.makedirs(candidate, mode=0o700, exist_ok=True)
            info = os.lstat(candidate)
        except OSError:
            continue
        if stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid() and os.access(candidate, os.W_OK):
            return candidate
    raise NotAllowedError(
        errno.EACCES, "no-runtime-dir", "there is no private directory for sockets and records of live daemons",
        "set AGENTFS_RUNTIME_DIR to a directory that only you can write",
    )  # fmt: skip


def _runtime_candidates() -> Iterator[str]:
    if os.geteuid() == 0:  # so that a service and root's terminal, which has an XDG_RUNTIME_DIR, use the same directory
        yield "/run/agentfsd"
    xdg = os.environ.get("XDG_RUNTIME_DIR")
    if xdg and os.path.isdir(xdg):
        yield os.path.join(xdg, "agentfsd")
    yield f"/tmp/agentfsd-{os.geteuid()}"


def live_daemons() -> list[DaemonRecord]:
    """Return the records of this user's live daemons, oldest first. Deletes the records of dead daemons, but see given_up()."""
    records = []
    for path, record in _records():
        if record.alive():
            records.append(record)
        elif not os.path.exists(os.path.join(record.state, GIVEN_UP)):
            with contextlib.suppress(OSError):
                os.unlink(path)
    return sorted(records, key=lambda record: record.started_ns)


def _records() -> Iterator[tuple[str, DaemonRecord]]:
    directory = runtime_dir()
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        record = read_record(path) if name.endswith(".json") else None
        if record is not None:
            yield path, record


def process_start_ticks(pid: int) -> int:
    """Return when a process started, in clock ticks since boot; 0 if it has ended.

    A zombie has ended only when its first thread is the last one: its other threads may still hold the mount and the lock.
    """
    fields = stat_fields(pid)
    try:
        has_ended = not fields or (fields[0] in (b"Z", b"X") and len(os.listdir(f"/proc/{pid}/task")) <= 1)
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 0 if has_ended else int(fields[19])


def stat_fields(pid: int | str) -> list[bytes]:
    """Return the fields of /proc/PID/stat from the third one, the state, on; none if the process has ended.

    *pid* may also be "PID/task/TID", for one thread.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def given_up(mountpoint: str) -> str:
    """Return why no daemon was started in the place of the one that died; "" if it is not known."""
    for _, record in _records():
        if record.mountpoint == mountpoint:
            with contextlib.suppress(OSError, UnicodeDecodeError), open(os.path.join(record.state, GIVEN_UP)) as file:
                return file.read(200)
    return ""


def read_record(path: str) -> DaemonRecord | None:
    """Return a daemon's record, None if it is missing or unreadable."""
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=DaemonRecord)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
