"""The state directory's layout, its lock, and the registry of live daemons.

The command line finds a running daemon through this module. It knows nothing of branches and files.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from agentfs_client import registry
from agentfs_client.registry import DaemonRecord as DaemonRecord
from agentfs_client.registry import live_daemons as live_daemons
from agentfs_client.registry import process_start_ticks as process_start_ticks
from agentfs_client.registry import read_record
from agentfsd.domain_errors import Refusal

RUN_OVERLAY = "run-"  # what the names of the directories of such runs in ``overlays`` begin with, before a branch's id
PAUSED = "paused"
ENDING_WAIT_S = 10.0
_LOOK_S = 0.005  # programs may be waiting
LOCK_WAIT_S = 0.5  # a stopping daemon still holds its lock for a moment

_PF_EXITING = 0x4  # flag in /proc/PID/stat, linux/sched.h


@dataclass(frozen=True, slots=True)
class StateDirectory:
    """The paths of one state directory."""

    path: str

    @property
    def metadata(self) -> str:
        return os.path.join(self.path, "meta.db")

    @property
    def objects(self) -> str:
        return os.path.join(self.path, "objects")

    @property
    def bases(self) -> str:
        """The frozen bases. They stay on this file system, whatever the backstore is."""
        return os.path.join(self.path, "bases")

    @property
    def ramdisk(self) -> str:
        """Where the ramdisk backstore's tmpfs is mounted."""
        return os.path.join(self.path, "ramdisk")

    def on_volume(self, name: str) -> "StateDirectory":
        """Return where ``metadata`` and ``objects`` lie if the backstore of that name has a file system mounted for it.

        All else stays outside: others need it before the file system is mounted, or when it has gone.
        """
        return StateDirectory(os.path.join(self.path, name))

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
    def given_up(self) -> str:
        """Why no daemon was started in the place of one that died, if that is so."""
        return os.path.join(self.path, registry.GIVEN_UP)

    @property
    def audit(self) -> str:
        """The audit trail's database."""
        return os.path.join(self.path, "audit.db")

    @property
    def bindings(self) -> str:
        """The records of which process is bound to which branch."""
        return os.path.join(self.path, "bindings")

    @property
    def record(self) -> str:
        return os.path.join(self.path, "daemon.json")

    @property
    def hidden_mountpoint(self) -> str:
        """Where a one-step overlay is mounted. If the directory exists, there was one."""
        return os.path.join(self.path, "mnt")

    @property
    def socket(self) -> str:
        return os.path.join(self.path, "control.sock")

    @property
    def home_layers(self) -> str:
        """The changes of each branch to the home directory: see home_layer_store.py."""
        return os.path.join(self.path, "homes")

    @property
    def overlays(self) -> str:
        """The layers and upper directories of branches that the kernel shows as overlays. They lie beside ``objects``."""
        return os.path.join(self.path, "overlays")

    def paused_run(self, branch_id: str) -> str:
        """A file that is there while the daemon has stopped the processes of a branch that the kernel shows as an overlay."""
        return os.path.join(self.overlays, f"{RUN_OVERLAY}{branch_id}", PAUSED)

    @property
    def doorway(self) -> str:
        """The socket at which the preloaded library asks for descriptors."""
        return os.path.join(self.path, "handoff.sock")

    def create(self) -> None:
        try:
            os.makedirs(self.path, mode=0o700, exist_ok=True)
        except OSError as exc:
            raise Refusal(
                exc.errno or errno.EIO, "bad-state", f"cannot make the state directory {self.path}: {exc.strerror}"
            ) from None

    def last_record(self) -> DaemonRecord | None:
        """Return the record of the last daemon with this state, alive or not."""
        return read_record(self.record)


def default_state(lower: str) -> StateDirectory:
    """Return a workspace's default state directory, which is the same for every command."""
    resolved = os.path.realpath(lower)
    parent = os.environ.get("AGENTFS_STATE_HOME")
    if not parent:
        home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
        parent = os.path.join(home, "agentfsd")
    name = os.path.basename(resolved) or "root"
    return StateDirectory(os.path.join(os.path.realpath(parent), f"{name}-{path_digest(resolved)}"))


# -- the lock ---------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def locked(state: StateDirectory, is_ending: Callable[[DaemonRecord], bool] = lambda record: False) -> Iterator[None]:
    """Hold the state directory's lock. Refusal ``state-in-use`` when another process holds it.

    If the holder *is_ending*, or has been killed, wait for it: a mount right after an unmount must succeed.
    """
    state.create()
    fd = os.open(state.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _take(fd, state, is_ending)
        yield
    finally:
        os.close(fd)


def _take(fd: int, state: StateDirectory, is_ending: Callable[[DaemonRecord], bool]) -> None:
    begin = time.monotonic()
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            record = state.last_record()
            ends = record is not None and (is_ending(record) or _is_exiting(record.pid))
            limit_s = ENDING_WAIT_S if ends else LOCK_WAIT_S
            if time.monotonic() - begin >= limit_s:
                raise _in_use(state) from None
            time.sleep(_LOOK_S)
        else:
            return


def _is_exiting(pid: int) -> bool:
    """Return whether the kernel is ending a process, which keeps its files until its memory has been freed."""
    fields = registry.stat_fields(pid)
    return bool(fields) and bool(int(fields[6]) & _PF_EXITING)


def _in_use(state: StateDirectory) -> Refusal:
    record = state.last_record()
    if record is not None and record.alive():
        message = f"the state directory {state.path} is in use by process {record.pid}, mounted at {record.mountpoint}"
        hint = f"'agentfsd umount {record.mountpoint}' first, or give another --state DIR"
    else:
        message = f"the state directory {state.path} is in use by another process"
        hint = "wait until it has ended, or give another --state DIR"
    return Refusal(errno.EBUSY, "state-in-use", message, hint)


# -- the registry -----------------------------------------------------------------------------------------------------


def path_digest(path: str) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:12]
