"""Read a caller's file permissions from /proc: its groups, its umask, and whether it has root's capabilities.

It never knows a request or a file.
"""

import os
from collections.abc import Iterable

from agentfsd.core.permissions import Credentials
from agentfsd.types import Caller

_CAP_DAC_OVERRIDE = 1 << 1
_DEFAULT_UMASK = 0o022


def credentials_of(caller: Caller, groups: Iterable[int] | None = None) -> Credentials:
    """Return a caller's credentials. Fields that /proc does not show get their defaults.

    *groups*: the supplementary groups, when they are known already.
    """
    fields = _status(caller.pid)
    if groups is None:
        groups = map(int, fields.get("Groups", "").split())
    umask = _umask(fields)
    all_groups, privileged = frozenset({caller.gid, *groups}), _is_privileged(caller, fields)
    return Credentials(caller.uid, caller.gid, all_groups, privileged, _DEFAULT_UMASK if umask is None else umask)


def umask_of(caller: Caller) -> int | None:
    """Return a caller's current umask; None when /proc does not show it."""
    return _umask(_status(caller.pid))


def _umask(fields: dict[str, str]) -> int | None:
    return int(fields["Umask"], 8) if "Umask" in fields else None


def _is_privileged(caller: Caller, fields: dict[str, str]) -> bool:
    """Root ignores permission bits, unless it has dropped CAP_DAC_OVERRIDE or is root only in its own user namespace."""
    if caller.uid != 0:
        return False
    if not fields:
        return True
    if not int(fields.get("CapEff", "0"), 16) & _CAP_DAC_OVERRIDE:
        return False
    try:
        return os.stat(f"/proc/{caller.pid}/ns/user").st_ino == os.stat("/proc/self/ns/user").st_ino
    except OSError:  # we may not look at the namespaces of the real root
        return True


def _status(pid: int) -> dict[str, str]:
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            return {name: value.strip() for name, _, value in (line.partition(":") for line in file)}
    except OSError:
        return {}
