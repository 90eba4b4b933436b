"""mount, umount, status."""

import contextlib
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import click

from agentfs_client import locate, registry, wire
from agentfs_client.control import ControlClient
from agentfs_client.errors import AgentFSError, DaemonGoneError
from agentfs_host import mount_table
from agentfsd.backstore import ramdisk
from agentfsd.cli import shell_completion
from agentfsd.cli.command_base import (
    EXIT_REFUSED,
    PATIENCE_S,
    Failure,
    answering,
    converse,
    json_option,
    mount_option,
    plain,
    refusals,
)
from agentfsd.cli.connect import daemon_start, mount_finder
from agentfsd.cli.output import printing
from agentfsd.control import status_text
from agentfsd.linux import mounts, occupants
from agentfsd.state import state_directory
from agentfsd.state.daemon_config import MIB, BackstoreKind, DaemonConfig, LogFormat, SessionKind

_UMOUNT_TIMEOUT_S = 30.0
_SAY_AFTER_S = 2.0
_LINGER_S = 0.5


@click.command()
@click.argument("lower", type=click.Path())
@click.argument("mountpoint", type=click.Path())
@click.option("--state", metavar="DIR", help="Where branches and snapshots are kept; by default one place for each LOWER.")
@click.option("--backstore", type=click.Choice(["hostfs", "memory", "ramdisk"]), default="hostfs", show_default=True,
              help="Where contents go: files in the state directory, the daemon's memory, or a tmpfs, which a daemon that is "
              "killed leaves to the next one (root; else memory).")  # fmt: skip
@click.option("--native-snapshots/--no-native-snapshots", default=True, show_default=True,
              help="Share blocks (reflinks) where the file system can; else copy.")  # fmt: skip
@click.option("--ramdisk-size", metavar="MIB", type=click.IntRange(min=16), default=1024, show_default=True,
              help="Ramdisk backstore: what fits in it; memory is taken as it is filled.")  # fmt: skip
@click.option("--memory-limit", metavar="MIB", type=click.IntRange(min=1), default=512, show_default=True,
              help="Memory backstore: above this, contents go to disk.")  # fmt: skip
@click.option("--memory-object-limit", metavar="MIB", type=click.IntRange(min=1), default=64, show_default=True,
              help="Memory backstore: a larger file goes to disk.")  # fmt: skip
@click.option("--allow-other", is_flag=True, help="Other users may enter; permissions are checked.")
@click.option("-o", "options", metavar="OPTION[,OPTION]", multiple=True,
              help="Options of mount(8): ro, noexec, noatime; root may say suid,dev, too (default: nosuid,nodev).")  # fmt: skip
@click.option("--session", type=click.Choice(["auto", "pyfuse3", "native"]), default="auto", show_default=True,
              help="What speaks with the kernel; auto takes native and falls back by itself.")  # fmt: skip
@click.option("--settings", metavar="FILE", help="Lines NAME = VALUE, read at the start and at SIGHUP: the names of `policy`, "
              "those of `interpose` after interpose., and log.level.")  # fmt: skip
@click.option("--metrics", metavar="ADDRESS", default="",
              help="Serve Prometheus metrics at unix:/PATH or 127.0.0.1:PORT (needs agentfsd[metrics]).")  # fmt: skip
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True,
              envvar="AGENTFS_LOG_FORMAT", show_envvar=True, help="Of the daemon's log, STATE/daemon.log.")  # fmt: skip
@click.option("--foreground", is_flag=True, help="Stay, and log to the terminal or the journal.")
def mount(
    lower: str, mountpoint: str, state: str | None, backstore: BackstoreKind, native_snapshots: bool, ramdisk_size: int,
    memory_limit: int, memory_object_limit: int, allow_other: bool, options: tuple[str, ...], session: SessionKind,
    settings: str | None, metrics: str, log_format: LogFormat, foreground: bool,
) -> None:  # fmt: skip
    """Mount an overlay of the directory LOWER on MOUNTPOINT. LOWER itself is never written.

    Returns when the mount is ready. MOUNTPOINT may be LOWER itself, or lie inside it.

    \b
    Example:
      agentfsd mount ~/project ~/work
      agentfsd run -m ~/work -b fix-1 --new -- make
    """
    chosen = state_directory.StateDirectory(os.path.abspath(state)) if state else state_directory.default_state(lower)
    orders = DaemonConfig(
        lower=os.path.abspath(lower), mountpoint=os.path.abspath(mountpoint), state=chosen.path,
        backstore=backstore, prefer_native_snapshots=native_snapshots, ramdisk_size_bytes=ramdisk_size * MIB,
        allow_other=allow_other, foreground=foreground, session=session,
        settings=os.path.abspath(settings) if settings else "",
        metrics=metrics, log_format=log_format,
        mount_options=tuple(option for group in options for option in group.split(",") if option),
        memory_total_limit_bytes=memory_limit * MIB, memory_object_limit_bytes=memory_object_limit * MIB,
    )  # fmt: skip
    _end_idle_one_step(chosen)
    if foreground:
        daemon_start.become(orders)
    ready = daemon_start.start(orders)
    printing.say(f"{orders.lower} is mounted on {orders.mountpoint}")
    printing.say(f"next: agentfsd run -m {orders.mountpoint} -b NAME --new -- COMMAND   (a command in a branch of its own)")
    if ready.notice:
        printing.note(ready.notice)


