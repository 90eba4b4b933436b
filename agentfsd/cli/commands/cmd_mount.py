"""The command `mount`, which mounts an overlay."""

import contextlib
import os

import click

from agentfs_client.control import ControlClient
from agentfs_client.errors import AgentFSError
from agentfsd.backstore.known_backstores import BACKSTORES, DEFAULT, describe
from agentfsd.cli.connect import daemon_start
from agentfsd.cli.connect.daemon_end import await_end
from agentfsd.cli.output import printing
from agentfsd.state import state_directory
from agentfsd.state.daemon_config import MIB, DaemonConfig, LogFormat, SessionKind


@click.command()
@click.argument("lower", type=click.Path())
@click.argument("mountpoint", type=click.Path())
@click.option("--state", metavar="DIR", help="The directory that keeps branches and snapshots; by default each LOWER has one.")
@click.option("--backstore", type=click.Choice(list(BACKSTORES)), default=DEFAULT.name, show_default=True,
              help=f"Where contents are kept. {describe()}.")  # fmt: skip
@click.option("--native-snapshots/--no-native-snapshots", default=True, show_default=True,
              help="Share blocks (reflinks) where the file system supports it, or always copy.")  # fmt: skip
@click.option("--ramdisk-size", metavar="MIB", type=click.IntRange(min=16), default=1024, show_default=True,
              help="Ramdisk backstore: its maximum size. It takes memory only as it fills.")  # fmt: skip
@click.option("--memory-limit", metavar="MIB", type=click.IntRange(min=1), default=512, show_default=True,
              help="Memory backstore: beyond this total, contents go to disk.")  # fmt: skip
@click.option("--memory-object-limit", metavar="MIB", type=click.IntRange(min=1), default=64, show_default=True,
              help="Memory backstore: files larger than this go to disk.")  # fmt: skip
@click.option("--base", type=click.Choice(["live", "frozen"]), default="live", show_default=True,
              help="What main and new branches show in files that they have not changed: LOWER as it is at each moment, or as it "
              "is now, until `rebase`.")  # fmt: skip
@click.option("--allow-other", is_flag=True, help="Let other users access the mount; permissions are checked.")
@click.option("-o", "options", metavar="OPTION[,OPTION]", multiple=True,
              help="Options of mount(8): ro, noexec, noatime; root may give suid and dev (default: nosuid,nodev).")  # fmt: skip
@click.option("--session", type=click.Choice(["auto", "pyfuse3", "native"]), default="auto", show_default=True,
              help="The FUSE implementation; auto tries native, then pyfuse3.")  # fmt: skip
@click.option("--settings", metavar="FILE", help="A file of lines NAME = VALUE, read at the start and at SIGHUP: settings of "
              "`policy`, settings of `interpose` with the prefix interpose., and log.level.")  # fmt: skip
@click.option("--metrics", metavar="ADDRESS", default="",
              help="Serve Prometheus metrics at unix:/PATH or 127.0.0.1:PORT (needs agentfsd[metrics]).")  # fmt: skip
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True,
              envvar="AGENTFS_LOG_FORMAT", show_envvar=True, help="Format of the daemon's log, STATE/daemon.log.")  # fmt: skip
@click.option("--restart/--no-restart", "restarts", default=True, show_default=True,
              help="If the daemon is killed, start the next one at once; programs in the mount wait for it.")  # fmt: skip
@click.option("--foreground", is_flag=True, help="Stay in the foreground, and log to the terminal or the journal.")
def mount(
    lower: str, mountpoint: str, state: str | None, backstore: str, native_snapshots: bool, ramdisk_size: int,
    memory_limit: int, memory_object_limit: int, base: str, allow_other: bool, options: tuple[str, ...], session: SessionKind,
    settings: str | None, metrics: str, log_format: LogFormat, restarts: bool, foreground: bool,
) -> None:  # fmt: skip
    """Mount an overlay of LOWER on MOUNTPOINT.

    Writes to the mount never change LOWER. The command returns when the mount is ready. MOUNTPOINT may be LOWER itself, or lie
    inside it.

    \b
    Example:
      agentfsd mount ~/project ~/work
      agentfsd run -m ~/work -b fix-1 --new -- make
    """
    chosen = state_directory.StateDirectory(os.path.abspath(state)) if state else state_directory.default_state(lower)
    config = DaemonConfig(
        lower=os.path.abspath(lower), mountpoint=os.path.abspath(mountpoint), state=chosen.path,
        backstore=backstore, prefer_native_snapshots=native_snapshots, ramdisk_size_bytes=ramdisk_size * MIB,
        allow_other=allow_other, foreground=foreground, session=session, frozen=base == "frozen",
        settings=os.path.abspath(settings) if settings else "",
        metrics=metrics, log_format=log_format, restarts=restarts,
        mount_options=tuple(option for group in options for option in group.split(",") if option),
        memory_total_limit_bytes=memory_limit * MIB, memory_object_limit_bytes=memory_object_limit * MIB,
    )  # fmt: skip
    _end_idle_one_step(chosen)
    if foreground:
        daemon_start.become(config)
    ready = daemon_start.start(config)
    printing.say(f"{config.lower} is mounted on {config.mountpoint}")
    printing.say(f"next: agentfsd run -m {config.mountpoint} -b NAME --new -- COMMAND   (a command in a branch of its own)")
    if ready.notice:
        printing.note(ready.notice)


def _end_idle_one_step(state: state_directory.StateDirectory) -> None:
    """End the idle daemon of a one-step overlay of the same workspace, which would hold the state until its time is up."""
    record = state.last_record()
    if record is not None and record.hidden and record.alive():
        with contextlib.suppress(AgentFSError), ControlClient.connect(record.socket) as daemon:
            daemon.shutdown()
            await_end(record, 0)
