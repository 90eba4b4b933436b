"""Starts a daemon in the background and waits until its mount is ready, or reports the daemon's error.

It must never build any part of the daemon: it passes the config on and reads the answer.
"""

import errno
import os
import select
import signal
import sys
import time
from typing import NoReturn

import msgspec

from agentfs_client import registry
from agentfs_host import mount_table
from agentfsd.domain_errors import Refusal, invalid
from agentfsd.fuse import keeper
from agentfsd.linux import mounts
from agentfsd.process import daemon_process
from agentfsd.process.readiness import Readiness
from agentfsd.process.stored_descriptors import stored_descriptors
from agentfsd.state import daemon_config, state_directory
from agentfsd.state.daemon_config import DaemonConfig

READY_TIMEOUT_S = 60.0
_FREEZING_S = 3600.0  # a copy of the workspace may have to be made
_METADATA_BYTES_PER_S = 4 << 20  # at least: a start may read all metadata, in an order that is slow for a disk
_JOIN_TIMEOUT_S = 15.0
_IDLE_EXIT_S = 30.0


def _environment() -> dict[str, str]:
    """Return our environment without AGENTFS_INTERPOSE, by which the daemon would get its own files from another daemon."""
    return {name: value for name, value in os.environ.items() if name != "AGENTFS_INTERPOSE"}


def start(config: DaemonConfig) -> Readiness:
    """Start a daemon and return when its mount is ready.

    Raises:
        Refusal: The daemon could not start.
    """
    config = _checked(config)  # finds most mistakes before anything is started
    config_fd = daemon_config.descriptor(config)
    ready_read, ready_write = os.pipe()
    errors_fd = os.memfd_create("agentfsd-start")
    try:
        pid = daemon_process.spawn(_command(config_fd, ready_write), _environment(), errors_fd, (config_fd, ready_write))
        os.close(ready_write)
        ready_write = -1
        return _await_ready(pid, ready_read, errors_fd, state_directory.StateDirectory(config.state), freezes=config.frozen)
    finally:
        for fd in (config_fd, ready_read, ready_write, errors_fd):
            if fd >= 0:
                os.close(fd)


def go_on() -> None:
    """Become the daemon that goes on with what another one has left with the service manager; return if there is nothing.

    Until then nobody serves the mount, so nothing here may look at a path in it, such as the real directory's.
    """
    stored = stored_descriptors()
    if keeper.CONFIG in stored:
        fd = os.dup(stored[keeper.CONFIG])
        os.lseek(fd, 0, os.SEEK_SET)
        os.set_inheritable(fd, True)
        os.execve(sys.executable, _command(fd, -1), _environment())


def become(config: DaemonConfig) -> NoReturn:
    """Replace this process by the daemon, in the foreground."""
    fd = daemon_config.descriptor(_checked(config))
    os.set_inheritable(fd, True)
    sys.stdout.flush()
    os.execve(sys.executable, _command(fd, -1), _environment())


def _checked(config: DaemonConfig) -> DaemonConfig:
    """Return the config with resolved paths. Refusal.

    The mount of a killed daemon stays until the next one mounts, also if none can start: nobody shall write to what lies beneath.
    """
    is_dead = mounts.has_dead(mount_table.resolved(config.mountpoint))
    return daemon_config.check(msgspec.structs.replace(config, replaces_dead=is_dead))


def join_hidden(lower: str, state: state_directory.StateDirectory) -> registry.DaemonRecord:
    """Return the record of the workspace's one-step daemon; start the daemon if it does not run."""
    deadline = time.monotonic() + _JOIN_TIMEOUT_S
    while True:
        record = state.last_record()
        if record is not None and record.alive() and os.path.exists(record.socket):
            return record
        try:
            start(hidden_config(lower, state))
        except Refusal as exc:
            # Another run is starting the daemon, or the old daemon is just ending.
            if exc.code not in ("state-in-use", "already-mounted") or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def hidden_config(lower: str, state: state_directory.StateDirectory) -> DaemonConfig:
    """Return the config of a one-step daemon, whose mount point is hidden in the state directory."""
    state.create()
    try:
        os.makedirs(state.hidden_mountpoint, mode=0o700, exist_ok=True)
    except FileExistsError:
        pass  # a mount whose daemon has died: the new daemon clears it away
    try:
        idle_exit_s = float(os.environ.get("AGENTFS_IDLE_EXIT_S", _IDLE_EXIT_S))
    except ValueError:
        raise invalid("AGENTFS_IDLE_EXIT_S is no number of seconds") from None
    return DaemonConfig(lower=lower, mountpoint=state.hidden_mountpoint, state=state.path, idle_exit_s=idle_exit_s, hidden=True)


def _command(config_fd: int, ready_fd: int) -> list[str]:
    return daemon_process.command(config_fd, "--ready-fd", str(ready_fd))


def _patience_s(state: state_directory.StateDirectory, *, freezes: bool) -> float:
    """Return how long a daemon may take to start, in seconds: longer with larger metadata, or if it *freezes* the workspace."""
    if freezes:
        return _FREEZING_S
    size = os.path.getsize(state.metadata) if os.path.exists(state.metadata) else 0
    return READY_TIMEOUT_S + size / _METADATA_BYTES_PER_S


def _await_ready(
    pid: int, ready_fd: int, errors_fd: int, state: state_directory.StateDirectory, *, freezes: bool
) -> Readiness:  # fmt: skip
    patience_s = _patience_s(state, freezes=freezes)
    deadline = time.monotonic() + patience_s
    data = b""
    while not data.endswith(b"\n"):
        if not select.select([ready_fd], [], [], max(0.0, deadline - time.monotonic()))[0]:
            os.kill(pid, signal.SIGTERM)
            raise Refusal(
                errno.ETIMEDOUT, "start-timeout", f"the daemon did not get ready within {patience_s:.0f} s",
                f"its log is {state.log}",
            )  # fmt: skip
        chunk = os.read(ready_fd, 65536)
        if not chunk:
            raise _died(pid, errors_fd, state)
        data += chunk
    ready = msgspec.json.decode(data, type=Readiness)
    if ready.error:
        os.waitpid(pid, 0)
        words = _last_words(errors_fd)  # fusermount3 prints there why it refused
        raise Refusal(ready.errno, ready.code, f"{ready.error}: {words}" if words else ready.error, ready.hint)
    return ready


def _died(pid: int, errors_fd: int, state: state_directory.StateDirectory) -> Refusal:
    os.waitpid(pid, 0)
    reason = _last_words(errors_fd) or "it said nothing"
    return Refusal(errno.EIO, "start-failed", f"the daemon died while starting: {reason}", f"its log is {state.log}")


def _last_words(errors_fd: int) -> str:
    size = os.fstat(errors_fd).st_size
    lines = os.pread(errors_fd, 65536, max(0, size - 65536)).decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""
