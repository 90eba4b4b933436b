"""The config with which a daemon starts, and every check of it that needs no mount and changes nothing.

It only reads paths and the mount table.
"""

import errno
import importlib.util
import os
import shlex
import stat
from typing import Literal, NamedTuple

import msgspec

from agentfs_host import mount_table
from agentfs_host.mount_table import is_within as is_within
from agentfsd.backstore.known_backstores import BACKSTORES, DEFAULT
from agentfsd.domain_errors import Refusal, invalid
from agentfsd.state import state_directory

MIB = 1 << 20

# Without them a mount is rw,nosuid,nodev,exec. Only root may set those that grant privileges to the owners of files.
MOUNT_OPTIONS = frozenset({"ro", "rw", "suid", "nosuid", "dev", "nodev", "exec", "noexec", "atime", "noatime", "sync", "dirsync"})
_ROOT_ONLY = ("suid", "dev")


SessionKind = Literal["auto", "pyfuse3", "native"]


LogFormat = Literal["text", "json"]


class DaemonConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The config of one daemon, as JSON on its way from the command line. All paths are absolute."""

    lower: str
    mountpoint: str
    state: str
    backstore: str = DEFAULT.name  # of known_backstores
    prefer_native_snapshots: bool = True  # share blocks where the file system can; else every copy is one
    ramdisk_size_bytes: int = 1024 * MIB
    memory_object_limit_bytes: int = 64 * MIB  # a larger object spills to STATE/spill
    memory_total_limit_bytes: int = 512 * MIB
    allow_other: bool = False
    mount_options: tuple[str, ...] = ()  # of mount(8), such as "suid"; see MOUNT_OPTIONS
    foreground: bool = False
    session: SessionKind = "auto"
    idle_exit_s: float = 0.0  # 0: never
    settings: str = ""  # a file of settings, read at the start and at each reload; see daemon/settings_file.py
    metrics: str = ""  # where they are served: see parse_address; "": nowhere
    log_format: LogFormat = "text"
    replaces_dead: bool = False  # a killed daemon's mount is at the mount point, and may hide the lower
    restarts: bool = True  # if it is killed, the next daemon starts by itself and goes on with the mount
    frozen: bool = False  # main shows the real directory as it is at the start, unless it has a frozen base already
    hidden: bool = False  # the one-step overlay: mounted at STATE/mnt, seen through private namespaces only


def descriptor(config: DaemonConfig) -> int:
    """Return a descriptor of a file without a name that has the config, at its start: a daemon reads it there."""
    fd = os.memfd_create("agentfsd-config")
    os.write(fd, msgspec.json.encode(config))
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def check(config: DaemonConfig) -> DaemonConfig:
    """Return the config with resolved paths. Refusal when its values contradict each other or cannot work."""
    for path in (config.lower, config.mountpoint, config.state):
        _check_text(path)
    resolved = msgspec.structs.replace(
        config,
        lower=mount_table.resolved(config.lower),
        mountpoint=mount_table.resolved(config.mountpoint),
        state=os.path.realpath(config.state),
    )
    _check_backstore(resolved.backstore)
    _check_options(resolved.mount_options)
    _check_metrics(resolved.metrics)
    if not resolved.replaces_dead:
        _check_mountpoint(resolved.mountpoint)
    if not (resolved.replaces_dead and is_within(resolved.lower, resolved.mountpoint)):
        _check_directory(resolved.lower, "workspace", "name the directory that is to be overlaid")
    _check_overlap(resolved)
    if not resolved.replaces_dead:
        _check_state(resolved.state)
    _check_settings(resolved)
    return resolved


def _check_backstore(name: str) -> None:
    if name not in BACKSTORES:
        raise invalid(f"there is no backstore {name!r}", f"there are {', '.join(BACKSTORES)}")


def _check_options(options: tuple[str, ...]) -> None:
    for option in options:
        if option not in MOUNT_OPTIONS:
            known = ", ".join(sorted(MOUNT_OPTIONS))
            raise Refusal(errno.EINVAL, "bad-option", f"there is no mount option {option!r}", f"there are {known}")
        if option in _ROOT_ONLY and os.geteuid() != 0:
            raise Refusal(errno.EPERM, "root-only", f"only root may mount with {option!r}", "leave it out, or mount as root")


class Address(NamedTuple):
    """The path of a Unix socket, or a host of the loopback and a port."""

    path: str
    host: str = ""
    port: int = 0

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Parse "unix:/PATH", "127.0.0.1:PORT" or "[::1]:PORT". Refusal for an address that other machines could reach."""
    if text.startswith("unix:/"):
        return Address(text[len("unix:") :])
    import ipaddress  # which every command would wait for

    host, _, port = text.rpartition(":")
    host = "127.0.0.1" if host == "localhost" else host.removeprefix("[").removesuffix("]")
    try:
        if not 0 <= int(port) <= 65535:
            raise ValueError
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        raise invalid(f"{text!r} is not an address for metrics", "give unix:/PATH or 127.0.0.1:PORT", "bad-address") from None
    if not is_loopback:
        message = f"metrics are not served at {host}: whoever reaches this machine could read them"
        raise invalid(message, "give unix:/PATH or 127.0.0.1:PORT, and let a proxy of yours do the rest", "bad-address")
    return Address("", host, int(port))


