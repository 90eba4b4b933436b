"""Waits until a daemon that was told to end has ended, and names the processes for which it waits."""

import time

from agentfs_client import registry
from agentfs_host import mount_table
from agentfsd.cli.command_base import (
    Failure,
)
from agentfsd.cli.output import printing
from agentfsd.linux import occupants
from agentfsd.state import state_directory

_UMOUNT_TIMEOUT_S = 30.0
_SAY_AFTER_S = 2.0
_LINGER_S = 0.5


def await_detached(record: registry.DaemonRecord, device: int) -> None:
    """Wait until the mount is detached, and half a second for the daemon. Name the processes that keep it after that."""
    deadline = time.monotonic() + _UMOUNT_TIMEOUT_S
    while mount_table.mount_at(record.mountpoint) is not None and record.alive() and time.monotonic() < deadline:
        time.sleep(0.02)
    deadline = time.monotonic() + _LINGER_S
    while record.alive() and time.monotonic() < deadline:
        time.sleep(0.02)
    if record.alive():
        users = occupants.users_of(device) if device else []
        whom = f": process {occupants.shown(users)}" if users else ""
        printing.note(f"the daemon, process {record.pid}, ends with the last process that uses the mount{whom}")


def await_end(record: registry.DaemonRecord, device: int) -> None:
    """Wait until the daemon has ended. After two seconds, name the processes that still use the mount.

    Raises:
        Failure: It has not ended after 30 seconds.
    """
    begin, named = time.monotonic(), False
    while record.alive():
        waited_s = time.monotonic() - begin
        if waited_s > _UMOUNT_TIMEOUT_S:
            log = state_directory.StateDirectory(record.state).log
            raise Failure(f"the daemon, process {record.pid}, has not ended yet", f"its log is {log}")
        if waited_s > _SAY_AFTER_S and not named:
            named = True
            users = occupants.users_of(device) if device else []
            whom = f"for process {occupants.shown(users)}" if users else f"for the daemon, process {record.pid}"
            printing.note(f"waiting {whom}")
        time.sleep(0.02)
