"""The daemon's process: it reads its config from one descriptor, and reports on another whether the mount answers."""

import argparse
import contextlib
import errno
import faulthandler
import logging
import logging.handlers
import os
import signal
import sys

import msgspec
import trio
import trio.lowlevel

from agentfs_client import registry
from agentfs_host import mount_table
from agentfsd.backstore.free_space import wait_for_room
from agentfsd.daemon import state_contents
from agentfsd.daemon.assembly import Daemon
from agentfsd.daemon.inheritance import Inheritance
from agentfsd.daemon.shutdown import ConnectionAborted
from agentfsd.daemon.state_contents import StateContents
from agentfsd.domain_errors import NO_ROOM, Refusal
from agentfsd.escape import printable
from agentfsd.fuse.native import fuse_device
from agentfsd.linux import mounts
from agentfsd.process import daemon_log, descriptors, readiness
from agentfsd.process.kept_descriptors import KeptDescriptors
from agentfsd.process.readiness import Readiness
from agentfsd.process.service_manager import ServiceManager
from agentfsd.state import daemon_config, daemon_records, state_directory
from agentfsd.state.daemon_config import DaemonConfig

log = logging.getLogger("agentfsd")

_FULL_AGAIN_S = 15.0  # slow enough for the units' StartLimit, so that the service manager never gives up


def serve(config: DaemonConfig, ready: readiness.ReadinessPipe, inherited: Inheritance | None = None) -> None:
    """Run a daemon from mount to unmount. Refusal or OSError when it cannot start."""
    inherited = inherited or Inheritance(KeptDescriptors())
    is_resumed = inherited.kept.is_resumed
    if not is_resumed:  # else nobody answers at the mount point until we do
        config = daemon_config.check(msgspec.structs.replace(config, replaces_dead=mounts.has_dead(config.mountpoint)))
    state = state_directory.StateDirectory(config.state)
    with state_directory.locked(state, lambda holder: is_resumed or mount_table.mount_at(holder.mountpoint) is None):
        daemon_log.start_log(config, state)
        _stand_clear(config)
        with state_contents.opened(config, state) as held:
            _live(config, held, ready, inherited)


def _live(config: DaemonConfig, held: StateContents, ready: readiness.ReadinessPipe, inherited: Inheritance) -> None:
    daemon = Daemon(config, held, inherited)
    record = daemon.record()
    try:
        daemon.begin()
        descriptors.collect_seldom()
        trio.run(daemon.run, ready)
    except ConnectionAborted:
        _end(daemon, record)
        raise
    except BaseException as exc:
        if daemon.is_succeeded:  # by another, which goes on with the mount: nothing may be closed in order
            _report(exc, ready)
            logging.shutdown()
            os._exit(1)
        _end(daemon, record)
        raise
    _end(daemon, record)


def _end(daemon: Daemon, record: registry.DaemonRecord) -> None:
    daemon_records.withdraw(record)
    daemon.close()
    with contextlib.suppress(FileNotFoundError):
        os.unlink(record.socket)
    log.info("unmounted %s", record.mountpoint)


def _read_config(fd: int) -> DaemonConfig:
    with open(fd, "rb") as file:
        return msgspec.json.decode(file.read(), type=DaemonConfig)


def _stand_clear(config: DaemonConfig) -> None:
    """Avoid file lookups beneath the mount point once it is mounted: the daemon would wait for its own answer."""
    os.chdir("/")
    sys.path[:] = [path for path in sys.path if not mount_table.is_within(os.path.realpath(path), config.mountpoint)]
    sys.path_importer_cache.clear()


def main() -> int:
    parser = argparse.ArgumentParser(prog="agentfsd.daemon", description="started by `agentfsd mount`")
    parser.add_argument("--config-fd", type=int, required=True)
    parser.add_argument("--ready-fd", type=int, default=-1)
    parser.add_argument("--kept-fd", type=int, default=-1, help="a socket to whoever has what is taken over")
    parser.add_argument("--keeper-pid", type=int, default=0, help="the process that keeps it for the next daemon")
    parser.add_argument("--waits", action="store_true", help="replace a daemon that serves")
    arguments = parser.parse_args()
    ready, config = readiness.ReadinessPipe(arguments.ready_fd), None
    os.umask(0o077)
    for fd in (arguments.config_fd, arguments.ready_fd, arguments.kept_fd):
        if fd >= 0:
            os.set_inheritable(fd, False)
    descriptors.raise_descriptor_limit()
    descriptors.collect_seldom()  # programs may be waiting for what is loaded now
    faulthandler.enable()  # a service manager's SIGABRT then logs where the daemon hung
    signal.signal(signal.SIGIO, signal.SIG_IGN)  # a process opened a file on which we hold a lease to find out whether it is open
    try:
        config = _read_config(arguments.config_fd)
        if not config.foreground:
            descriptors.keep_only(arguments.ready_fd, arguments.kept_fd)
        serve(config, ready, Inheritance.receive(arguments.kept_fd, arguments.keeper_pid, config.state, waits=arguments.waits))
    except Exception as exc:  # noqa: BLE001 - whoever started us is told every reason
        _report(exc, ready)
        if config is not None:
            _make_way(config, ServiceManager(awaited=config.foreground), exc)
        return 1
    finally:
        descriptors.let_go_of_output()
    return 0


def _make_way(config: DaemonConfig, manager: ServiceManager, exc: Exception) -> None:
    """For the daemon that a service manager starts next. Until then nobody shall write to what lies beneath."""
    if not manager.listens:
        return
    before = state_directory.StateDirectory(config.state).last_record()
    if config.replaces_dead or (before is not None and before.pid == os.getpid()):
        there = mount_table.mount_at(config.mountpoint)
        if there is None or there.fstype != mount_table.FSTYPE:
            fuse_device.mount_dead(config.mountpoint, config.allow_other)
    if isinstance(exc, OSError) and exc.errno in NO_ROOM:
        manager.status(f"no room is left in {config.state}: it is tried again every {_FULL_AGAIN_S:.0f} s")
        wait_for_room(config.state, _FULL_AGAIN_S)


def _report(exc: BaseException, ready: readiness.ReadinessPipe) -> None:
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    code, hint = (exc.code, exc.hint) if isinstance(exc, Refusal) else ("failed", "")
    message = f"{type(exc).__name__}: {exc}"
    if isinstance(exc, OSError):
        message = f"{os.fsdecode(exc.filename)}: {exc.strerror}" if exc.filename else exc.strerror or str(exc)
    number = exc.errno if isinstance(exc, OSError) and exc.errno else errno.EIO
    if logging.getLogger().handlers:
        log.error("%s%s", message, f" ({hint})" if hint else "", exc_info=None if isinstance(exc, OSError) else exc)
    elif not ready.awaited:
        sys.stderr.write(f"agentfsd: {printable(message)}\n" + (f"  hint: {printable(hint)}\n" if hint else ""))
    ready.tell(Readiness(error=message, errno=number, code=code, hint=hint))


if __name__ == "__main__":
    sys.exit(main())
