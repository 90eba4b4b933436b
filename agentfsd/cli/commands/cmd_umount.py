"""The command `umount`, which unmounts an overlay and waits until its daemon has ended."""

import contextlib
import os

import click

from agentfs_client import registry
from agentfs_client.control import ControlClient
from agentfs_client.errors import DaemonGoneError
from agentfs_host import mount_table
from agentfsd.backstore import ramdisk
from agentfsd.cli import shell_completion
from agentfsd.cli.command_base import (
    PATIENCE_S,
    Failure,
    answering,
)
from agentfsd.cli.connect.daemon_end import await_detached, await_end
from agentfsd.cli.output import printing
from agentfsd.linux import mounts
from agentfsd.state import state_directory


@click.command()
@click.argument("mountpoint", type=click.Path(), shell_complete=shell_completion.mounts)
@click.option("--lazy", is_flag=True, help="Unmount even while it is in use; the daemon ends with the last process that uses it.")
def umount(mountpoint: str, lazy: bool) -> None:
    """Unmount an overlay and end its daemon.

    Branches and snapshots stay in the state directory, except those of the backstores memory and ramdisk.

    \b
    Example:
      agentfsd umount ~/work
    """
    resolved = mount_table.resolved(mountpoint)
    record = next((live for live in registry.live_daemons() if resolved in (live.mountpoint, live.lower)), None)
    if record is None:
        _umount_without_daemon(resolved, lazy)
        return
    mounted = mount_table.mount_at(record.mountpoint)
    device = mounted.device if mounted is not None else 0
    with contextlib.suppress(DaemonGoneError), answering(record), ControlClient.connect(record.socket, PATIENCE_S) as daemon:
        daemon.shutdown(force=lazy)
    if lazy:
        await_detached(record, device)
    else:
        await_end(record, device)
    printing.say(f"unmounted {record.mountpoint}")


def _umount_without_daemon(mountpoint: str, lazy: bool) -> None:
    mounted, left = mount_table.mount_at(mountpoint), _ramdisk_left(mountpoint)
    is_ours = mounted is not None and mounted.fstype == mount_table.FSTYPE
    if not is_ours and left is None:
        raise Failure(f"{mountpoint} is not an agentfsd mount", "`agentfsd status` shows where one is")
    if mounted is not None and is_ours:
        if lazy and mount_table.is_silent(mounted):
            mounts.abort(mounted)
        if mount_table.mount_at(mountpoint) == mounted:
            mounts.unmount(mountpoint, lazy or mount_table.is_dead(mounted))
        printing.say(f"unmounted {mountpoint}")
    if left is not None:
        with state_directory.locked(left):
            ramdisk.take_away(left.ramdisk)
        printing.say(f"unmounted the ramdisk {left.ramdisk}, which a killed daemon left behind")


def _ramdisk_left(mountpoint: str) -> state_directory.StateDirectory | None:
    """Return the state of a dead daemon that was mounted there and left a ramdisk."""
    for place in ramdisk.all_places():
        state = state_directory.StateDirectory(os.path.dirname(place))
        record = state.last_record()
        if record is not None and record.mountpoint == mountpoint and not record.alive():
            return state
    return None