def _check_metrics(address: str) -> None:
    if not address:
        return
    parse_address(address)
    if importlib.util.find_spec("prometheus_client") is None:
        message = "metrics need prometheus_client, which is not installed"
        raise Refusal(errno.ENOSYS, "no-metrics", message, "pip install 'agentfsd[metrics]'")


def _check_text(path: str) -> None:
    try:
        path.encode()
    except UnicodeEncodeError:
        raise Refusal(
            errno.EINVAL, "bad-path", f"the path {os.fsencode(path)!r} is not valid UTF-8", "rename the directory"
        ) from None


def _check_directory(path: str, role: str, where_missing: str) -> None:
    try:
        mode = os.stat(path).st_mode
    except OSError as exc:
        hint = where_missing if exc.errno == errno.ENOENT else ""
        raise Refusal(exc.errno or errno.EIO, "bad-path", f"cannot use {path} as the {role}: {exc.strerror}", hint) from None
    if not stat.S_ISDIR(mode):
        raise Refusal(errno.ENOTDIR, "bad-path", f"the {role} {path} is not a directory")


def _check_mountpoint(mountpoint: str) -> None:
    mounted = mount_table.mount_at(mountpoint)
    if mounted is not None and mounted.fstype == mount_table.FSTYPE:
        raise Refusal(
            errno.EBUSY,
            "already-mounted",
            f"{mountpoint} is an agentfsd mount already",
            f"'agentfsd umount {mountpoint}' first, or choose another mount point",
        )
    _check_directory(mountpoint, "mount point", f"mkdir -p {shlex.quote(mountpoint)}")


def _check_state(state: str) -> None:
    """Refuse a directory in which other users can write: they could put contents of their own in the place of a branch's.

    A group is no other user where its number is its only member's, as many distributions create users.
    """
    try:
        found = os.stat(state)
    except FileNotFoundError:
        return  # it will be created for its owner alone
    is_private = found.st_gid == found.st_uid
    if found.st_mode & (stat.S_IWOTH if is_private else stat.S_IWOTH | stat.S_IWGRP):
        message = f"others can write in the state directory {state} (mode {stat.S_IMODE(found.st_mode):04o})"
        raise Refusal(errno.EPERM, "open-state", message, f"chmod go-w {shlex.quote(state)}, or name another with --state")


def _check_settings(config: DaemonConfig) -> None:
    """Refuse a settings file inside the mount: the daemon would wait for itself, and after a kill for nobody."""
    if config.settings and is_within(os.path.realpath(config.settings), config.mountpoint):
        message = f"the settings in {config.settings} lie inside the mount point {config.mountpoint}"
        raise Refusal(errno.EINVAL, "bad-layout", message, "keep them elsewhere, such as in /etc/agentfsd or ~/.config/agentfsd")


def _check_overlap(config: DaemonConfig) -> None:
    lower, mountpoint, state = config.lower, config.mountpoint, config.state
    elsewhere = "give another --state DIR (or set AGENTFS_STATE_HOME)"
    problem = ""
    if is_within(state, lower):
        problem = f"the state directory {state} lies inside the workspace {lower}"
    elif is_within(lower, state):
        problem = f"the workspace {lower} lies inside the state directory {state}"
    elif is_within(state, mountpoint):
        problem = f"the state directory {state} lies inside the mount point {mountpoint}"
    elif is_within(mountpoint, state) and mountpoint != state_directory.StateDirectory(state).hidden_mountpoint:
        problem = f"the mount point {mountpoint} lies inside the state directory {state}"
    if problem:
        raise Refusal(errno.EINVAL, "bad-layout", problem, elsewhere)
