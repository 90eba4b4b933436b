"""The helper /sbin/mount.agentfsd, which mount(8) calls for `mount -t agentfsd` and for lines of /etc/fstab.

Source: mount(8), "External helpers"; systemd.mount(5).
"""

import grp
import os
import pwd
import sys
from collections.abc import Callable
from typing import Any

import msgspec

from agentfs_client.errors import AgentFSError
from agentfsd.backstore.known_backstores import BACKSTORES
from agentfsd.cli.connect import daemon_start
from agentfsd.cli.output import printing
from agentfsd.domain_errors import Refusal, invalid
from agentfsd.state import state_directory
from agentfsd.state.daemon_config import MIB, MOUNT_OPTIONS, DaemonConfig

EXIT_USAGE, EXIT_FAILED = 1, 32  # of mount(8)

_USAGE = "usage: mount.agentfsd LOWER MOUNTPOINT [-fnsv] [-o OPTION[,OPTION]...]"
_WITH_VALUE = "oNt"
_SWITCHES = "fnsvr"
# Options for mount(8), fstab and systemd, or that our mounts have anyway. Options that begin with x- or comment= are ignored too.
_NOT_OURS = frozenset({
    "defaults", "auto", "noauto", "nofail", "_netdev", "user", "nouser", "users", "owner", "group", "async", "relatime", "silent",
    "loud", "default_permissions", "diratime", "nodiratime", "norelatime", "strictatime", "lazytime", "nolazytime", "iversion",
    "noiversion", "mand", "nomand",
})  # fmt: skip
_NOT_OURS_WITH_VALUE = (
    "comment",
    "fsname",
    "subtype",
    "user_id",
    "group_id",
    "rootmode",
    "blksize",
    "max_read",
    "user",
    "helper",
)


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Mount as the arguments say and return the exit code that mount(8) expects."""
    try:
        switches, options, paths = _parsed(arguments)
        if len(paths) != 2:
            raise invalid("it takes a directory and a mount point", _USAGE)
        config, owner = _config(paths[0], paths[1], options, sloppy="s" in switches)
    except Refusal as exc:
        printing.fail(exc.message, exc.hint)
        return EXIT_USAGE
    if "f" in switches:
        return 0
    try:
        owner()
        ready = daemon_start.start(_with_state(config))
    except (Refusal, AgentFSError) as exc:
        printing.fail(exc.message, exc.hint)
        return EXIT_FAILED
    except OSError as exc:
        printing.fail(f"{exc.filename}: {exc.strerror}" if exc.filename else str(exc.strerror or exc))
        return EXIT_FAILED
    if ready.notice:
        printing.note(ready.notice)
    return 0


def _parsed(arguments: list[str]) -> tuple[set[str], list[str], list[str]]:
    """Split the arguments into switches, options and paths, in whatever order they come."""
    switches: set[str] = set()
    options: list[str] = []
    paths: list[str] = []
    left = list(arguments)
    while left:
        argument = left.pop(0)
        if not argument.startswith("-") or argument == "-":
            paths.append(argument)
        elif argument[1:2] in _WITH_VALUE:
            value = argument[2:] or (left.pop(0) if left else "")
            options += [option for option in value.split(",") if option] if argument[1] == "o" else []
        elif argument != "--" and set(argument[1:]) <= set(_SWITCHES):
            switches |= set(argument[1:])
        elif argument != "--":
            raise invalid(f"there is no switch {argument}", _USAGE)
    return switches, options + (["ro"] if "r" in switches else []), paths


def _config(lower: str, mountpoint: str, options: list[str], *, sloppy: bool) -> tuple[DaemonConfig, Callable[[], None]]:
    """Return the daemon's config, and a function that makes this process the mount owner's.

    *sloppy*: ignore unknown options.
    """
    fields: dict[str, Any] = {}
    flags: list[str] = []
    owner = group = ""
    for option in options:
        name, equals, value = option.partition("=")
        if option in MOUNT_OPTIONS:
            flags.append(option)
        elif option == "allow_other":
            fields["allow_other"] = True
        elif option == "remount":
            raise invalid("a mount cannot be changed while it is mounted", "unmount it, then mount it anew")
        elif name == "uid":
            owner = value
        elif name == "gid":
            group = value
        elif equals and name in _VALUES:
            fields |= _VALUES[name](value)
        elif not (sloppy or option in _NOT_OURS or name in _NOT_OURS_WITH_VALUE or name.lower().startswith("x-")):
            known = ", ".join(["allow_other", "uid=", "gid=", *(f"{name}=" for name in _VALUES), *sorted(MOUNT_OPTIONS)])
            raise invalid(f"there is no option {option!r}", f"there are {known}")
    uid, gid, name = _who(owner, group)
    config = DaemonConfig(
        lower=os.path.abspath(lower), mountpoint=os.path.abspath(mountpoint), mount_options=tuple(flags),
        **({"state": ""} | fields),
    )  # fmt: skip
    return config, lambda: _become(uid, gid, name)


def _path(field: str) -> Callable[[str], dict[str, Any]]:
    def parse(value: str) -> dict[str, Any]:
        if not os.path.isabs(value):
            raise invalid(f"{field}={value} is not an absolute path", "mount(8) may run in any directory")
        return {field: value}

    return parse


def _word(field: str, *words: str) -> Callable[[str], dict[str, Any]]:
    def parse(value: str) -> dict[str, Any]:
        if value not in words:
            raise invalid(f"there is no {field} {value!r}", f"there are {', '.join(words)}")
        return {field: value}

    return parse


def _mib(field: str) -> Callable[[str], dict[str, Any]]:
    def parse(value: str) -> dict[str, Any]:
        if not (value.isascii() and value.isdecimal() and int(value)):
            raise invalid(f"{value!r} is not a number of MiB", "give a number such as 1024")
        return {field: int(value) * MIB}

    return parse


_VALUES: dict[str, Callable[[str], dict[str, Any]]] = {
    "state": _path("state"), "settings": _path("settings"), "backstore": _word("backstore", *BACKSTORES),
    "session": _word("session", "auto", "native", "pyfuse3"), "ramdisk_size": _mib("ramdisk_size_bytes"),
    "memory_limit": _mib("memory_total_limit_bytes"), "memory_object_limit": _mib("memory_object_limit_bytes"),
}  # fmt: skip


def _with_state(config: DaemonConfig) -> DaemonConfig:
    """Fill in the default state directory. Call it after the change of user, whose home it depends on."""
    return config if config.state else msgspec.structs.replace(config, state=state_directory.default_state(config.lower).path)


def _who(owner: str, group: str) -> tuple[int, int, str]:
    """Return uid, gid and name of the user to own the mount, given as names or numbers; by default the current user."""
    if not owner and not group:
        return os.geteuid(), os.getegid(), ""
    try:
        user = pwd.getpwuid(int(owner)) if owner.isdecimal() else pwd.getpwnam(owner) if owner else pwd.getpwuid(os.geteuid())
    except KeyError:
        raise invalid(f"there is no user {owner!r}", "uid= takes a name or a number of a user of this machine") from None
    try:
        gid = int(group) if group.isdecimal() else grp.getgrnam(group).gr_gid if group else user.pw_gid
    except KeyError:
        raise invalid(f"there is no group {group!r}", "gid= takes a name or a number") from None
    return user.pw_uid, gid, user.pw_name


def _become(uid: int, gid: int, name: str) -> None:
    """Change this process to another user, for good. PermissionError if it is not root."""
    if not name:
        return
    os.initgroups(name, gid)
    os.setgid(gid)
    os.setuid(uid)
    for variable in [variable for variable in os.environ if variable.startswith("XDG_")]:
        del os.environ[variable]
    os.environ["HOME"] = pwd.getpwuid(uid).pw_dir
