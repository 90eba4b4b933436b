"""Restrict what a command of `run` may do outside its branch. This module knows no branch and no daemon.

Files are restricted by mounts, not here. Call these functions in a single-threaded process that is about to exec.
"""

import errno
import os
from collections.abc import Callable

from agentfsd.cli.sandbox import locked_mounts, seccomp_filter
from agentfsd.linux import process_syscalls
from agentfsd.linux.process_syscalls import LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET, LANDLOCK_SCOPE_SIGNAL

_FIRST_WITH_SCOPES = 6  # the ABI of Linux 6.12

# What root keeps in strict confinement (capabilities(7)): chown, dac_override, fowner, fsetid, kill, setgid, setuid, setpcap,
# net_bind_service, net_raw, sys_chroot, setfcap. Devices, modules, mounts, the clock, raw memory are not among them.
_KEPT_CAPABILITIES = frozenset({0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 31})


def lock_mounts() -> list[str]:
    """Lock all present mounts, so that nobody in the command can unmount one and see what it covers.

    Only root's commands need this.

    Returns:
        What could not be done: mounts cannot be locked where user namespaces are disabled.
    """
    if os.geteuid() == 0:
        try:
            locked_mounts.lock()
        except OSError as exc:
            return [f"locked mounts, which root cannot unmount: {exc.strerror}"]
    return []


def confine(*, strictly: bool = False) -> list[str]:
    """Keep this process from tracing, entering or signalling processes it has not started, and from typing into its terminal.

    It does as much as the kernel supports. Without CAP_SYS_ADMIN, setuid programs gain nothing afterwards.

    Args:
        strictly: Also cut off the abstract Unix sockets of other processes, and drop most capabilities of root.

    Returns:
        What the kernel does not support.

    Raises:
        OSError: The kernel refuses.
    """
    scopes = LANDLOCK_SCOPE_SIGNAL | (LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET if strictly else 0)
    missing = []
    if not _as_permitted(lambda: _enter_domain(scopes)):
        missing.append("a bar to signals and debuggers: it takes Landlock of Linux 6.12")
    if not _as_permitted(seccomp_filter.install):
        missing.append("a filter of system calls: there is none for this machine")
    if strictly and os.geteuid() == 0:
        _drop_capabilities()
    return missing


def _drop_capabilities() -> None:
    """Drop capabilities from the bounding set, which limits what root gets at exec."""
    with open("/proc/sys/kernel/cap_last_cap") as file:
        last = int(file.read())
    for number in set(range(last + 1)) - _KEPT_CAPABILITIES:
        process_syscalls.drop_capability(number)


def _as_permitted(work: Callable[[], bool]) -> bool:
    try:
        return work()
    except PermissionError:
        process_syscalls.set_no_new_privileges()
        return work()


def refusal(code: int) -> tuple[str, str]:
    """Return the refusal to start a command, for an errno of confine()."""
    if code == errno.E2BIG:
        return "commands of run are within each other 16 deep, and the kernel allows no more", "leave one of them first"
    return f"the command cannot be kept within its branch: {os.strerror(code)}", "'agentfsd doctor' says what this kernel can"


def has_domains() -> bool:
    """Return whether the kernel supports the Landlock domain that confine() needs."""
    return process_syscalls.landlock_abi() >= _FIRST_WITH_SCOPES


def shortcomings() -> list[str]:
    """Return what this kernel cannot restrict, each with the reason. A child process tries it."""
    missing = []
    if not has_domains():
        missing.append("Landlock has no scopes (6.12 and later have them)")
    if not seccomp_filter.is_known_here():
        missing.append(f"no filter of system calls for {os.uname().machine}")
    elif not _works(lambda: _as_permitted(seccomp_filter.install)):
        missing.append("the kernel takes no filter of system calls")
    if os.geteuid() == 0 and not _works(_lock):
        missing.append("root's mounts cannot be locked")
    return missing


def _lock() -> bool:
    locked_mounts.lock()
    return True


def _works(work: Callable[[], bool]) -> bool:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = int(not work())
        except OSError:
            pass
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _enter_domain(scopes: int) -> bool:
    """Enter a Landlock domain that restricts no files.

    Processes may trace only processes of their own domain or of a nested one. Access to /proc/PID/ns, root, cwd, fd and mem
    counts as tracing. If the domain restricted files, the kernel would also forbid all mounting.
    """
    if not has_domains():
        return False
    process_syscalls.enter_landlock_domain(scopes)
    return True
