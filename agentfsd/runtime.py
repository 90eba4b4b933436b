"""What a daemon leaves on disk for others to find: the state directory's layout, its lock, the registry of live daemons.

It must never know what a branch or a file is; the command line and the daemon meet here before they can talk.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec

from agentfsd.errors import Refusal

SOCKET_PATH_MAX_BYTES = 107  # sun_path, less the closing zero (unix(7))
ENDING_WAIT_S = 10.0
LOCK_WAIT_S = 0.5  # a daemon that has just been told to stop still holds its lock for a moment


class DaemonRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A live daemon, as it describes itself in STATE/daemon.json and in the registry."""

    pid: int
    start_ticks: int  # /proc/PID/stat field 22: tells the daemon from a later process with its number
    lower: str
    mountpoint: str
    socket: str
    state: str
    started_ns: int
    hidden: bool = False

    def alive(self) -> bool:
        return self.start_ticks == process_start_ticks(self.pid)


@dataclass(frozen=True, slots=True)
class State:
    """Where everything lies in one state directory."""

    path: str

    @property
    def metadata(self) -> str:
        return os.path.join(self.path, "meta.db")

    @property
    def objects(self) -> str:
        return os.path.join(self.path, "objects")

    @property
    def spill(self) -> str:
        return os.path.join(self.path, "spill")

    @property
    def lock(self) -> str:
        return os.path.join(self.path, "lock")

    @property
    def log(self) -> str:
        return os.path.join(self.path, "daemon.log")

    @property
    def record(self) -> str:
        return os.path.join(self.path, "daemon.json")

    @property
    def hidden_mountpoint(self) -> str:
        """Where a one-step overlay is mounted; the directory's presence tells that there was one."""
        return os.path.join(self.path, "mnt")

    @property
    def socket(self) -> str:
        """STATE/control.sock, or a short name in the runtime directory when that is too long for a socket address."""
        path = os.path.join(self.path, "control.sock")
        if len(os.fsencode(path)) <= SOCKET_PATH_MAX_BYTES:
            return path
        return os.path.join(runtime_dir(), f"{_digest(self.path)}.sock")

    def create(self) -> None:
        try:
            os.makedirs(self.path, mode=0o700, exist_ok=True)
        except OSError as exc:
            raise Refusal(
                exc.errno or errno.EIO, "bad-state", f"cannot make the state directory {self.path}: {exc.strerror}"
            ) from None

    def last_record(self) -> DaemonRecord | None:
        """What the last daemon on this state said of itself, dead or alive."""
        return _read_record(self.record)


def default_state(lower: str) -> State:
    """The state directory of a workspace when none is given; one and the same for every command."""
    resolved = os.path.realpath(lower)
    parent = os.environ.get("AGENTFS_STATE_HOME")
    if not parent:
        home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
        parent = os.path.join(home, "agentfsd")
    name = os.path.basename(resolved) or "root"
    return State(os.path.join(os.path.realpath(parent), f"{name}-{_digest(resolved)}"))


# -- the lock ---------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def locked(state: State, is_ending: Callable[["DaemonRecord"], bool] = lambda record: False) -> Iterator[None]:
    """Holds the state directory for this process; Refusal ``state-in-use`` when another one does.

    A holder that *is_ending* is given time for it: a mount right after an unmount must work.
    """
    state.create()
    fd = os.open(state.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _take(fd, state, is_ending)
        yield
    finally:
        os.close(fd)


def _take(fd: int, state: State, is_ending: Callable[["DaemonRecord"], bool]) -> None:
    begin = time.monotonic()
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            record = state.last_record()
            limit_s = ENDING_WAIT_S if record is not None and is_ending(record) else LOCK_WAIT_S
            if time.monotonic() - begin >= limit_s:
                raise _in_use(state) from None
            time.sleep(0.02)
        else:
            return


def _in_use(state: State) -> Refusal:
    record = state.last_record()
    if record is not None and record.alive():
        message = f"the state directory {state.path} is in use by process {record.pid}, mounted at {record.mountpoint}"
        hint = f"'agentfsd umount {record.mountpoint}' first, or give another --state DIR"
    else:
        message = f"the state directory {state.path} is in use by another process"
        hint = "wait until it has ended, or give another --state DIR"
    return Refusal(errno.EBUSY, "state-in-use", message, hint)


# -- the registry -----------------------------------------------------------------------------------------------------


def runtime_dir() -> str:
    """The directory of live daemons' records, made when missing: only its owner may write there."""
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
    raise Refusal(
        errno.EACCES, "no-runtime-dir", "there is no private directory for sockets and records of live daemons",
        "set AGENTFS_RUNTIME_DIR to a directory that only you can write",
    )  # fmt: skip


def _runtime_candidates() -> Iterator[str]:
    xdg = os.environ.get("XDG_RUNTIME_DIR")
    if xdg and os.path.isdir(xdg):
        yield os.path.join(xdg, "agentfsd")
    if os.geteuid() == 0:
        yield "/run/agentfsd"
    yield f"/tmp/agentfsd-{os.geteuid()}"


def publish(record: DaemonRecord) -> None:
    """Tells the world: STATE/daemon.json (kept for the next start) and the registry."""
    data = msgspec.json.format(msgspec.json.encode(record)) + b"\n"
    _replace(State(record.state).record, data)
    _replace(_registry_path(record.state), data)


def withdraw(record: DaemonRecord) -> None:
    """Takes the record out of the registry, unless a newer daemon has put its own there."""
    path = _registry_path(record.state)
    current = _read_record(path)
    if current is not None and current.pid == record.pid:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def live_daemons() -> list[DaemonRecord]:
    """Every live daemon of this user, oldest first. Records of dead ones are removed on the way."""
    found = []
    directory = runtime_dir()
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        record = _read_record(path) if name.endswith(".json") else None
        if record is None:
            continue
        if record.alive():
            found.append(record)
        else:
            with contextlib.suppress(OSError):
                os.unlink(path)
    return sorted(found, key=lambda record: record.started_ns)


def process_start_ticks(pid: int) -> int:
    """When a process started, in clock ticks since boot; 0 when it is gone or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 0 if fields[0] in (b"Z", b"X") else int(fields[19])


def command_of(pid: int) -> str:
    """The name of a process's program; "" when it is gone."""
    try:
        with open(f"/proc/{pid}/comm", "rb") as file:
            return file.read().decode(errors="replace").strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _registry_path(state: str) -> str:
    return os.path.join(runtime_dir(), f"{_digest(state)}.json")


def _read_record(path: str) -> DaemonRecord | None:
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=DaemonRecord)
    except (OSError, msgspec.DecodeError):
        return None


def _replace(path: str, data: bytes) -> None:
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "wb") as file:
        file.write(data)
    os.replace(temporary, path)


def _digest(path: str) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:12]
