"""The command `restart`, which replaces the daemon of a mount while it serves."""

import time

import click

from agentfs_client.registry import DaemonRecord
from agentfsd.cli.command_base import Failure, converse, mount_option, refusals
from agentfsd.cli.connect import mount_finder
from agentfsd.cli.output import printing
from agentfsd.state import state_directory

_PATIENCE_S, _LOOK_S = 60.0, 0.01


@click.command()
@mount_option
def restart(named: str | None) -> None:
    """Replace the daemon of a mount, for an update.

    The next daemon runs the installed version. Nothing is unmounted, and no program needs to end: requests to the mount wait a
    moment, and the next daemon answers them. If the next daemon cannot start, the present one goes on.

    \b
    Example:
      uv tool upgrade agentfsd && agentfsd restart -m ~/work
    """
    mount, daemon = converse(lambda: mount_finder.find(named))
    if mount.record is None:
        raise Failure(f"the daemon of {mount.mountpoint} is not yours", "its owner can replace it")
    with refusals(), daemon:
        daemon.restart()
    after = _next(mount.record)
    with refusals(), converse(lambda: mount_finder.find(after.mountpoint))[1] as daemon:
        printing.say(f"{after.mountpoint} is served by process {after.pid}, version {daemon.hello.daemon}")


def _next(before: DaemonRecord) -> DaemonRecord:
    """Wait for the record of the next daemon."""
    state = state_directory.StateDirectory(before.state)
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        record = state.last_record()
        if record is not None and (record.pid, record.start_ticks) != (before.pid, before.start_ticks) and record.serves():
            return record
        time.sleep(_LOOK_S)
    raise Failure("the daemon has not been replaced yet", f"its log is {state.log}")
