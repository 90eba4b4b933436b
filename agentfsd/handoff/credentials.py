"""What a caller may do with files, as /proc says: its groups, its umask, and whether it has root's capabilities.

It never knows a request or a file.
"""

import os
from collections.abc import Iterable

from agentfsd.core.permissions import Credentials
from agentfsd.types import Caller

_CAP_DAC_OVERRIDE = 1 << 1
_DEFAULT_UMASK = 0o022


def credentials_of(caller: Caller, groups: Iterable[int] | None = None) -> Credentials:
    """*groups*: the supplementary ones, where they are known already. What /proc does not tell is left out."""
    told = _status(caller.pid)
    if groups is None:
        groups = map(int, told.get("Groups", "").split())
    umask = _umask(told)
    all_groups, privileged = frozenset({caller.gid, *groups}), _is_privileged(caller, told)
    return Credentials(caller.uid, caller.gid, all_groups, privileged, _DEFAULT_UMASK if umask is None else umask)


def umask_of(caller: Caller) -> int | None:
    """As it is now; None where /proc does not tell."""
    return _umask(_status(caller.pid))


def _umask(told: dict[str, str]) -> int | None:
    return int(told["Umask"], 8) if "Umask" in told else None


def _is_privileged(caller: Caller, told: dict[str, str]) -> bool:
    """Root passes over permissions unless it has given that right up, or has it in a user namespace of its own only."""
    if caller.uid != 0:
        return False
    if not told:
        return True
    if not int(told.get("CapEff", "0"), 16) & _CAP_DAC_OVERRIDE:
        return False
    try:
        return os.stat(f"/proc/{caller.pid}/ns/user").st_ino == os.stat("/proc/self/ns/user").st_ino
    except OSError:  # root's are not ours to look at
        return True


def _status(pid: int) -> dict[str, str]:
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            return {name: value.strip() for name, _, value in (line.partition(":") for line in file)}
    except OSError:
        return {}