def _end_idle_one_step(state: state_directory.StateDirectory) -> None:
    """A one-step overlay of the same workspace that only waits for its time to be up makes way."""
    record = state.last_record()
    if record is not None and record.hidden and record.alive():
        with contextlib.suppress(AgentFSError), ControlClient.connect(record.socket) as daemon:
            daemon.shutdown()
            _await_end(record, 0)


@click.command()
@click.argument("mountpoint", type=click.Path(), shell_complete=shell_completion.mounts)
@click.option("--lazy", is_flag=True, help="Also while it is in use: the daemon ends with its last user.")
def umount(mountpoint: str, lazy: bool) -> None:
    """Unmount, and end the daemon. Branches and snapshots stay in the state directory (not those in memory or on a ramdisk).

    \b
    Example:
      agentfsd umount ~/work
    """
    resolved = mount_table.resolved(mountpoint)
    record = next((found for found in registry.live_daemons() if resolved in (found.mountpoint, found.lower)), None)
    if record is None:
        _umount_without_daemon(resolved, lazy)
        return
    mounted = mount_table.mount_at(record.mountpoint)
    device = mounted.device if mounted is not None else 0
    with contextlib.suppress(DaemonGoneError), answering(record), ControlClient.connect(record.socket, PATIENCE_S) as daemon:
        daemon.shutdown(force=lazy)
    if lazy:
        _await_detached(record, device)
    else:
        _await_end(record, device)
    printing.say(f"unmounted {record.mountpoint}")


def _await_detached(record: registry.DaemonRecord, device: int) -> None:
    """Until the mount is out of sight, and a moment more for a daemon that nobody uses."""
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


def _umount_without_daemon(mountpoint: str, lazy: bool) -> None:
    mounted, left = mount_table.mount_at(mountpoint), _ramdisk_left(mountpoint)
    is_ours = mounted is not None and mounted.fstype == mount_table.FSTYPE
    if not is_ours and left is None:
        raise Failure(f"{mountpoint} is no agentfsd mount", "`agentfsd status` shows where one is")
    if mounted is not None and is_ours:
        mounts.unmount(mountpoint, lazy or mount_table.is_dead(mounted))
        printing.say(f"unmounted {mountpoint}")
    if left is not None:
        with state_directory.locked(left):
            ramdisk.take_away(left.ramdisk)
        printing.say(f"unmounted the ramdisk {left.ramdisk}, which a killed daemon had left")


def _ramdisk_left(mountpoint: str) -> state_directory.StateDirectory | None:
    """The state of a dead daemon that was mounted there and had a ramdisk."""
    for place in ramdisk.all_places():
        state = state_directory.StateDirectory(os.path.dirname(place))
        record = state.last_record()
        if record is not None and record.mountpoint == mountpoint and not record.alive():
            return state
    return None


def _await_end(record: registry.DaemonRecord, device: int) -> None:
    """Who is still in the mount, which the kernel then keeps, is named after a moment."""
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


@click.command()
@mount_option
@json_option
def status(named: str | None, as_json: bool) -> None:
    """What is mounted, its branches, and who is in them.

    \b
    Example:
      agentfsd status
      agentfsd status --json -m ~/work
    """
    if named is None and not os.environ.get("AGENTFS_MOUNT"):
        live = registry.live_daemons()
        if len(live) > 1 and mount_finder.around(os.getcwd(), live, revive=False) is None:
            _show_all(live, as_json)
            return
    found = _status_of(lambda: mount_finder.find(named, revive=True))
    if as_json:
        printing.as_json(plain(found))
    else:
        printing.say_ready(status_text.status(found, printing.width()).rstrip("\n"))


def _status_of(find: Callable[[], locate.Mount]) -> wire.StatusReply:
    with answering(find().record):
        _, daemon = converse(find, PATIENCE_S)
        with daemon:
            return daemon.status()


def _show_all(live: list[registry.DaemonRecord], as_json: bool) -> None:
    """Those that answer, and then a sentence about each that does not, with exit code 1."""
    with ThreadPoolExecutor(max_workers=len(live)) as threads:
        asked = list(threads.map(_answer_of, live))
    found = [answer for answer in asked if not isinstance(answer, click.ClickException)]
    if as_json:
        printing.as_json([plain(one) for one in found])
    elif found:
        printing.say_ready("\n\n".join(status_text.status(one, printing.width()).rstrip("\n") for one in found))
    silent = [answer for answer in asked if isinstance(answer, click.ClickException)]
    for failure in silent:
        failure.show()
    if silent:
        click.get_current_context().exit(EXIT_REFUSED)


def _answer_of(record: registry.DaemonRecord) -> wire.StatusReply | click.ClickException:
    try:
        with refusals():
            return _status_of(lambda: locate.Mount(record.mountpoint, record))
    except click.ClickException as exc:
        return exc
